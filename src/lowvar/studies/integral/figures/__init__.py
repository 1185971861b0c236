"""Figures of integrals."""
