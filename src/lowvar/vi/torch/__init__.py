"""PyTorch's and Pyro's models as variational problems."""
