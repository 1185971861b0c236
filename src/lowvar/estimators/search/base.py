"""What an estimator of a search gradient is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowvar.backends import Backend


@dataclass(frozen=True)
class SearchProperties:
    """What a search-gradient estimator claims of itself; the contract tests measure all of it.

    Attributes:
        unbiased: its mean over iid noise is the exact gradient of ``E f``.
        evaluations_beside: evaluations per generation besides its points (1 with the baseline ``f(mu)``).
        backends: the backends it runs on.
    """

    unbiased: bool
    evaluations_beside: int = 0
    backends: tuple[str, ...] = ("jax", "torch")


@dataclass(frozen=True)
class SearchEstimator:
    """An estimator of the gradient of ``E_p f``, from the values of one generation.

    Attributes:
        name: as in the registry.
        backend: whose arrays it takes.
        properties: what it declares.
        estimate: ``(draws (N, dim), values (N,), params, at_centre) -> gradient``. What the draws, the params
            and the gradient are is the distribution's affair: see each file.
    """

    name: str
    backend: Backend
    properties: SearchProperties
    estimate: Callable[..., Any]
