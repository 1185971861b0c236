"""Estimates into updates."""

from lowvar.solvers.descent import Descent, descend
from lowvar.solvers.optimizers import OPTIMIZERS, optimizer
from lowvar.solvers.search import SEARCH, search_solver
from lowvar.solvers.search.base import SearchSolver
from lowvar.solvers.search.search import Search, generation

__all__ = [
    "OPTIMIZERS",
    "SEARCH",
    "Descent",
    "Search",
    "SearchSolver",
    "descend",
    "generation",
    "optimizer",
    "search_solver",
]
