"""Optimizers of other projects behind lowvar's interface, for comparisons in the same runs.

A compiled peer is a ``SearchSolver``, pure functions of JAX; a driven peer is a ``Driven``, called from Python.
Each is an entry point of the group ``lowvar.searches``.
"""
