"""Search gradients: gradients of ``E_p f`` with respect to the parameters of the distribution ``p``."""

from lowvar.registry import Registry

# factories (backend, **options) -> SearchEstimator
SEARCH = Registry(
    "search estimator",
    {name: f"lowvar.search.estimators.{name}" for name in ("gaussian", "bernoulli", "categorical")},
    given=("backend",),
)
