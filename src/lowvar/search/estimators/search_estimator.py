"""The interface of search-gradient estimators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowvar.core.backend import Backend


@dataclass(frozen=True)
class SearchProperties:
    """Declared properties of a search-gradient estimator; the contract tests measure each of them.

    Attributes:
        unbiased: its mean over iid noise is the exact gradient of ``E f``.
        evaluations_beside: evaluations per generation in addition to its points (1 with the baseline ``f(mu)``).
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
        backend: backend of the arrays.
        properties: declared properties.
        estimate: ``(draws (N, dim), values (N,), params, at_centre) -> gradient``. The distribution
            defines draws, params and gradient: see each file.
    """

    name: str
    backend: Backend
    properties: SearchProperties
    estimate: Callable[..., Any]
