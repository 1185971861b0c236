"""Estimators of the gradient of a negative ELBO."""
