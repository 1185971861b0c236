"""The contract of estimators: signature, declared costs, mean, backends, resuming."""

import copy
import functools
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import antithetic, independent
from lowvar.core.optimizers import optimizer
from lowvar.registry import label
from lowvar.testing.enumerable import (  # fmt: skip
    BATCH,
    costly,
    enumerated_mean,
    epoch_noise,
    exact_gradient,
    flat,
    params,
    problem,
    run,
)
from lowvar.vi.batches import Noise, iid, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Method, Settings


def operations(compiled):
    cost = compiled.cost_analysis()
    return (cost[0] if isinstance(cost, list) else cost).get("flops", 0.0)


def flops(function, *args):
    return operations(jax.jit(function).lower(*args).compile())


@cache
def unit(make, rows):
    """Operations of a gradient and of a Hessian-vector product over some rows of a costly problem."""
    p, w = make(), params(dim=16)
    batch = jnp.arange(rows), jnp.full(rows, 1 / rows)
    return flops(p.gradient, w["mu"], *batch), flops(lambda z, *b: p.gradient_and_hvp(z, z, *b), w["mu"], *batch)


def means(runs, state):
    """``mu`` of all runs of an engine."""
    return runs.params(state, None)["mu"]


def saved(runs, state):
    """The arrays of a checkpoint, which further steps do not change."""
    return [np.array(leaf) for leaf in runs.flatten(state)]


def assert_resumed(runs, checkpoint, uninterrupted, at, epochs):
    """A state that was saved at an epoch goes on, to the bit, as the run did that it was saved from."""
    resumed = runs.advance(runs.unflatten(checkpoint), at, epochs)
    for one, other in zip(runs.flatten(resumed), uninterrupted, strict=True):
        np.testing.assert_array_equal(one, other)


DIGITS = 1e-7  # accuracy of the quadrature, relative to the gradient


@cache
def after_three_epochs(p, name):
    """The estimator on a small problem and the state of a descent with antithetic points."""
    return run(p, name, epochs=3, gaussian=antithetic())


def with_iid_memory(p, name):
    """An estimator and its state after updates of its memory with iid batches (rows drawn twice included)."""
    batches = iid(p.N, BATCH)
    estimator = GRADIENT.get(name)(p, batches)
    draw = sampler(batches, independent(), p.noise_dim, p.dtype)
    solver = descend(estimator, draw, optimizer("sgd", 0.01, backends.get("jax")))
    state, epoch = solver.init(params()), jax.jit(lambda state, key: solver.epoch(state, draw.epoch(key)))
    for k in range(4):
        state = epoch(state, jax.random.key(k))
    return estimator, state.estimator


def assert_carryover(estimator, state):
    """``E[G_t | past] - grad f(w_t) = carryover (G_{t-1} - grad f(w_{t-1}))``, over all batches and all of the noise."""
    p, mean, w = estimator.problem, enumerated_mean(estimator), params(seed=5)
    carried = estimator.properties.carryover * (flat(state["G"]) - flat(exact_gradient(p, state["params"])))
    exact = flat(exact_gradient(p, w))
    assert np.linalg.norm(carried) > 0.01 * np.linalg.norm(exact), "the error is too small for a test with power"
    assert np.abs(np.asarray(mean(state, w)) - exact - carried).max() < DIGITS * np.linalg.norm(exact)
    fresh = np.asarray(mean(estimator.init(params()), w))
    assert np.abs(fresh - exact).max() < DIGITS * np.linalg.norm(exact)  # the first estimate has no carryover


def method_named(name):
    """The method by name; an estimator that asks for variances of a pilot run is given them."""
    asks = "variances" in inspect.signature(GRADIENT.get(name)).parameters
    options = {"variances": [[0, 1.0], [9, 0.5]]} if asks else {}
    return Method(name, options)


def settings(step_sizes, **given) -> Settings:
    """A solver's settings."""
    return Settings(**{"step_sizes": step_sizes, "batch_size": 3, "epochs": 3} | given)


