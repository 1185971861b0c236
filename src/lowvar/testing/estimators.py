"""What every estimator promises: signature, declared costs, mean, backends, resuming."""

import functools
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar import backends
from lowvar.errors import UserError
from lowvar.estimators import GRADIENT
from lowvar.noise import antithetic, iid, independent, reshuffled, sampler
from lowvar.registry import label
from lowvar.solvers import descend, optimizer
from lowvar.studies.variational import engine
from lowvar.studies.variational.spec import MethodSpec, SolverSpec
from lowvar.testing.enumerable import (
    BATCH,
    costly,
    costly_linear,
    enumerated_mean,
    epoch_noise,
    exact_gradient,
    flat,
    params,
    problem,
    run,
)  # fmt: skip


def operations(compiled):
    cost = compiled.cost_analysis()
    return (cost[0] if isinstance(cost, list) else cost).get("flops", 0.0)


def flops(function, *args):
    return operations(jax.jit(function).lower(*args).compile())


def made_for(name, batches):
    """The estimator on each of the costly problems that it can work on."""
    factory = GRADIENT.get(name)
    try:
        general = factory(costly(), batches)
    except UserError as error:
        if "needs a model of the catalogue with linear predictors" not in str(error):
            raise
    else:
        yield costly, general
        if not batches.covers:
            return  # a running mean under iid batches takes sums by weights of its own, which cost where rows are fused
    yield costly_linear, factory(costly_linear(), batches)


@cache
def unit(make, rows):
    """Operations of a gradient and of a Hessian-vector product over some rows of a costly problem."""
    p, w = make(), params(dim=16)
    batch = jnp.arange(rows), jnp.full(rows, 1 / rows)
    return flops(p.gradient, w["mu"], *batch), flops(lambda z, *b: p.gradient_and_hvp(z, z, *b), w["mu"], *batch)


def means(runs, state):
    """``mu`` of all runs of an engine."""
    return runs.params(state, None)["mu"]


DIGITS = 1e-7  # of the quadrature, relative to the gradient


def with_iid_memory(p, name):
    """An estimator whose memory iid batches have kept up (rows drawn twice included), and its state."""
    batches = iid(p.N, BATCH)
    estimator = GRADIENT.get(name)(p, batches)
    draw = sampler(batches, independent(), p.dim, p.dtype)
    solver = descend(estimator, draw, optimizer("sgd", 0.01, backends.get("jax")))
    state, epoch = solver.init(params()), jax.jit(solver.epoch)
    for k in range(4):
        state = epoch(state, draw.epoch(jax.random.key(k)))
    return estimator, state.estimator


def assert_keeps(estimator, state):
    """``E[G_t | past] - grad f(w_t) = keeps (G_{t-1} - grad f(w_{t-1}))``, over all batches and all of the noise."""
    p, mean, w = estimator.problem, enumerated_mean(estimator), params(seed=5)
    kept = estimator.properties.keeps * (flat(state["G"]) - flat(exact_gradient(p, state["params"])))
    exact = flat(exact_gradient(p, w))
    assert np.linalg.norm(kept) > 0.01 * np.linalg.norm(exact), "no error that could be missed"
    assert np.abs(np.asarray(mean(state, w)) - exact - kept).max() < DIGITS * np.linalg.norm(exact)
    fresh = np.asarray(mean(estimator.init(params()), w))
    assert np.abs(fresh - exact).max() < DIGITS * np.linalg.norm(exact)  # the first estimate keeps nothing


def settings(**values):
    """The settings of runs."""
    return SolverSpec.model_validate(values)


def of(name):
    """The method of a spec."""
    return MethodSpec.of(name, {}, where="contract")


