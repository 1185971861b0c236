"""Integral problems: targets with scores, integrands, the truth, and the measurements that they are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.datasets.load import Prepared


@dataclass(frozen=True)
class Truth:
    """Reference values of the integrals, with their origin.

    Attributes:
        value: ``(T,)``.
        error: ``(T,)``, standard errors; 0 where quadrature is exact to rounding.
        how: a sentence with the rule, its nodes or draws, and its seed.
        derived: value and standard error of each quantity derived from the integrals.
    """

    value: np.ndarray
    error: np.ndarray
    how: str
    derived: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tempering:
    """Power posteriors ``p(y | x)^t p(x)`` as targets, in coordinates with prior ``N(0, I)``.

    Attributes:
        ladder: ``(K,)``, the inverse temperature of each target, increasing from 0.
        log_likelihood: JAX ``(d,) -> ()``, in these coordinates.
        points: JAX ``(d,) -> (d,)``, from these coordinates to the problem's.
    """

    ladder: np.ndarray
    log_likelihood: Callable
    points: Callable


@dataclass(frozen=True)
class IntegralProblem:
    """``T`` integrals ``E_{pi_t} f_t`` over R^d.

    Attributes:
        name: as in the catalogue.
        dim: ``d``.
        tasks: a name for each of the ``T`` integrals.
        target: for each task, the index of its target; equal indices mean the same target.
        log_densities: for each target, JAX ``(d,) -> ()``, up to a constant.
        value: ``(t, points (n, d)) -> (n,)`` NumPy: integrand ``t``.
        score: ``(k, points (n, d)) -> (n, d)`` NumPy: score of target ``k``.
        truth: computes the integrals; ``effort`` (1 or more) scales its work where it is not exact.
        samplers: samplers of ``lowvar_studies.integrals.samplers`` for its points, by name, the default first.
        gaussian: mean ``(d,)`` and standard deviation ``(d,)`` of each target, for the samplers ``iid`` and ``rqmc``;
            only if the targets are normal with independent coordinates.
        start: a point in the bulk of each target, ``(d,)``, for Markov chains.
        tempering: for the sampler ``tempered``, if the targets are power posteriors.
        shared: whether the tasks share their points: they have one target, and points are expensive.
        groups: tasks that a vector-valued method may treat jointly, as tuples of indices; None for all tasks.
        derived: quantities computed from the integrals, ``name -> ((R, T) -> (R,))``.
        about: arrays and numbers by name, for figures and reports (observations, ladder, times).
    """

    name: str
    dim: int
    tasks: tuple[str, ...]
    target: tuple[int, ...]
    log_densities: tuple[Callable, ...]
    value: Callable[[int, np.ndarray], np.ndarray]
    score: Callable[[int, np.ndarray], np.ndarray]
    truth: Callable[[int], Truth]
    samplers: tuple[str, ...]
    gaussian: tuple[tuple[np.ndarray, np.ndarray], ...] | None = None
    start: tuple[np.ndarray, ...] | None = None
    tempering: Tempering | None = None
    shared: bool = False
    groups: tuple[tuple[int, ...], ...] | None = None
    derived: Mapping[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def one_target(self) -> bool:
        """Whether all tasks have the same target."""
        return len(set(self.target)) == 1


def measurements(data: Prepared | None, dataset: str, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Times ``(n,)`` and measurements ``(n, len(columns))``.

    Args:
        data: the prepared dataset, with unscaled times.
        dataset: the required dataset.
        columns: names of the measurements, in the order of the result.

    Raises:
        UserError: no data, or those of another dataset or scaling.
    """
    command = f"make it with `lowvar fetch {dataset}` and `lowvar prepare {dataset} --scaling none`"
    if data is None:
        raise UserError(f"the problem needs the dataset {dataset}: {command}")
    if (data.meta.get("dataset"), data.meta.get("scaling")) != (dataset, "none"):
        actual = f"{data.meta.get('dataset', 'unnamed arrays')} with scaling {data.meta.get('scaling', 'unknown')}"
        raise UserError(f"the problem needs the dataset {dataset} with scaling none, not {actual}: {command}")
    names = data.meta["outputs"]
    return data.arrays["x"][:, 0], data.arrays["y"][:, [names.index(column) for column in columns]]
