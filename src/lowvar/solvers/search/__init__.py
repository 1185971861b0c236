"""Black-box search: distributions that move towards small values."""

import importlib
from collections.abc import Callable
from types import MappingProxyType

from lowvar.backends import BACKENDS
from lowvar.errors import unknown_name
from lowvar.solvers.search.peers import PEERS

# name -> module of its factory, which has the same name; a new solver is one file and one row here
SEARCH = MappingProxyType(
    {
        "ingo": "lowvar.solvers.search.ingo",
        "ingo_step": "lowvar.solvers.search.ingo_step",
        "fast_ingo": "lowvar.solvers.search.fast_ingo",
        "fast_ingo_adaptive": "lowvar.solvers.search.fast_ingo_adaptive",
        "igo": "lowvar.solvers.search.igo",
        "es": "lowvar.solvers.search.es",
        "reinforce_gd": "lowvar.solvers.search.reinforce_gd",
        "ingo_binary": "lowvar.solvers.search.ingo_binary",
        "ingo_categorical": "lowvar.solvers.search.ingo_categorical",
    }
)


def search_solver(name: str) -> Callable:
    """The factory ``(backend, domain, population=None, **options) -> SearchSolver`` called ``name``.

    Raises:
        UserError: no search solver has that name.
    """
    if name not in SEARCH:
        raise unknown_name("search solver", name, SEARCH)
    return getattr(importlib.import_module(SEARCH[name]), name)


# ours and the peers
ALL = (*SEARCH, *PEERS)


def backends_of(name: str) -> tuple[str, ...]:
    """The backends that a search of ``ALL`` runs on; peers have one of their own.

    Raises:
        UserError: no search solver has that name.
    """
    if name not in ALL:
        raise unknown_name("search solver", name, ALL)
    return ("jax",) if name in PEERS else BACKENDS
