"""Functions to search, and minimize without its progress."""

import numpy as np

import lowvar
from lowvar.solvers.search import SEARCH

DIM = 20
X0 = np.ones(DIM)
VALUES = [name for name in SEARCH.own if not SEARCH.about(name).gradients]  # those that values suffice


class Counted:
    """A function that counts its calls."""

    def __init__(self, f):
        self.f, self.calls = f, 0

    def __call__(self, x):
        self.calls += 1
        return self.f(x)


def sphere(x):
    return float(x @ x)


def ellipsoid(x):
    return float(10.0 ** (3 * np.arange(len(x)) / (len(x) - 1)) @ x**2)


def ones_missing(x):
    return float((x != 1).sum())


def quiet(*args, **options):
    return lowvar.minimize(*args, progress=False, **options)
