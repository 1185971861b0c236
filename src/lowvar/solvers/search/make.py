"""A search from its name and its options, with one sentence for whatever is wrong with them."""

import contextlib
import inspect
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from types import NoneType
from typing import Any, get_args

import numpy as np

import lowvar.solvers.search as registry
from lowvar.backends import Backend
from lowvar.errors import UserError, unknown_name
from lowvar.problems.blackbox.problem import Domain
from lowvar.solvers.search.base import SearchSolver
from lowvar.solvers.search.peers import PEERS, peer
from lowvar.solvers.search.search import Search

_GIVEN = ("backend", "domain", "x0", "sigma0", "seed")  # arguments of factories that are no options
_TYPES = {
    bool: ("true or false", (bool, np.bool_)),
    int: ("a whole number", Integral),
    float: ("a number", Real),
    str: ("a name", str),
}


_WIDE = 200  # dimensions beyond which a full covariance is not learnt within the usual budgets


def default_method(domain: Domain, noisy: bool = False) -> str:
    """The search that fails least on a domain (docs/performance.md).

    Args:
        domain: where it searches.
        noisy: whether another evaluation of a point gives another value.

    >>> default_method(Domain("real", 10)), default_method(Domain("real", 10), noisy=True)
    ('ingo_cma', 'ingo_path')
    """
    if domain.kind != "real":
        return {"binary": "ingo_binary", "categorical": "ingo_categorical"}[domain.kind]
    if domain.dim > _WIDE:
        return "fast_ingo"
    return "ingo_path" if noisy else "ingo_cma"


def make_solver(name: str, backend: Backend, domain: Domain, options: Mapping[str, Any]) -> SearchSolver:
    """The search called ``name``: ours, or a compiled peer.

    Args:
        name: one of ``ALL`` that is not driven.
        backend: of the arrays.
        domain: where it searches.
        options: of its factory, ``population`` among them.

    Raises:
        UserError: an unknown name, a domain or a backend that is not the search's, an option that it does not have, or
            a value of the wrong type or out of range.
    """
    factory = _checked(name, backend.name, domain, options)
    with _refusals(name):
        return factory(backend, domain, **options)


def make_driven(
    name: str, backend: Backend, domain: Domain, x0: Any, sigma0: float, seed: int, options: Mapping[str, Any]
) -> Any:  # fmt: skip
    """The search called ``name``, to be asked and told: ours, or any peer.

    Args:
        name: one of ``ALL``.
        backend: of the arrays.
        domain: where it searches.
        x0: where it starts, see ``Search``.
        sigma0: standard deviation that it starts from.
        seed: of its draws.
        options: as for ``make_solver``.

    Returns:
        A ``Search``, or the object of a driven peer.

    Raises:
        UserError: as ``make_solver``, and a start that the search refuses.
    """
    if registry.is_driven(name):
        factory = _checked(name, backend.name, domain, options)
        with _refusals(name):
            return factory(domain, x0, sigma0, seed=seed, **options)
    solver = make_solver(name, backend, domain, options)
    with _refusals(name):
        return Search(solver, x0, sigma0, seed)


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options of the factory of a search of ``ALL``, ``population`` among them.

    Raises:
        UserError: no search has that name, or its package is not installed.
    """
    parameters = inspect.signature(_factory(name)).parameters
    return {key: parameter for key, parameter in parameters.items() if key not in _GIVEN}


def check_options(name: str, options: Mapping[str, Any], known: Collection[str] = ()) -> None:
    """Refuses options that a search does not have, and values of the wrong type.

    Args:
        name: one of ``ALL``.
        options: by name.
        known: names that the caller takes besides: one of them may have been meant.

    Raises:
        UserError: one of them.
    """
    own = options_of(name)
    for key, value in options.items():
        if key not in own:
            raise unknown_name("option", key, {*own, *known}, where=name)
        parameter = own[key]
        annotated = parameter.annotation is not inspect.Parameter.empty
        kind = parameter.annotation if annotated else type(parameter.default)
        kinds = get_args(kind) or (kind,)
        said = [_TYPES[one] for one in kinds if one in _TYPES]
        if (value is None and NoneType in kinds) or not said:
            continue
        truth = isinstance(value, _TYPES[bool][1])
        if not any(isinstance(value, types) for _, types in said) or (truth and bool not in kinds):
            raise UserError(f"{name}: {key} {value!r}: it must be {' or '.join(what for what, _ in said)}")


def _checked(name, backend, domain, options) -> Callable:
    """The factory of a search, after all that can be said before it is called."""
    if domain.kind not in registry.domains_of(name):
        others = ", ".join(one for one in registry.ALL if domain.kind in registry.domains_of(one))
        kinds = " and ".join(registry.domains_of(name))
        raise UserError(f"{name} searches {kinds} domains, not {domain.kind} ones: use one of {others}")
    backends = registry.backends_of(name)
    if backend not in backends:
        raise UserError(f"{name} has no {backend} backend: use {' or '.join(backends)}")
    check_options(name, options)
    return _factory(name)


def _factory(name) -> Callable:
    return peer(name) if name in PEERS else registry.search_solver(name)


@contextlib.contextmanager
def _refusals(name):
    """How other projects refuse settings, as an error of ours."""
    try:
        yield
    except UserError:
        raise
    except (AssertionError, TypeError, ValueError) as error:
        if name not in PEERS:
            raise
        raise UserError(f"{name} refused these settings: {error}") from error
