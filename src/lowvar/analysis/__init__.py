"""Variance decomposition, convergence, claims."""
