"""Search gradients: how the mean of a function under a distribution changes with the distribution's parameters."""
