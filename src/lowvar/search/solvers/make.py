"""Constructs a search from its name and options, with a one-sentence error if they are wrong."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import jax

from lowvar.core.backend import Backend
from lowvar.core.keys import named_key
from lowvar.errors import UserError, kind_of
from lowvar.registry import label
from lowvar.search.problem import Domain
from lowvar.search.solvers import OURS, SEARCH
from lowvar.search.solvers.base import CompiledSearch, SearchSolver

_WIDE = 200  # dimensions beyond which a full covariance is not learnt within the usual budgets


def default_method(domain: Domain, noisy: bool = False) -> str:
    """The most reliable search for a domain (docs/performance.md).

    Args:
        domain: the search domain.
        noisy: whether repeated evaluations of a point differ.

    >>> default_method(Domain("real", 10)), default_method(Domain("real", 10), noisy=True)
    ('ingo_cma', 'ingo_path')
    """
    if domain.kind != "real":
        return {"binary": "ingo_binary", "categorical": "ingo_categorical"}[domain.kind]
    if domain.dim > _WIDE:
        return "fast_ingo"
    return "ingo_path" if noisy else "ingo_cma"


def make_solver(
    name: str | Callable[..., Any], backend: Backend, domain: Domain, options: Mapping[str, Any]
) -> SearchSolver:
    """The search called ``name``: ours, or a compiled peer.

    Args:
        name: name of a search that is not driven, or its factory.
        backend: backend of the arrays.
        domain: the search domain.
        options: options of its factory, including ``population``.

    Raises:
        UserError: an unknown name, a domain or backend that the search does not support, an unknown option, or a value
            of the wrong type or out of range.
    """
    factory = _checked(name, backend.name, domain, options)
    with _refusals(name):
        solver = factory(backend, domain, **options)
    if not isinstance(solver, SearchSolver):
        raise UserError(f"{label(name)}: the factory returned {kind_of(solver)}, not a SearchSolver")
    return solver


def make_search(
    name: str | Callable[..., Any], backend: Backend, domain: Domain, x0: Any, sigma0: float, seed: int,
    options: Mapping[str, Any],
) -> Any:  # fmt: skip
    """The search called ``name``, ours or any peer, with its state: what a ``Searcher`` asks and tells.

    Args:
        name: name of a search, or its factory.
        backend: backend of the arrays.
        domain: the search domain.
        x0: the start, see ``checked_start``.
        sigma0: initial standard deviation.
        seed: seed of its draws.
        options: as for ``make_solver``.

    Returns:
        A ``CompiledSearch``, or the object of a driven peer.

    Raises:
        UserError: as ``make_solver``, and a search that needs gradients.
    """
    if SEARCH.about(name).driven:
        factory = _checked(name, backend.name, domain, options)
        with _refusals(name):
            return factory(domain, x0, sigma0, seed=seed, **options)
    solver = make_solver(name, backend, domain, options)
    with jax.enable_x64(True):
        key = named_key(seed, "search", "noise")
    with _refusals(name):
        return CompiledSearch(solver, x0, sigma0, key)


def _checked(name, backend, domain, options) -> Callable:
    """The factory of a search, after all checks that precede a call."""
    about = SEARCH.about(name)
    if domain.kind not in about.domains:
        others = ", ".join(one for one in SEARCH.own if domain.kind in SEARCH.about(one).domains)
        kinds = " and ".join(about.domains)
        raise UserError(f"{label(name)} searches {kinds} domains, not {domain.kind} ones: use one of {others}")
    if backend not in about.backends:
        raise UserError(f"{label(name)} has no {backend} backend: use {' or '.join(about.backends)}")
    SEARCH.check_options(name, options)
    return SEARCH.get(name)


@contextlib.contextmanager
def _refusals(name):
    """Converts other projects' errors about settings to ``UserError``."""
    try:
        yield
    except UserError:
        raise
    except (AssertionError, TypeError, ValueError) as error:
        if name in OURS:
            raise
        raise UserError(f"{label(name)} refused these settings: {error}") from error
