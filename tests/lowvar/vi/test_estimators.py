"""Signatures, declared costs, backends, dtypes, compilation, tables: for every registered estimator."""

import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import independent
from lowvar.core.optimizers import optimizer
from lowvar.errors import UserError
from lowvar.testing.enumerable import costly, estimates, exact_gradient, flat, grid, params, problem, run
from lowvar.testing.estimators import EstimatorContract
from lowvar.vi.batches import fixed, iid, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Method


def test_a_backend_that_is_not_supported_is_refused(monkeypatch):
    from dataclasses import replace

    from lowvar.vi.estimators import cv as module

    original = module.cv

    def only_jax(problem, batches=None):
        made = original(problem, batches)
        return replace(made, properties=replace(made.properties, backends=("jax",)))

    monkeypatch.setattr(module, "cv", only_jax)
    spec = Method("cv")
    assert engine.make_estimator(spec, problem(), reshuffled(7, 3)).name == "cv"
    with pytest.raises(UserError, match="estimator 'cv' does not run on torch: it supports jax"):
        engine.make_estimator(spec, problem("torch"), reshuffled(7, 3))


def short(*names):
    """All estimators; those that are not named in ``make test-long`` alone."""
    return [pytest.param(one, marks=() if one in names else pytest.mark.long) for one in sorted(GRADIENT.own)]


# of the kinds of state, a table of rows and a recursion over two points
OF_KINDS = short("joint", "mlmc_adaptive")

# costs of each kind: the others count as one of these does
OF_COSTS = set(GRADIENT.own) - {"full_naive", "full_cv", "joint_glm", "mlmc_optimal", "mlmc_prox", "stl"}


class TestEstimators(EstimatorContract):
    """The whole contract; of what asks little of an estimator beyond the kind of its state, the rest is long."""

    @pytest.fixture(params=sorted(GRADIENT.own))
    def name(self, request):
        return request.param

    @pytest.mark.parametrize("name", OF_KINDS)
    def test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(self, name):
        super().test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(name)

    @pytest.mark.parametrize("name", OF_KINDS)
    def test_a_resumed_run_is_the_uninterrupted_one(self, name):
        super().test_a_resumed_run_is_the_uninterrupted_one(name)

    @pytest.mark.parametrize("name", OF_KINDS)
    def test_float32_estimate_is_the_rounded_float64_one(self, name):
        super().test_float32_estimate_is_the_rounded_float64_one(name)

    # with iid batches, memories are kept in another way
    @pytest.mark.parametrize("name", short("joint", "joint_adaptive"))
    def test_mean_with_iid_batches_all_the_way(self, name):
        super().test_mean_with_iid_batches_all_the_way(name)

    @pytest.mark.parametrize("name", short(*OF_COSTS))
    def test_declared_full_passes_and_table(self, name):
        super().test_declared_full_passes_and_table(name)

    @pytest.mark.parametrize(
        ("name", "points", "draw"),
        [pytest.param(one.values[0], 4, reshuffled, marks=one.marks) for one in short(*OF_COSTS)]
        + [pytest.param(one.values[0], 1, iid, marks=one.marks) for one in short("joint")],
    )
    def test_declared_oracles_are_what_it_computes(self, name, points, draw):
        super().test_declared_oracles_are_what_it_computes(name, points, draw)


LINEAR = ("joint_glm", "joint_glm_sigma")  # what needs a model of the catalogue with linear predictors


@pytest.mark.parametrize("batch", [3, *(pytest.param(size, marks=pytest.mark.long) for size in (1, 4, 7))])
def test_snapshot_table_equals_the_row_table(batch):
    p = problem()
    states = {}
    for table in ("snapshots", "rows"):
        _, state = run(p, "joint", epochs=6, batch=batch, table=table)
        states[table] = flat(state.params)
    # two programs, which round apart where a compiler fuses them differently
    np.testing.assert_allclose(states["snapshots"], states["rows"], rtol=1e-12)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_vector_for_each_fixed_batch_equals_one_for_each_row(backend):
    p, states = problem(backend), {}
    for table in ("batches", "snapshots"):
        _, state = run(p, "joint", epochs=6, backend=backend, scheme=fixed, table=table)
        states[table] = flat(p.backend.to_numpy(state.params))
    np.testing.assert_allclose(states["batches"], states["snapshots"], rtol=1e-12)


def test_a_table_of_batches_is_unbiased():
    """Over the batches of an epoch, which are all that there are, and base noise by quadrature: no draws."""
    import jax

    p, w = problem(rows=6), params(seed=5)
    batches = fixed(6, 3)
    estimator, state = run(p, "joint", epochs=3, scheme=fixed, table="batches")
    eps, weights = grid()
    index = batches.draw(jax.random.key(0))

    def every(estimator, state, w):
        return np.asarray(jax.jit(estimates(estimator))(state, w, index, eps))

    found = every(estimator, state.estimator, w)
    np.testing.assert_allclose(weights @ found.mean(0), flat(exact_gradient(p, w)), rtol=1e-8)

    naive, _ = run(p, "naive", epochs=0)
    near = [every(one, memory, state.params) for one, memory in ((estimator, state.estimator), (naive, naive.init(w)))]
    joint, plain = ((np.asarray(weights) @ ((one - one.mean(0)) ** 2).mean(0)).sum() for one in near)
    assert joint < 0.5 * plain  # of the variance over batches; the approximation is of second order


def test_a_table_of_batches_needs_fixed_ones():
    with pytest.raises(UserError, match="joint: table 'batches' needs fixed batches, not 'reshuffled'; use table='row"):
        GRADIENT.get("joint")(problem(), reshuffled(7, 3), table="batches")
    with pytest.raises(UserError, match="unknown table 'batches'"):
        GRADIENT.get("joint_current")(problem(), fixed(7, 3), table="batches")


def test_snapshot_table_needs_epochs():
    with pytest.raises(UserError, match="needs reshuffled or fixed batches"):
        GRADIENT.get("joint")(problem(), iid(7, 3), table="snapshots")
    estimator = GRADIENT.get("joint")(problem(), reshuffled(7, 3))
    with pytest.raises(UserError, match="built for reshuffled batches, cannot use 'iid' ones"):
        descend(
            estimator,
            sampler(iid(7, 3), independent(), 2, np.float64),
            optimizer("sgd", 0.1, backends.get("jax")),
        )


@pytest.mark.parametrize("name", LINEAR)
def test_needs_linear_predictors(name):
    with pytest.raises(UserError, match="needs a model of the catalogue with linear predictors"):
        GRADIENT.get(name)(costly(), reshuffled(96, 32))
