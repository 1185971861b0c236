"""Variance decomposition and its report."""
