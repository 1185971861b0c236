"""Means, signatures, declared costs, backends, dtypes, compilation, tables: for every estimator of the library."""

from dataclasses import replace

import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import independent
from lowvar.core.optimizers import optimizer
from lowvar.errors import UserError
from lowvar.testing import estimator_contract
from lowvar.testing.enumerable import flat, problem, run
from lowvar.testing.estimators import EstimatorContract, assert_carryover
from lowvar.vi.batches import fixed, iid, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT, OURS
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Method


def short(*names):
    """All estimators; those that are not named in ``make test-long`` alone."""
    return [pytest.param(one, marks=() if one in names else pytest.mark.long) for one in sorted(OURS)]


# of the kinds of state, a table of rows and a recursion over two points
OF_KINDS, TABLE = short("joint", "mlmc_adaptive"), short("joint")

# costs of each kind: the others count as one of these does
OF_COSTS = short("naive", "cv", "inc", "joint", "joint_adaptive", "joint_current", "mlmc")


class TestEstimators(EstimatorContract):
    """The whole contract; of what asks little of an estimator beyond the kind of its state, the rest is long."""

    @pytest.fixture(params=sorted(OURS))
    def name(self, request):
        return request.param

    @pytest.mark.parametrize("name", OF_KINDS)
    def test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(self, name):
        super().test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(name)

    @pytest.mark.parametrize("name", TABLE)
    def test_a_resumed_run_is_the_uninterrupted_one(self, name):
        super().test_a_resumed_run_is_the_uninterrupted_one(name)

    @pytest.mark.parametrize("name", TABLE)
    def test_float32_estimate_is_the_rounded_float64_one(self, name):
        super().test_float32_estimate_is_the_rounded_float64_one(name)

    # with iid batches, memories are kept in another way
    @pytest.mark.parametrize("name", TABLE)
    def test_mean_with_iid_batches_all_the_way(self, name):
        super().test_mean_with_iid_batches_all_the_way(name)

    @pytest.mark.parametrize("name", OF_COSTS)
    def test_declared_full_passes_and_table(self, name):
        super().test_declared_full_passes_and_table(name)

    @pytest.mark.parametrize(
        ("name", "points", "draw"),
        [pytest.param(one.values[0], 4, reshuffled, marks=one.marks) for one in OF_COSTS]
        + [pytest.param(one.values[0], 1, iid, marks=one.marks) for one in TABLE],
    )
    def test_declared_oracles_are_what_it_computes(self, name, points, draw):
        super().test_declared_oracles_are_what_it_computes(name, points, draw)


@pytest.mark.parametrize("batch", [3, pytest.param(7, marks=pytest.mark.long)])
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


def test_a_backend_that_is_not_supported_is_refused(monkeypatch):
    from lowvar.vi.estimators import cv as module

    made = module.cv(problem())
    only_jax = replace(made, properties=replace(made.properties, backends=("jax",)))
    monkeypatch.setattr(module, "cv", lambda problem, batches=None: only_jax)
    assert engine.make_estimator(Method("cv"), problem(), reshuffled(7, 3)).name == "cv"
    with pytest.raises(UserError, match="'cv' does not run on torch"):
        engine.make_estimator(Method("cv"), problem("torch"), reshuffled(7, 3))


@pytest.mark.parametrize(
    ("name", "batches", "options", "message"),
    [
        ("joint", reshuffled(7, 3), {"table": "batches"}, "table 'batches'"),
        ("joint_current", fixed(7, 3), {"table": "batches"}, "table 'batches'"),
        ("joint", iid(7, 3), {"table": "snapshots"}, "needs reshuffled or fixed batches"),
    ],
)
def test_a_table_that_its_batches_do_not_fill(name, batches, options, message):
    with pytest.raises(UserError, match=message):
        GRADIENT.get(name)(problem(), batches, **options)


def test_a_run_draws_the_batches_that_its_estimator_is_made_for():
    estimator, draw = (
        GRADIENT.get("joint")(problem(), reshuffled(7, 3)),
        sampler(iid(7, 3), independent(), 2, np.float64),
    )
    with pytest.raises(UserError, match="cannot use 'iid'"):
        descend(estimator, draw, optimizer("sgd", 0.1, backends.get("jax")))


@pytest.mark.parametrize(
    ("recursive", "fed"),
    [
        *((name, {"base": "cv"}) for name in ("mlmc_adaptive", "storm")),
        # so wide that nothing is cut off
        *(pytest.param("mlmc_prox", wide, marks=pytest.mark.long) for wide in ({"box": [-40.0, 40.0]}, {"ball": 40.0})),
    ],
)
def test_the_bias_is_the_carryover_of_the_last_error(recursive, fed):
    """``E[G_t | past] - grad f(w_t) = carryover (G_{t-1} - grad f(w_{t-1}))``, over all batches and all of the noise.

    The contract has it with the naive gradient; here another one is fed to the recursion.
    """
    if recursive == "mlmc_adaptive":
        with pytest.raises(UserError, match="mlmc_adaptive: base = 'cv' would need"):
            run(problem(), recursive, epochs=1, **fed)
        fed = {"base": "stl"}
    estimator, late = run(problem(), recursive, epochs=3, **fed)
    assert_carryover(estimator, late.estimator)
    assert {estimator.properties.carryover} == ({0.9} if recursive == "storm" else {1.0})


def test_every_recursive_estimator_is_tested_for_its_bias():
    made = {one: GRADIENT.get(one)(problem(), iid(7, 3)).properties for one in OURS}
    assert sorted(one for one, of in made.items() if not of.unbiased) == sorted(
        one for one in OURS if GRADIENT.about(one).recursive
    )


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(OURS))
def test_the_contract_of_the_mean_holds_with_antithetic_points(name):
    contract = estimator_contract(name)()
    contract.pairs = True
    contract.test_mean_is_the_exact_gradient(name)
