"""What is estimated: variational objectives (integrals and black-box functions have rooms to come)."""
