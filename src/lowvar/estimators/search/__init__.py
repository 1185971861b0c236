"""Search gradients: gradients of ``E_p f`` with respect to the parameters of the distribution ``p``."""
