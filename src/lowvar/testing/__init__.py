"""Contract tests, for lowvar's methods and for yours.

In a test module of a package with an estimator ``mine``::

    from lowvar.testing import estimator_contract
    from my_package import mine

    TestMine = estimator_contract(mine)

and pytest runs all tests of lowvar's own estimators on it. ``search_contract`` and ``integrator_contract`` do the same
for searches and integrators. Tests that measure rounding need float64: ``pytest_plugins = ["lowvar.testing"]`` in
``conftest.py`` sets up JAX for that; other runs of pytest do not load the plugin.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.register_assert_rewrite(
    *(f"lowvar.testing.{name}" for name in ("enumerable", "estimators", "integrators", "searches"))
)

__all__ = ["estimator_contract", "integrator_contract", "search_contract"]


def pytest_configure() -> None:
    """Strict numerics: float64 by default, no silent rank promotion."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")


def estimator_contract(
    method: str | Callable[..., Any], unconstrained: Mapping[str, Any] | None = None, **options: Any
) -> type:
    """A class of tests of an estimator's contract.

    They compare the mean over all batches and all base noise with the exact gradient, declared costs with the
    operations that XLA counts, and both backends on the same noise; and test float32, a single compilation,
    vectorised and resumed runs.

    Args:
        method: a factory ``(problem, batches, **options) -> Estimator``, ``module:function``, or a name.
        unconstrained: options under which a recursive estimator does not restrict its estimates, for the test of its
            bias.
        **options: options of the factory, for all tests.

    >>> from lowvar.testing import estimator_contract
    >>> TestJoint = estimator_contract("joint")  # in a test module: pytest runs its methods
    >>> TestJoint.method
    'joint'
    """
    from lowvar.testing.estimators import GRADIENT, EstimatorContract

    return _contract(EstimatorContract, GRADIENT, method, options, unconstrained=unconstrained or {})


def search_contract(method: str | Callable[..., Any], **options: Any) -> type:
    """A class of tests of the contract of a search ``(backend, domain, population, **options) -> SearchSolver``.

    They test shapes, mapped runs, ask and tell against the compiled loop in each declared backend, values that are not finite,
    the scale of values, and the rejection of bad settings.

    >>> from lowvar.testing import search_contract
    >>> TestIngo = search_contract("ingo")
    >>> TestIngo.method
    'ingo'
    """
    from lowvar.testing.searches import SEARCH, SearchContract

    return _contract(SearchContract, SEARCH, method, options)


def integrator_contract(method: str | Callable[..., Any], **options: Any) -> type:
    """A class of tests of the declared properties of an integrator ``(**options) -> Integrator``.

    >>> from lowvar.testing import integrator_contract
    >>> TestControl = integrator_contract("zero_variance")
    >>> TestControl.method
    'zero_variance'
    """
    from lowvar.integrals import INTEGRAL
    from lowvar.testing.integrators import IntegratorContract

    return _contract(IntegratorContract, INTEGRAL, method, options)


def _contract(base: type, registry, method, options, **more) -> type:
    if options:
        factory = registry.get(method)
        method = functools.wraps(factory)(functools.partial(factory, **options))
    attribute = method if isinstance(method, str) else staticmethod(method)
    return type(base.__name__, (base,), {"method": attribute, **more})
