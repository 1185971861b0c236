"""One file per estimator: noise in, estimate out. The registries below drive specs, docs and contract tests.

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
            name: f"lowvar.estimators.gradient.{name}"
            for name in (
                "naive", "stl", "cv", "inc", "ensemble", "full_naive", "full_cv", "joint", "joint_svrg",
                "joint_adaptive", "joint_current", "joint_glm", "joint_glm_sigma",
            )
        },
        **{
            name: row(f"lowvar.estimators.gradient.{name}", recursive=True)
            for name in ("mlmc", "mlmc_prox", "mlmc_adaptive", "mlmc_optimal", "storm")
        },
    },
    given=("problem", "batches"),
    about={"recursive": False},
    group="lowvar.estimators",
)  # fmt: skip

# factories (backend, **options) -> SearchEstimator
SEARCH = Registry(
    "search estimator",
    {name: f"lowvar.estimators.search.{name}" for name in ("gaussian", "bernoulli", "categorical")},
    given=("backend",),
)

# integrators that need no PyTorch; `auto` tries those that can run
NUMPY = "auto", "monte_carlo", "zero_variance"

# factories (**options) -> Integrator
INTEGRAL = Registry(
    "integrator",
    {
        name: row(
            f"lowvar.estimators.integral.{module}:{name}", packages=() if name in NUMPY else ("torch",), extra="torch"
        )
        for name, module in {
            "auto": "choosing.auto",
            "monte_carlo": "monte_carlo",
            "zero_variance": "parametric.zero_variance",
            "control_functional": "exact.control_functional",
            "sparse_control_functional": "exact.sparse_control_functional",
            "vector_valued": "exact.vector_valued",
            "alternating": "exact.alternating",
            "convex": "exact.convex",
            "additive": "parametric.additive",
            "neural": "parametric.neural",
        }.items()
    },
    group="lowvar.integrators",
)

__all__ = ["GRADIENT", "INTEGRAL", "SEARCH"]
