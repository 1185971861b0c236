"""The effects for claims about variational problems."""

from lowvar_studies.reports.effect import Declared
from lowvar_studies.reports.variational import effects_along, effects_runs, effects_variances

EFFECTS = Declared(effects_variances.EFFECTS | effects_runs.EFFECTS | effects_along.EFFECTS)
