"""Variational inference."""
