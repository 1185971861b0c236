"""Signatures, declared costs, backends, dtypes, compilation, tables: for every registered estimator."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumerable import BATCH, costly, costly_linear, epoch_noise, flat, params, problem, run

from lowvar import backends, estimators
from lowvar.errors import UserError
from lowvar.estimators import GRADIENT, gradient_estimator
from lowvar.noise import Noise, antithetic, iid, independent, reshuffled, sampler
from lowvar.runs import variational as engine
from lowvar.runs.spec import MethodSpec, SolverSpec
from lowvar.solvers import descend, optimizer


def test_signature(name):
    factory = gradient_estimator(name)
    parameters = list(inspect.signature(factory).parameters)
    assert parameters[:2] == ["problem", "batches"]
    assert inspect.getdoc(factory).count("References:") == 1
    p = problem()
    estimator, state = run(p, name, epochs=1)
    noise = jax.tree.map(lambda leaf: leaf[0], epoch_noise(p, reshuffled(p.N, 3), 0))
    gradient, after, oracles = jax.jit(estimator.estimate)(state.estimator, params(), noise)
    assert estimator.name == name
    assert {k: v.shape for k, v in gradient.items()} == {"mu": (p.dim,), "log_sigma": (p.dim,)}
    assert jax.tree.structure(after) == jax.tree.structure(state.estimator)
    assert [leaf.shape for leaf in jax.tree.leaves(after)] == [leaf.shape for leaf in jax.tree.leaves(state.estimator)]
    assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [leaf.dtype for leaf in jax.tree.leaves(state.estimator)]
    assert float(oracles.gradients) >= 1


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
        estimators.gradient_estimator("jiont")


LINEAR = ("joint_glm", "joint_glm_sigma")  # what needs a model of the catalogue with linear predictors


def operations(compiled):
    cost = compiled.cost_analysis()
    return (cost[0] if isinstance(cost, list) else cost).get("flops", 0.0)


def flops(function, *args):
    return operations(jax.jit(function).lower(*args).compile())


def made_for(name, batches):
    """The estimator on each of the costly problems that it can work on."""
    if name in LINEAR:
        with pytest.raises(UserError, match="needs a model of the catalogue with linear predictors"):
            gradient_estimator(name)(costly(), batches)
    else:
        yield costly, gradient_estimator(name)(costly(), batches)
        if not batches.covers:
            return  # a running mean under iid batches takes sums by weights of its own, which cost where rows are fused
    yield costly_linear, gradient_estimator(name)(costly_linear(), batches)


@cache
def unit(make, rows):
    """Operations of a gradient and of a Hessian-vector product over some rows of a costly problem."""
    p, w = make(), params(dim=16)
    batch = jnp.arange(rows), jnp.full(rows, 1 / rows)
    return flops(p.gradient, w["mu"], *batch), flops(lambda z, *b: p.gradient_and_hvp(z, z, *b), w["mu"], *batch)


@pytest.mark.parametrize(("points", "draw"), [(1, iid), (4, reshuffled)])
def test_declared_oracles_are_what_it_computes(name, points, draw):
    """Floating-point operations of an estimate are those of the declared oracle calls."""
    batches = draw(96, 32)
    for make, estimator in made_for(name, batches):
        declared, w = estimator.properties, params(dim=16)
        noise = jax.tree.map(
            lambda leaf: leaf[0], epoch_noise(estimator.problem, batches, 0, gaussian=independent(points))
        )
        (gradient, hvp), (full, full_hvp) = unit(make, 32), unit(make, 96)
        compiled = jax.jit(estimator.estimate).lower(state := estimator.init(w), w, noise).compile()
        measured = operations(compiled)
        expected = (declared.gradients * points + declared.gradients_without_noise) * gradient + declared.hvps * hvp
        expected += declared.full_gradients_per_call * points * full + declared.full_hvps_per_call * full_hvp
        # an HVP whose gradient is not used is cheaper by that gradient; the rest is O(dim)
        least = expected - min(declared.hvps, 1) * gradient - min(declared.full_hvps_per_call, 1) * full
        # fusions may compute a little twice: less than the one gradient too many that this test must notice
        assert 0.85 * least < measured < 1.25 * expected, [make.__name__, measured / gradient, least / gradient,
                                                           expected / gradient]  # fmt: skip
        oracles = compiled(state, w, noise)[2]
        passes = declared.full_gradients_per_call * points, declared.full_hvps_per_call
        rows = 32 * (declared.gradients * points + declared.gradients_without_noise) + 96 * passes[0]
        assert float(oracles.gradients) == rows
        assert float(oracles.hvps) == 32 * declared.hvps + 96 * passes[1]


def test_declared_full_passes_and_table(name):
    for batches in (reshuffled(96, 32), iid(96, 32)):
        for make, estimator in made_for(name, batches):
            p, declared, w = estimator.problem, estimator.properties, params(dim=16)
            state = estimator.init(w)
            full, _ = unit(make, 96)
            for function, args, passes in (
                (estimator.begin_epoch, (state, w), declared.full_passes),
                (estimator.init, (w,), declared.full_passes_at_start),
            ):
                assert flops(function, *args) == pytest.approx(passes * full, rel=0.06, abs=0.02 * full)
            vectors = sum(leaf.size for leaf in jax.tree.leaves(state) if leaf.ndim and leaf.shape[-1] == p.dim)
            stored = declared.table_rows * declared.table_blocks * p.dim
            assert stored <= vectors <= stored + 4 * p.dim  # running means come on top
            assert declared.needs_epochs <= batches.covers


def test_oracles_of_an_epoch_add_up(name):
    p = problem()
    batches = reshuffled(p.N, BATCH)
    estimator = gradient_estimator(name)(p, batches)
    noise = epoch_noise(p, batches, 0, gaussian=antithetic())
    state, gradients, hvps = estimator.init(params()), 0.0, 0.0
    estimate = jax.jit(estimator.estimate)
    for t in range(batches.steps):
        _, state, oracles = estimate(state, params(), jax.tree.map(lambda leaf: leaf[t], noise))
        gradients, hvps = gradients + float(oracles.gradients), hvps + float(oracles.hvps)
    whole, start = (estimator.oracles_of_run(epochs, p.N, 2, batches.steps) for epochs in (1, 0))
    declared = estimator.properties
    assert (gradients + p.N * declared.full_passes, hvps) == (whole.gradients - start.gradients, whole.hvps)
    twice = estimator.oracles_of_run(np.array([1, 2]), p.N, 2, batches.steps)
    assert np.array_equal(np.diff(twice), [[gradients + p.N * declared.full_passes], [hvps]])
    if declared.full_gradients_per_call:
        with pytest.raises(ValueError, match="say how many steps"):
            estimator.oracles_of_run(1, p.N, 2)


def test_backends_agree_on_the_same_noise(name):
    """Antithetic points: several for each row, which all that is said of points takes part in."""
    results = {}
    for backend in gradient_estimator(name)(problem(), reshuffled(7, 3)).properties.backends:
        p = problem(backend)
        _, state = run(p, name, epochs=3, backend=backend, gaussian=antithetic())
        results[backend] = flat(backends.get(backend).to_numpy(state.params))
    for backend, values in results.items():
        np.testing.assert_allclose(values, results["jax"], rtol=1e-10, err_msg=backend)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_float32_estimate_is_the_rounded_float64_one(name, backend):
    batches, ops = reshuffled(7, 3), backends.get(backend)
    noise = jax.tree.map(lambda leaf: np.asarray(leaf[0]), epoch_noise(problem(), batches, 0))
    gradients = {}
    for dtype in (np.float32, np.float64):
        estimator = gradient_estimator(name)(problem(backend, dtype), batches)
        cast = [leaf.astype(dtype) if leaf.dtype.kind == "f" else leaf for leaf in noise]
        at, other = (params(backend, dtype, seed=seed) for seed in (1, 3))
        state = estimator.begin_epoch(estimator.init(at), at)
        gradient, after, _ = ops.compile(estimator.estimate)(state, other, Noise(*map(ops.asarray, cast)))
        found = ops.to_numpy((gradient, after))
        assert {leaf.dtype for leaf in jax.tree.leaves(found) if leaf.dtype.kind == "f"} == {np.dtype(dtype)}
        gradients[dtype] = flat(found[0])
    np.testing.assert_allclose(gradients[np.float32], gradients[np.float64], rtol=2e-5, atol=2e-5)


def means(runs, state):
    """``mu`` of all runs of an engine."""
    return runs.params(state, None)["mu"]


def test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(name):
    p, traced, grid = problem(), [], (0.03, 0.001)
    original = p.log_prior

    def counting(z):
        traced.append(1)
        return original(z)

    object.__setattr__(p, "log_prior", counting)
    many = engine.build(p, MethodSpec(estimator=name),
                        SolverSpec(step_sizes=grid, batch_size=3, epochs=3, repetitions=2), seed=0, name="c")  # fmt: skip
    state = many.advance(many.init(), 0, 1)
    first = len(traced)
    assert first > 0
    state = many.advance(state, 1, 2)
    together = means(many, state)
    many.advance(state, 3, 5)
    assert len(traced) == first
    assert np.isfinite(together).all()
    assert (together[0] != together[1]).all()
    one = engine.build(p, MethodSpec(estimator=name),
                       SolverSpec(step_sizes=grid[1:], batch_size=3, epochs=3), seed=0, name="c")  # fmt: skip
    np.testing.assert_allclose(means(one, one.advance(one.init(), 0, 3))[0, 0], together[1, 0], rtol=1e-12)


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
        gradient_estimator("joint")(problem(), iid(7, 3), table="snapshots")
    estimator = gradient_estimator("joint")(problem(), reshuffled(7, 3))
    with pytest.raises(UserError, match="made for reshuffled batches, cannot be fed 'iid' ones"):
        descend(
            estimator,
            sampler(iid(7, 3), independent(), 2, np.float64),
            optimizer("sgd", 0.1, backends.get("jax")),
        )


def test_every_row_of_the_registry_is_documented(repository):
    table = (repository / "docs" / "architecture.md").read_text()
    for name in GRADIENT:
        assert f"`{name}`" in table
