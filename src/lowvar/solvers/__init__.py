"""Estimates into updates."""

from lowvar.solvers.descent import Descent, descend
from lowvar.solvers.optimizers import OPTIMIZERS, optimizer

__all__ = ["OPTIMIZERS", "Descent", "descend", "optimizer"]
