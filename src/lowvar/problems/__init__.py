"""Estimation problems: variational objectives, black-box functions and integrals."""
