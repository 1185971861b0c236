"""Figures of variational inference."""
