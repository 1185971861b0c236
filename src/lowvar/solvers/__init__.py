"""Solvers, which turn estimates into updates. Reading specs needs only the registries, so JAX is not imported here."""

from lowvar.registry import Registry

# solvers of variational problems with their own update: factories (problem, sampler, step_size, **options)
OWN = Registry("solver", {"smiso": "lowvar.solvers.smiso"}, given=("problem", "sampler", "step_size"))
