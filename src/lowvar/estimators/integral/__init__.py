"""Integrators: one file each, in PyTorch float64, all repetitions at once."""
