"""Runs of an estimator under an optimizer."""
