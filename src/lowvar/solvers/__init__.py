"""Solvers, which turn estimates into updates."""

from lowvar.registry import Registry
from lowvar.solvers.descent import Descent, descend
from lowvar.solvers.optimizers import OPTIMIZERS, optimizer
from lowvar.solvers.search import SEARCH
from lowvar.solvers.search.base import SearchSolver
from lowvar.solvers.search.search import Search, generation

# solvers of variational problems with their own update: factories (problem, sampler, step_size, **options)
OWN = Registry("solver", {"smiso": "lowvar.solvers.smiso"}, given=("problem", "sampler", "step_size"))

__all__ = ["OPTIMIZERS", "OWN", "SEARCH", "Descent", "Search", "SearchSolver", "descend", "generation", "optimizer"]
