"""Jobs of variational inference."""