class EstimatorContract:
    """The contract of estimators: signature, declared costs, mean, backends, resuming.

    An estimator for some models only has a class with its own ``problem`` (seven rows, two coordinates) and ``costly``
    (96 rows, 16 coordinates, in JAX), of the same forms.
    """

    method: Any = None
    unconstrained: Mapping[str, Any] = {}
    problem: Any = staticmethod(problem)
    costly: Any = staticmethod(costly)

    @pytest.fixture
    def name(self):
        return self.method

    def test_signature(self, name):
        factory = GRADIENT.get(name)
        parameters = list(inspect.signature(factory).parameters)
        assert parameters[:2] == ["problem", "batches"]
        assert (inspect.getdoc(factory) or "").count("References:") == 1
        p = self.problem()
        batches = reshuffled(p.N, BATCH)
        estimator = factory(p, batches)
        noise = jax.tree.map(lambda leaf: leaf[0], epoch_noise(p, batches, 0))
        state = jax.eval_shape(estimator.init, params())
        gradient, after = jax.eval_shape(estimator.estimate, state, params(), noise)
        assert estimator.name == label(name)
        assert {k: v.shape for k, v in gradient.items()} == {"mu": (p.dim,), "log_sigma": (p.dim,)}
        for moved in (after, jax.eval_shape(estimator.begin_epoch, state, params())):
            assert jax.tree.structure(moved) == jax.tree.structure(state)
            assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(moved)] == [
                (leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)
            ]

    @pytest.mark.parametrize(("points", "draw"), [(1, iid), (4, reshuffled)])
    def test_declared_oracles_are_what_it_computes(self, name, points, draw):
        """Floating-point operations of an estimate are those of the declared oracle calls."""
        batches = draw(96, 32)
        estimator = GRADIENT.get(name)(self.costly(), batches)
        declared, w = estimator.properties, params(dim=16)
        noise = jax.tree.map(
            lambda leaf: leaf[0], epoch_noise(estimator.problem, batches, 0, gaussian=independent(points))
        )
        (gradient, hvp), (full, full_hvp) = unit(self.costly, 32), unit(self.costly, 96)
        compiled = jax.jit(estimator.estimate).lower(estimator.init(w), w, noise).compile()
        measured = operations(compiled)
        expected = (declared.gradients * points + declared.gradients_without_noise) * gradient + declared.hvps * hvp
        expected += declared.full_gradients_per_call * points * full + declared.full_hvps_per_call * full_hvp
        # an HVP whose gradient is not used is cheaper by that gradient; the rest is O(dim)
        least = expected - min(declared.hvps, 1) * gradient - min(declared.full_hvps_per_call, 1) * full
        # fusions may compute a little twice, but less than one gradient, which this test must detect
        assert 0.85 * least < measured < 1.25 * expected, [measured / gradient, least / gradient, expected / gradient]

    def test_declared_full_passes_and_table(self, name):
        for batches in (reshuffled(96, 32), iid(96, 32)):
            estimator = GRADIENT.get(name)(self.costly(), batches)
            p, declared, w = estimator.problem, estimator.properties, params(dim=16)
            state = estimator.init(w)
            full, _ = unit(self.costly, 96)
            for function, args, passes in (
                (estimator.begin_epoch, (state, w), declared.full_passes),
                (estimator.init, (w,), declared.full_passes_at_start),
            ):
                assert flops(function, *args) == pytest.approx(passes * full, rel=0.06, abs=0.02 * full)
            vectors = sum(leaf.size for leaf in jax.tree.leaves(state) if leaf.ndim and leaf.shape[-1] == p.dim)
            stored = declared.table_rows * declared.table_blocks * p.dim
            assert stored <= vectors <= stored + 4 * p.dim  # plus running means
            assert declared.needs_epochs <= batches.covers

    def test_oracles_of_an_epoch_add_up(self, name):
        p = self.problem()
        batches = reshuffled(p.N, BATCH)
        estimator = GRADIENT.get(name)(p, batches)
        noise, declared = epoch_noise(p, batches, 0, gaussian=antithetic()), estimator.properties
        gradients = hvps = 0.0
        for rows in np.asarray(noise.rows):
            gradients += rows * (2 * declared.gradients + declared.gradients_without_noise)
            gradients += 2 * p.N * declared.full_gradients_per_call
            hvps += rows * declared.hvps + p.N * declared.full_hvps_per_call
        epoch, start = (estimator.oracles_of_run(epochs, p.N, 2, batches.steps) for epochs in (1, 0))
        once = p.N * declared.full_passes - estimator.spared(1, 2).gradients
        assert (gradients + once, hvps - estimator.spared(1, 2).hvps) == (epoch.gradients - start.gradients, epoch.hvps)
        twice = estimator.oracles_of_run(np.array([1, 2]), p.N, 2, batches.steps)
        assert np.array_equal(np.diff(twice), [[gradients + p.N * declared.full_passes], [hvps]])
        if declared.full_gradients_per_call:
            with pytest.raises(ValueError, match="give the number of steps"):
                estimator.oracles_of_run(1, p.N, 2)

    def test_backends_agree_on_the_same_noise(self, name):
        """Antithetic points: several for each row."""
        estimator, state = after_three_epochs(self.problem(), name)
        expected = flat(state.params)
        for backend in set(estimator.properties.backends) - {"jax"}:
            _, state = run(self.problem(backend), name, epochs=3, backend=backend, gaussian=antithetic())
            found = flat(backends.get(backend).to_numpy(state.params))
            np.testing.assert_allclose(found, expected, rtol=1e-10, err_msg=backend)

    def test_float32_estimate_is_the_rounded_float64_one(self, name):
        """In each backend; in float64, another test compares the backends."""
        batches = reshuffled(7, 3)
        noise = jax.tree.map(lambda leaf: np.asarray(leaf[0]), epoch_noise(self.problem(), batches, 0))

        def gradient(backend, dtype):
            ops, estimator = backends.get(backend), GRADIENT.get(name)(self.problem(backend, dtype), batches)
            cast = [leaf.astype(dtype) if leaf.dtype.kind == "f" else leaf for leaf in noise]
            at, other = (params(backend, dtype, seed=seed) for seed in (1, 3))

            def estimate(at, other, noise):
                return estimator.estimate(estimator.begin_epoch(estimator.init(at), at), other, noise)

            found = ops.to_numpy(ops.jit(estimate)(at, other, Noise(*map(ops.asarray, cast))))
            assert {leaf.dtype for leaf in jax.tree.leaves(found) if leaf.dtype.kind == "f"} == {np.dtype(dtype)}
            return flat(found[0])

        exact = gradient("jax", np.float64)
        for backend in GRADIENT.get(name)(self.problem(), batches).properties.backends:
            rounded = gradient(backend, np.float32)
            np.testing.assert_allclose(rounded, exact, rtol=2e-5, atol=2e-5, err_msg=backend)

    def test_vectorised_runs_are_the_single_ones_and_compile_once_per_shape(self, name):
        """Also where a run is resumed: it goes on as the uninterrupted one does."""
        p, traced, grid = copy.copy(self.problem()), [], (0.03, 0.001)
        original = p.log_prior

        def counting(z):
            traced.append(1)
            return original(z)

        object.__setattr__(p, "log_prior", counting)
        many = engine.build(p, method_named(name), settings(grid, repetitions=2), seed=0, name="c")
        half = many.advance(many.init(), 0, 1)
        first = len(traced)
        assert first > 0
        checkpoint = saved(many, half)
        state = many.advance(half, 1, 2)
        together, uninterrupted = means(many, state), saved(many, state)
        many.advance(state, 3, 5)
        assert len(traced) == first
        assert_resumed(many, checkpoint, uninterrupted, 1, 2)
        assert np.isfinite(together).all()
        assert (together[0] != together[1]).all()
        one = engine.build(p, method_named(name), settings(grid[1:]), seed=0, name="c")
        np.testing.assert_allclose(means(one, one.advance(one.init(), 0, 3))[0, 0], together[1, 0], rtol=1e-12)

    pairs = False  # whether the mean is checked with antithetic points, which takes minutes

    def test_mean_is_the_exact_gradient(self, name):
        """All batches and all of the noise: fresh, after three epochs, and off the parameters of the memory."""
        estimator, late = after_three_epochs(self.problem(), name)
        p = estimator.problem
        if not estimator.properties.unbiased:
            assert GRADIENT.about(name).recursive, (
                "declare it with @declares(recursive=True), since its variance does not show its bias"
            )
            return  # see the next test
        fresh = estimator.init(params())
        mean, exact = enumerated_mean(estimator, self.pairs), flat(exact_gradient(p, w := params(seed=5)))
        states = {"fresh": fresh, "after 3 epochs": late.estimator} if jax.tree.leaves(fresh) else {"any": fresh}
        for which, state in states.items():
            error = np.abs(np.asarray(mean(state, w)) - exact).max()
            assert error < DIGITS * np.linalg.norm(exact), (which, error)

    def test_the_bias_is_the_carryover_of_the_last_error(self, name):
        made = functools.partial(GRADIENT.get(name), **self.unconstrained)
        declared = made(self.problem(), reshuffled(7, 3)).properties
        if not declared.unbiased:
            estimator, late = (
                run(self.problem(), made, epochs=3) if self.unconstrained else after_three_epochs(self.problem(), name)
            )
            assert_carryover(estimator, late.estimator)
        else:
            assert not GRADIENT.about(name).recursive
            assert declared.carryover == 0

    def test_mean_with_iid_batches_all_the_way(self, name):
        p = self.problem()
        estimator = GRADIENT.get(name)(p, iid(p.N, BATCH))
        if not estimator.properties.unbiased:
            return
        if not jax.tree.leaves(jax.eval_shape(estimator.init, params())):
            assert not estimator.properties.table_rows
            return  # without memory, the test above suffices
        estimator, state = with_iid_memory(p, name)
        exact = flat(exact_gradient(p, w := params(seed=5)))
        assert np.abs(np.asarray(enumerated_mean(estimator)(state, w)) - exact).max() < DIGITS * np.linalg.norm(exact)

    def test_a_resumed_run_is_the_uninterrupted_one(self, name):
        """In PyTorch; for JAX, the test of vectorised runs has a program that does it."""
        p = self.problem("torch")
        if "torch" not in GRADIENT.get(name)(p, reshuffled(p.N, BATCH)).properties.backends:
            pytest.skip("it does not run on torch")
        runs = engine.build(p, method_named(name), settings((0.01, 0.001), repetitions=2), seed=0, name="contract")
        half = runs.advance(runs.init(), 0, 1)
        checkpoint = saved(runs, half)
        assert_resumed(runs, checkpoint, saved(runs, runs.advance(half, 1, 2)), 1, 2)
