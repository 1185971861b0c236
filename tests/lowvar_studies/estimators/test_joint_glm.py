"""The contract of the estimators for linear predictors, and the costs of lowvar's own estimators on such models."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.errors import UserError
from lowvar.testing import enumerable
from lowvar.testing.estimators import EstimatorContract
from lowvar.vi.batches import iid, reshuffled
from lowvar.vi.estimators import GRADIENT, OURS
from lowvar.vi.guides.gaussian import with_guide
from lowvar_studies.models.linear.problem import linear, standard_normal
from lowvar_studies.models.logistic_regression import problem as logistic_regression

NAMES = ("joint_glm", "joint_glm_sigma")


@functools.cache
def problem(backend="jax", dtype=np.float64):
    """The contract's logistic regression, with its linear predictors declared."""
    return logistic_regression(enumerable.data(dtype), backend)


def costly():
    """The contract's costly problem, with its linear predictors declared."""
    ops = backends.get("jax")
    return linear("costly", 96, np.float64, Tensor(), Tanh(), *standard_normal(ops, 16))


class Tensor:
    """A design of 64 predictors for each row."""

    def __init__(self):
        self.backend, self.dim = backends.get("jax"), 16
        self.x = jnp.asarray(np.random.default_rng(0).normal(size=(96, 64, 16)))
        self.squares = self.x**2

    def forward(self, z, index):
        return self._of(self.x, index) @ z

    def back(self, r, index):
        return jnp.tensordot(r, self._of(self.x, index), 2)

    def forward_squares(self, v, index):
        return self._of(self.squares, index) @ v

    def back_squares(self, r, index):
        return jnp.tensordot(r, self._of(self.squares, index), 2)

    def forward_by_row(self, z, index):
        return jnp.einsum("bcd,bd->bc", self._of(self.x, index), z)

    def _of(self, array, index):
        return array if index is None else array[index]


class Tanh:
    """``log p = sum_c tanh(a_c)``; derivatives by autodiff."""

    def log(self, a, index):
        return jnp.sum(jnp.tanh(a), axis=1)

    def residual(self, a, index):
        return -jax.grad(lambda a: jnp.sum(jnp.tanh(a)))(a)

    def curvature(self, a, t, index):
        return jax.jvp(lambda a: self.residual(a, index), (a,), (t,))[1]

    def curvature_diagonal(self, a, index):
        return self.curvature(a, jnp.ones_like(a), index)


class OnLinear(EstimatorContract):
    """The contract on models with linear predictors."""

    problem, costly = staticmethod(problem), staticmethod(costly)


def some(names, *short):
    """The names; those that are not ``short`` in ``make test-long`` alone."""
    return [pytest.param(one, marks=() if one in short else pytest.mark.long) for one in names]


LONG, OF_COSTS = some(NAMES), some(NAMES, "joint_glm_sigma")


class TestJointGLM(OnLinear):
    """What asks little of an estimator beyond the kind of its state is long, as for lowvar's own ones."""

    @pytest.fixture(params=NAMES)
    def name(self, request):
        return request.param

    @pytest.mark.parametrize("name", LONG)
    def test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(self, name):
        super().test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(name)

    @pytest.mark.parametrize("name", LONG)
    def test_a_resumed_run_is_the_uninterrupted_one(self, name):
        super().test_a_resumed_run_is_the_uninterrupted_one(name)

    @pytest.mark.parametrize("name", LONG)
    def test_float32_estimate_is_the_rounded_float64_one(self, name):
        super().test_float32_estimate_is_the_rounded_float64_one(name)

    @pytest.mark.parametrize("name", LONG)
    def test_mean_with_iid_batches_all_the_way(self, name):
        super().test_mean_with_iid_batches_all_the_way(name)

    @pytest.mark.parametrize("name", OF_COSTS)
    def test_declared_full_passes_and_table(self, name):
        super().test_declared_full_passes_and_table(name)

    @pytest.mark.parametrize(
        ("name", "points", "draw"),
        [pytest.param(one.values[0], 4, reshuffled, marks=one.marks) for one in OF_COSTS]
        + [pytest.param(one.values[0], 1, iid, marks=one.marks) for one in LONG],
    )
    def test_declared_oracles_are_what_it_computes(self, name, points, draw):
        super().test_declared_oracles_are_what_it_computes(name, points, draw)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_contract_of_the_mean_holds_with_antithetic_points(name):
    contract = OnLinear()
    contract.pairs = True
    contract.test_mean_is_the_exact_gradient(name)


# with iid batches, a running mean takes sums by weights of its own, which cost where rows are fused
@pytest.mark.parametrize("name", some(OURS, "naive", "cv", "inc", "joint", "joint_adaptive", "joint_current", "mlmc"))
def test_fused_gradients_cost_what_estimators_declare(name):
    OnLinear().test_declared_oracles_are_what_it_computes(name, 4, reshuffled)
    OnLinear().test_declared_full_passes_and_table(name)


@pytest.mark.parametrize("name", NAMES)
def test_needs_linear_predictors(name):
    with pytest.raises(UserError, match="needs a model of the catalogue with linear predictors"):
        GRADIENT.get(name)(enumerable.costly(), reshuffled(96, 32))


@pytest.mark.parametrize("name", NAMES)
def test_needs_independent_coordinates(name):
    p = with_guide(problem(), "full_rank")
    with pytest.raises(UserError, match=f"{name!r} needs the mean-field guide"):
        GRADIENT.get(name)(p, iid(p.N, 2))
