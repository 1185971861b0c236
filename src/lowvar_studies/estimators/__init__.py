"""The methods of the joint control variate's paper for the laboratory alone: two estimators, by entry points of
``lowvar.estimators``, for models with linear predictors; and SMISO, a solver with its own update.
"""

from lowvar.registry import Registry

# solvers of variational problems with their own update: factories (problem, sampler, step_size, **options)
OWN = Registry("solver", {"smiso": "lowvar_studies.estimators.smiso"}, given=("problem", "sampler", "step_size"))
