"""Integrals."""
