"""Kernel methods in closed form: each solves for all points at once, with hyper-parameters learnt by REML."""
