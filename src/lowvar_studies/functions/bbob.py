"""The BBOB functions of COCO, of the package ``coco-experiment``, without and with noise.

Values are gaps to the optimum, which COCO adds to its own; so the optimum is 0 on every instance. Searches start from
a mean drawn uniformly from [-4, 4]^d, with standard deviation 2. As in COCO, the repetitions of a run are instances of
a function: repetition ``r`` has instance ``instance + r``.

References:
    Hansen, Finck, Ros and Auger, "Real-parameter black-box optimization benchmarking 2009: noiseless functions
    definitions", INRIA RR-6829, and "noisy functions definitions", RR-6869; Hansen et al., "COCO: a platform for
    comparing continuous optimizers in a black-box setting", 2021.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lowvar.errors import UserError, whole
from lowvar.search.problem import BlackBoxProblem, Domain
from lowvar_studies.functions.functions import generator, uniform

LAST = 24  # functions of the suite
NOISY = range(101, 131)
_SCALED = (116, 117, 118)  # their condition number is 1e4, and that of f10 is 1e6
# in the order of the noisy functions, three each: the function, its own penalty outside of [-5, 5]^d, and its scale
_SEVERE = ((1, 0, 1), (8, 0, 1), (7, 1, 1), (10, 0, 1), (14, 0, 1), (17, 10, 1), (19, 0, 10), (21, 1, 1))
_MODERATE = _SEVERE[:2]
_LEAST = 1.01e-8  # added to all noisy values


def bbob(
    backend: Any = None, dim: int = 5, *, number: int, instance: int = 1, name: str | None = None
) -> BlackBoxProblem:
    """Function ``number`` of the suite ``bbob``.

    Args:
        backend: not used; the functions run on the host.
        dim: ``d``, at least 2.
        number: 1 to 24.
        instance: of the first repetition.
        name: name of the problem; COCO's, such as ``bbob_f001_d05``, if not given.

    Raises:
        UserError: an option out of range, or ``coco-experiment`` is missing.
    """
    dim, number, instance = _checked(dim, number, instance, range(1, LAST + 1))
    return _problem(name or f"bbob_f{number:03d}_d{dim:02d}", dim, instance, partial(_gap, number))


def bbob_noisy(
    backend: Any = None, dim: int = 5, *, number: int, instance: int = 1, seed: int = 0, name: str | None = None
) -> BlackBoxProblem:
    """Function ``number`` of the suite ``bbob-noisy``, 27 of its 30 functions.

    The package computes no values without noise for this suite, so f116, f117 and f118, which are not functions of
    ``bbob``, are left out. The functions and noise models are the suite's. The noise itself is our own, drawn from the
    seed and the number of evaluations before. (The package draws the two uniform numbers of its uniform model from
    consecutive seeds, and they are not quite independent; ours are.)

    Args:
        backend: not used.
        dim: ``d``, at least 2.
        number: 101 to 115 or 119 to 130.
        instance: of the first repetition.
        seed: seed of the noise.
        name: name of the problem; COCO's if not given.

    Raises:
        UserError: an option out of range, or ``coco-experiment`` is missing.
    """
    dim, number, instance = _checked(dim, number, instance, NOISY)
    if number in _SCALED:
        raise UserError(f"number {number}: f116, f117 and f118 have no values without noise; take another from 101")
    bases, first = (_MODERATE, 101) if number < 107 else (_SEVERE, 107)
    base, penalty, scale = bases[(number - first) // 3]
    model = partial(_MODELS[(number - first) % 3], severe=number >= 107)
    whole("seed", seed, 0)

    def build(instance, dim):
        gap = _gap(base, instance, dim)
        return lambda points: (gap(points) - penalty * _outside(points)) / scale

    def noise(instance, points, values, first):
        rng = generator(seed, "bbob_noisy", number, dim, instance, first)
        return model(values, rng, dim) + _LEAST + 100 * _outside(points)

    called = name or f"bbob_noisy_f{number:03d}_d{dim:02d}"
    return _problem(called, dim, instance, build, noise)


def _problem(name: str, dim: int, first: int, build: Callable, noise: Callable | None = None) -> BlackBoxProblem:
    """The problem on instance ``first``, which knows those of the other repetitions."""

    def on(instance: int, repeats: bool) -> BlackBoxProblem:
        return BlackBoxProblem(
            name, Domain("real", dim), build(instance, dim), None, 0.0, uniform(dim, -4.0, 4.0), sigma0=2.0,
            noise=None if noise is None else partial(noise, instance),
            repetition=(lambda r: on(first + r, False)) if repeats else None,
        )  # fmt: skip

    return on(first, True)


def _gap(number: int, instance: int, dim: int) -> Callable[[Any], np.ndarray]:
    """``points (n, dim) -> (n,)``: values less the optimum."""
    from cocoex import BareProblem  # pyright: ignore[reportMissingImports]

    function = BareProblem("bbob", number, dim, instance)
    least = function.best_value()
    return lambda points: function(np.ascontiguousarray(points, dtype=np.float64)) - least


def _outside(points: np.ndarray) -> np.ndarray:
    """The suite's penalty: the squared distance from [-5, 5]^d."""
    return (np.maximum(np.abs(points) - 5, 0) ** 2).sum(axis=1)


def _gaussian(values, rng, dim, severe):
    return values * np.exp((1.0 if severe else 0.01) * rng.standard_normal(len(values)))


def _uniform(values, rng, dim, severe):
    beta = 1.0 if severe else 0.01
    alpha = beta * (0.49 + 1 / dim)
    first, second = rng.random((2, len(values)))
    return values * first**beta * np.maximum((1e9 / (values + 1e-99)) ** (alpha * second), 1)


def _cauchy(values, rng, dim, severe):
    alpha, p = (1.0, 0.2) if severe else (0.01, 0.05)
    over, under = rng.standard_normal((2, len(values)))
    return values + alpha * np.maximum(1e3 + np.where(rng.random(len(values)) < p, over / np.abs(under), 0.0), 0)


_MODELS = (_gaussian, _uniform, _cauchy)


def _checked(dim, number, instance, numbers) -> tuple[int, int, int]:
    number, first, last = whole("number", number, 1), numbers[0], numbers[-1]
    if number not in numbers:
        raise UserError(f"number {number}: the suite has functions {first} to {last}")
    return whole("dim", dim, 2), number, whole("instance", instance, 1)
