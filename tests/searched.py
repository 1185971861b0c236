"""Functions to search, and minimize without its progress."""

import numpy as np
import pytest

import lowvar
from lowvar.search.solvers import SEARCH

DIM = 20
X0 = np.ones(DIM)
VALUES = [name for name in SEARCH.own if not SEARCH.about(name).gradients]  # those that values suffice


def in_full_when_long(names, *kept):
    """Names as parameters of a test: those that are not kept are for ``make test-long``."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.long) for name in names]


def skip_without_packages(method):
    """Skips a test where a package of a search is not installed."""
    for package in SEARCH.about(method).packages if method in SEARCH else ():
        pytest.importorskip(package)


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


def turned(dim):
    return np.linalg.qr(np.random.default_rng(dim).normal(size=(dim, dim)))[0]


def stairs(points):
    """Steps of 0.1 on a turned ellipsoid, whose lowest plateau holds 0.3."""
    z = (points - 0.3) @ turned(points.shape[1]) * 10 ** np.linspace(0, 1, points.shape[1])
    return np.floor(0.5 + 10 * np.abs(z)).sum(1) / 10


def ones_missing(x):
    return float((x != 1).sum())


def quiet(*args, **options):
    return lowvar.minimize(*args, progress=False, **options)
