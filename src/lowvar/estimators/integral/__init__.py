"""Integrators: one file each, in PyTorch float64, all repetitions at once.

``exact`` has kernel methods in closed form, ``parametric`` polynomials and a network, ``paper`` the published
algorithms, ``choosing`` the method ``auto``, ``kernels`` the kernels; what all of them share lies beside them.
"""