class EstimatorContract:
    """What every estimator promises: signature, declared costs, mean, backends, resuming."""

    method: Any = None
    unconstrained: Mapping[str, Any] = {}

    @pytest.fixture
    def name(self):
        return self.method

    def test_signature(self, name):
        factory = GRADIENT.get(name)
        parameters = list(inspect.signature(factory).parameters)
        assert parameters[:2] == ["problem", "batches"]
        assert (inspect.getdoc(factory) or "").count("References:") == 1
        p = problem()
        estimator, state = run(p, name, epochs=1)
        noise = jax.tree.map(lambda leaf: leaf[0], epoch_noise(p, reshuffled(p.N, 3), 0))
        gradient, after, oracles = jax.jit(estimator.estimate)(state.estimator, params(), noise)
        assert estimator.name == label(name)
        assert {k: v.shape for k, v in gradient.items()} == {"mu": (p.dim,), "log_sigma": (p.dim,)}
        assert jax.tree.structure(after) == jax.tree.structure(state.estimator)
        assert [leaf.shape for leaf in jax.tree.leaves(after)] == [
            leaf.shape for leaf in jax.tree.leaves(state.estimator)
        ]
        assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [
            leaf.dtype for leaf in jax.tree.leaves(state.estimator)
        ]
        assert float(oracles.gradients) >= 1

    @pytest.mark.parametrize("draw", [reshuffled, iid])
    @pytest.mark.parametrize("points", [1, 4])
    def test_declared_oracles_are_what_it_computes(self, name, points, draw):
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

    def test_declared_full_passes_and_table(self, name):
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

    def test_oracles_of_an_epoch_add_up(self, name):
        p = problem()
        batches = reshuffled(p.N, BATCH)
        estimator = GRADIENT.get(name)(p, batches)
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

    @pytest.mark.parametrize("method", ["sgd", "adam"])
    @pytest.mark.parametrize("gaussian", [independent(), antithetic()], ids=["iid", "antithetic"])
    def test_backends_agree_on_the_same_noise(self, name, gaussian, method):
        results = {}
        for backend in GRADIENT.get(name)(problem(), reshuffled(7, 3)).properties.backends:
            p = problem(backend)
            _, state = run(p, name, epochs=4, backend=backend, gaussian=gaussian, method=method)
            results[backend] = flat(backends.get(backend).to_numpy(state.params))
        for backend, values in results.items():
            np.testing.assert_allclose(values, results["jax"], rtol=1e-10, err_msg=backend)

    @pytest.mark.parametrize("backend", ["jax", "torch"])
    def test_float32_follows_float64(self, name, backend):
        results = {}
        for dtype in (np.float32, np.float64):
            p = problem(backend, dtype)
            _, state = run(p, name, epochs=3, backend=backend)
            values = backends.get(backend).to_numpy(state.params)
            assert {v.dtype for v in values.values()} == {np.dtype(dtype)}
            results[dtype] = flat(values)
        # float32 noise is not rounded float64 noise: only the scale can be compared
        assert np.isfinite(results[np.float32]).all()

    def test_float32_estimate_is_the_rounded_float64_one(self, name):
        batches = reshuffled(7, 3)
        noise = jax.tree.map(lambda leaf: leaf[0], epoch_noise(problem(), batches, 0))
        gradients = {}
        for dtype in (np.float32, np.float64):
            p = problem(dtype=dtype)
            estimator = GRADIENT.get(name)(p, batches)
            cast = jax.tree.map(
                lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, noise
            )
            state = estimator.begin_epoch(estimator.init(params(dtype=dtype)), params(dtype=dtype))
            gradients[dtype] = flat(jax.jit(estimator.estimate)(state, params(dtype=dtype, seed=3), cast)[0])
        np.testing.assert_allclose(gradients[np.float32], gradients[np.float64], rtol=2e-5, atol=2e-5)

    def test_compiles_once_per_shape(self, name):
        p = problem()
        traced = []
        original = p.log_prior

        def counting(z):
            traced.append(1)
            return original(z)

        object.__setattr__(p, "log_prior", counting)
        solver = settings(step_sizes=(0.01, 0.001), batch_size=3, epochs=3, repetitions=2)
        runs = engine.build(p, of(name), solver, seed=0, name="contract")
        state = runs.advance(runs.init(), 0, 1)
        first = len(traced)
        assert first > 0
        for start, count in ((1, 2), (3, 5), (8, 1)):
            state = runs.advance(state, start, count)
        assert len(traced) == first
        assert np.isfinite(means(runs, state)).all()

    def test_vectorised_runs_are_the_single_ones(self, name):
        p = problem()
        grid = (0.03, 0.001)
        many = engine.build(p, of(name),
                            settings(step_sizes=grid, batch_size=3, epochs=3, repetitions=2), seed=0, name="c")  # fmt: skip
        together = means(many, many.advance(many.init(), 0, 3))
        for i, step_size in enumerate(grid):
            one = engine.build(p, of(name),
                               settings(step_sizes=(step_size,), batch_size=3, epochs=3), seed=0, name="c")  # fmt: skip
            np.testing.assert_allclose(means(one, one.advance(one.init(), 0, 3))[0, 0], together[i, 0], rtol=1e-12)

    @pytest.mark.parametrize("pair", [False, True], ids=["one point", "antithetic"])
    def test_mean_is_the_exact_gradient(self, name, pair):
        """All batches and all of the noise: fresh, after three epochs, and off the parameters of the memory."""
        p = problem()
        estimator, late = run(p, name, epochs=3, gaussian=antithetic() if pair else independent())
        if not estimator.properties.unbiased:
            assert GRADIENT.about(name).recursive, (
                "say so with @declares(recursive=True), for no variance shows its bias"
            )
            return  # see the next test
        fresh = estimator.init(params())
        mean, exact = enumerated_mean(estimator, pair), flat(exact_gradient(p, w := params(seed=5)))
        states = {"fresh": fresh, "after 3 epochs": late.estimator} if jax.tree.leaves(fresh) else {"any": fresh}
        for which, state in states.items():
            error = np.abs(np.asarray(mean(state, w)) - exact).max()
            assert error < DIGITS * np.linalg.norm(exact), (which, error)

    def test_the_bias_is_what_is_kept_of_the_last_error(self, name):
        made = functools.partial(GRADIENT.get(name), **self.unconstrained)
        estimator, late = run(problem(), made, epochs=3)
        if not estimator.properties.unbiased:
            assert_keeps(estimator, late.estimator)
        else:
            assert not GRADIENT.about(name).recursive
            assert estimator.properties.keeps == 0

    def test_mean_with_iid_batches_all_the_way(self, name):
        p = problem()
        estimator, state = with_iid_memory(p, name)
        if not estimator.properties.unbiased:
            return
        if not jax.tree.leaves(state):
            assert not estimator.properties.table_rows
            return  # it has no memory: the test above has said it all
        exact = flat(exact_gradient(p, w := params(seed=5)))
        assert np.abs(np.asarray(enumerated_mean(estimator)(state, w)) - exact).max() < DIGITS * np.linalg.norm(exact)

    @pytest.mark.parametrize("backend", ["jax", "torch"])
    def test_a_resumed_run_is_the_uninterrupted_one(self, name, backend):
        p = problem(backend)
        if backend not in GRADIENT.get(name)(p, reshuffled(p.N, BATCH)).properties.backends:
            pytest.skip(f"it does not run on {backend}")
        solver = settings(step_sizes=(0.01, 0.001), batch_size=BATCH, epochs=4, repetitions=2)
        runs = engine.build(p, of(name), solver, seed=0, name="contract")
        half = runs.flatten(runs.advance(runs.init(), 0, 2))
        ends = [runs.flatten(runs.advance(runs.unflatten(half), 2, 2)),
                runs.flatten(runs.advance(runs.advance(runs.init(), 0, 2), 2, 2))]  # fmt: skip
        for one, other in zip(*ends, strict=True):
            np.testing.assert_array_equal(one, other)
