"""Estimates into updates."""

import importlib
from collections.abc import Callable
from types import MappingProxyType

from lowvar.errors import unknown_name
from lowvar.solvers.descent import Descent, descend
from lowvar.solvers.optimizers import OPTIMIZERS, optimizer
from lowvar.solvers.search import SEARCH, search_solver
from lowvar.solvers.search.base import SearchSolver
from lowvar.solvers.search.search import Search, generation

# solvers of variational problems with an update of their own: name -> module of the factory of the same name
OWN = MappingProxyType({"smiso": "lowvar.solvers.smiso"})


def own(name: str) -> Callable:
    """The factory ``(problem, sampler, step_size, **options) -> solver`` called ``name``.

    Raises:
        UserError: no solver has that name.
    """
    if name not in OWN:
        raise unknown_name("solver", name, OWN)
    return getattr(importlib.import_module(OWN[name]), name)


__all__ = [
    "OPTIMIZERS",
    "OWN",
    "SEARCH",
    "Descent",
    "Search",
    "SearchSolver",
    "descend",
    "generation",
    "optimizer",
    "own",
    "search_solver",
]
