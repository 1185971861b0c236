"""What is estimated: variational objectives, and black-box functions (integrals have a room to come)."""
