"""Figures of black-box search, in the order of a report."""

from lowvar_studies.reports.declarations import Figure
from lowvar_studies.reports.search.figures.curves import CURVES, SECONDS
from lowvar_studies.reports.search.figures.effort import EFFORT, SCALING
from lowvar_studies.reports.search.figures.gradients import GRADIENTS
from lowvar_studies.reports.search.figures.profiles import GROUPS, PROFILES
from lowvar_studies.reports.search.figures.rates import RATES

FIGURES: tuple[Figure, ...] = (EFFORT, CURVES, PROFILES, GROUPS, SCALING, RATES, GRADIENTS, SECONDS)
