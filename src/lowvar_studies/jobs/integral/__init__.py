"""Jobs of integrals."""
