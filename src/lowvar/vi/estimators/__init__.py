"""Estimators of the gradient of a negative ELBO: one file for each, noise in, gradient out.

A new estimator of lowvar's needs one file and one row here; a user's own needs no row, see
docs/adding-an-estimator.md.
"""

from lowvar.registry import Registry, row

# factories (problem, batches, **options) -> Estimator, each in a module of its name. `recursive` estimators carry over
# errors: their variance over fresh noise is not their total error.
OURS = {
    "naive": "lowvar.vi.estimators.naive",
    "stl": "lowvar.vi.estimators.stl",
    "cv": "lowvar.vi.estimators.cv",
    "inc": "lowvar.vi.estimators.inc",
    "ensemble": "lowvar.vi.estimators.ensemble",
    "full_naive": "lowvar.vi.estimators.full_naive",
    "full_cv": "lowvar.vi.estimators.full_cv",
    "joint": "lowvar.vi.estimators.joint",
    "joint_svrg": "lowvar.vi.estimators.joint_svrg",
    "joint_adaptive": "lowvar.vi.estimators.joint_adaptive",
    "joint_current": "lowvar.vi.estimators.joint_current",
    "mlmc": row("lowvar.vi.estimators.mlmc", recursive=True),
    "mlmc_prox": row("lowvar.vi.estimators.mlmc_prox", recursive=True),
    "mlmc_adaptive": row("lowvar.vi.estimators.mlmc_adaptive", recursive=True),
    "mlmc_optimal": row("lowvar.vi.estimators.mlmc_optimal", recursive=True),
    "storm": row("lowvar.vi.estimators.storm", recursive=True),
}

GRADIENT = Registry(
    "estimator",
    OURS,
    given=("problem", "batches"),
    about={"recursive": False},
    group="lowvar.estimators",
)
