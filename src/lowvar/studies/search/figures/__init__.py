"""Figures of black-box search."""
