"""Signatures, declared costs, backends, dtypes, compilation, tables: for every registered estimator."""

import numpy as np
import pytest

from lowvar import backends, estimators
from lowvar.errors import UserError
from lowvar.estimators import GRADIENT
from lowvar.noise import iid, independent, reshuffled, sampler
from lowvar.solvers.descent import descend
from lowvar.solvers.optimizers import optimizer
from lowvar.studies.variational import engine
from lowvar.studies.variational.spec import MethodSpec
from lowvar.testing.enumerable import costly, flat, problem, run
from lowvar.testing.estimators import EstimatorContract


def test_a_backend_that_is_not_supported_is_refused(monkeypatch):
    from dataclasses import replace

    from lowvar.estimators.gradient import cv as module

    original = module.cv

    def only_jax(problem, batches=None):
        made = original(problem, batches)
        return replace(made, properties=replace(made.properties, backends=("jax",)))

    monkeypatch.setattr(module, "cv", only_jax)
    spec = MethodSpec(estimator="cv")
    assert engine.make_estimator(spec, problem(), reshuffled(7, 3)).name == "cv"
    with pytest.raises(UserError, match="estimator 'cv' does not run on torch: it supports jax"):
        engine.make_estimator(spec, problem("torch"), reshuffled(7, 3))


def test_unknown_name_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'joint'"):
        estimators.GRADIENT.get("jiont")


class TestEstimators(EstimatorContract):
    @pytest.fixture(params=sorted(GRADIENT.own))
    def name(self, request):
        return request.param


LINEAR = ("joint_glm", "joint_glm_sigma")  # what needs a model of the catalogue with linear predictors


@pytest.mark.parametrize("batch", [1, 3, 4, 7])
def test_snapshot_table_equals_the_row_table(batch):
    p = problem()
    states = {}
    for table in ("snapshots", "rows"):
        _, state = run(p, "joint", epochs=6, batch=batch, table=table)
        states[table] = flat(state.params)
    # two programs, which round apart where a compiler fuses them differently
    np.testing.assert_allclose(states["snapshots"], states["rows"], rtol=1e-12)


def test_snapshot_table_needs_epochs():
    with pytest.raises(UserError, match="needs reshuffled batches"):
        estimators.GRADIENT.get("joint")(problem(), iid(7, 3), table="snapshots")
    estimator = estimators.GRADIENT.get("joint")(problem(), reshuffled(7, 3))
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
