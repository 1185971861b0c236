"""NumPyro's models as variational problems."""
