"""Variational inference: models, guides, gradient estimators, and ``fit``."""
