"""Estimators of the gradient of a negative ELBO: one file for each, noise in, gradient out.

A new estimator of lowvar's needs one file and one row here; a user's own needs no row, see
docs/adding-an-estimator.md.
"""

from lowvar.registry import Registry, row

# factories (problem, batches, **options) -> Estimator, each in a module of its name. `recursive` estimators carry over
# errors: their variance over fresh noise is not their total error.
GRADIENT = Registry(
    "estimator",
    {
        **{
            name: f"lowvar.vi.estimators.{name}"
            for name in (
                "naive", "stl", "cv", "inc", "ensemble", "full_naive", "full_cv", "joint", "joint_svrg",
                "joint_adaptive", "joint_current", "joint_glm", "joint_glm_sigma",
            )
        },
        **{
            name: row(f"lowvar.vi.estimators.{name}", recursive=True)
            for name in ("mlmc", "mlmc_prox", "mlmc_adaptive", "mlmc_optimal", "storm")
        },
    },
    given=("problem", "batches"),
    about={"recursive": False},
    group="lowvar.estimators",
)  # fmt: skip

# solvers of variational problems with their own update: factories (problem, sampler, step_size, **options)
OWN = Registry("solver", {"smiso": "lowvar.vi.smiso"}, given=("problem", "sampler", "step_size"))
