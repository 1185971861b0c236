"""Figures of black-box search, in the order of a report."""

from lowvar.studies.declarations import Figure
from lowvar.studies.search.figures.curves import CURVES, SECONDS
from lowvar.studies.search.figures.effort import EFFORT
from lowvar.studies.search.figures.gradients import GRADIENTS
from lowvar.studies.search.figures.profiles import GROUPS, PROFILES
from lowvar.studies.search.figures.rates import RATES
from lowvar.studies.search.figures.scaling import SCALING

FIGURES: tuple[Figure, ...] = (EFFORT, CURVES, PROFILES, GROUPS, SCALING, RATES, GRADIENTS, SECONDS)
