"""One file per estimator: noise in, estimate out. The registry below drives specs, docs and contract tests."""

import importlib
from collections.abc import Callable
from types import MappingProxyType

from lowvar.errors import unknown_name

# name -> module of its factory, which has the same name; a new estimator is one file and one row here
GRADIENT = MappingProxyType(
    {
        "naive": "lowvar.estimators.gradient.naive",
        "stl": "lowvar.estimators.gradient.stl",
        "cv": "lowvar.estimators.gradient.cv",
        "inc": "lowvar.estimators.gradient.inc",
        "ensemble": "lowvar.estimators.gradient.ensemble",
        "full_naive": "lowvar.estimators.gradient.full_naive",
        "full_cv": "lowvar.estimators.gradient.full_cv",
        "joint": "lowvar.estimators.gradient.joint",
        "joint_svrg": "lowvar.estimators.gradient.joint_svrg",
        "joint_adaptive": "lowvar.estimators.gradient.joint_adaptive",
        "joint_current": "lowvar.estimators.gradient.joint_current",
        "joint_glm": "lowvar.estimators.gradient.joint_glm",
        "joint_glm_sigma": "lowvar.estimators.gradient.joint_glm_sigma",
        "mlmc": "lowvar.estimators.gradient.mlmc",
        "mlmc_prox": "lowvar.estimators.gradient.mlmc_prox",
        "mlmc_optimal": "lowvar.estimators.gradient.mlmc_optimal",
        "storm": "lowvar.estimators.gradient.storm",
    }
)

# those that keep errors of their past: their variance over fresh noise is not their error
RECURSIVE = frozenset({"mlmc", "mlmc_prox", "mlmc_optimal", "storm"})

# the same for search gradients
SEARCH = MappingProxyType(
    {
        "gaussian": "lowvar.estimators.search.gaussian",
        "bernoulli": "lowvar.estimators.search.bernoulli",
        "categorical": "lowvar.estimators.search.categorical",
    }
)

# the same for integrals
INTEGRAL = MappingProxyType(
    {
        "auto": "lowvar.estimators.integral.auto",
        "monte_carlo": "lowvar.estimators.integral.monte_carlo",
        "zero_variance": "lowvar.estimators.integral.zero_variance",
        "control_functional": "lowvar.estimators.integral.control_functional",
        "sparse_control_functional": "lowvar.estimators.integral.sparse_control_functional",
        "vector_valued": "lowvar.estimators.integral.vector_valued",
        "alternating": "lowvar.estimators.integral.alternating",
        "convex": "lowvar.estimators.integral.convex",
        "additive": "lowvar.estimators.integral.additive",
        "neural": "lowvar.estimators.integral.neural",
        "paper_cf": "lowvar.estimators.integral.paper_cf",
        "paper_cv": "lowvar.estimators.integral.paper_cv",
        "paper_vv_fixed": "lowvar.estimators.integral.paper_vv_fixed",
        "paper_vv": "lowvar.estimators.integral.paper_vv",
    }
)


def gradient_estimator(name: str) -> Callable:
    """The factory ``(problem, batches, **options) -> Estimator`` called ``name``.

    Raises:
        UserError: no estimator has that name.
    """
    if name not in GRADIENT:
        raise unknown_name("estimator", name, GRADIENT)
    return getattr(importlib.import_module(GRADIENT[name]), name)


def search_estimator(name: str) -> Callable:
    """The factory ``(backend, **options) -> SearchEstimator`` called ``name``.

    Raises:
        UserError: no estimator of a search gradient has that name.
    """
    if name not in SEARCH:
        raise unknown_name("search estimator", name, SEARCH)
    return getattr(importlib.import_module(SEARCH[name]), name)


def integrator(name: str) -> Callable:
    """The factory ``(**options) -> Integrator`` called ``name``.

    Raises:
        UserError: no integrator has that name.
    """
    if name not in INTEGRAL:
        raise unknown_name("integrator", name, INTEGRAL)
    return getattr(importlib.import_module(INTEGRAL[name]), name)
