"""Black-box search: distributions that move towards small values."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from lowvar.backends import BACKENDS
from lowvar.errors import unknown_name
from lowvar.problems.blackbox.problem import Kind
from lowvar.solvers.search.peers import PEERS, Peer


@dataclass(frozen=True)
class Ours:
    """A search of this package.

    Attributes:
        module: of its factory, which has the search's name.
        domains: kinds of domain that it searches.
    """

    module: str
    domains: tuple[Kind, ...] = ("real",)


# a new solver is one file and one row here
SEARCH = MappingProxyType(
    {
        "ingo": Ours("lowvar.solvers.search.ingo"),
        "ingo_step": Ours("lowvar.solvers.search.ingo_step"),
        "fast_ingo": Ours("lowvar.solvers.search.fast_ingo"),
        "fast_ingo_adaptive": Ours("lowvar.solvers.search.fast_ingo_adaptive"),
        "ingo_cma": Ours("lowvar.solvers.search.ingo_cma"),
        "ingo_path": Ours("lowvar.solvers.search.ingo_path"),
        "igo": Ours("lowvar.solvers.search.igo"),
        "es": Ours("lowvar.solvers.search.es"),
        "reinforce_gd": Ours("lowvar.solvers.search.reinforce_gd"),
        "ingo_binary": Ours("lowvar.solvers.search.ingo_binary", ("binary",)),
        "ingo_categorical": Ours("lowvar.solvers.search.ingo_categorical", ("categorical",)),
    }
)
ALL = (*SEARCH, *PEERS)  # ours and the peers


def search_solver(name: str) -> Callable:
    """The factory ``(backend, domain, population=None, **options) -> SearchSolver`` called ``name``.

    Raises:
        UserError: no search solver has that name.
    """
    if name not in SEARCH:
        raise unknown_name("search solver", name, SEARCH)
    return getattr(importlib.import_module(SEARCH[name].module), name)


def backends_of(name: str) -> tuple[str, ...]:
    """The backends that a search of ``ALL`` runs on; peers have one of their own.

    Raises:
        UserError: no search solver has that name.
    """
    return ("jax",) if isinstance(_row(name), Peer) else BACKENDS


def domains_of(name: str) -> tuple[Kind, ...]:
    """The kinds of domain that a search of ``ALL`` searches.

    Raises:
        UserError: no search solver has that name.
    """
    return _row(name).domains


def is_driven(name: str) -> bool:
    """Whether a search of ``ALL`` is an object with a state of its own, and not a ``SearchSolver``.

    Raises:
        UserError: no search solver has that name.
    """
    row = _row(name)
    return isinstance(row, Peer) and row.kind == "driven"


def _row(name: str) -> Ours | Peer:
    """What the registries say of a search."""
    if name not in ALL:
        raise unknown_name("search solver", name, ALL)
    return PEERS[name] if name in PEERS else SEARCH[name]
