"""The contract of searches: shapes, one program, its backends, values that are not finite, bad settings."""

import inspect
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.keys import named_key
from lowvar.errors import UserError
from lowvar.registry import label
from lowvar.search.problem import KINDS, Domain
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.base import CompiledSearch, generation

DIM, CHOICES = 20, 3


OPTIMUM = np.random.default_rng(0).normal(size=DIM)


def domain(name, dim=DIM, kind=None):
    kind = kind or SEARCH.about(name).domains[0]
    return Domain(kind, dim, {"binary": 2, "categorical": CHOICES}.get(kind, 0))


def supported(name):
    """The backends that a search declares."""
    return SEARCH.about(name).backends


def array_library(name):
    """A backend that a search supports."""
    return backends.get(supported(name)[0])


@cache
def search_of(name, backend=None):
    return SEARCH.get(name)(backends.get(backend) if backend else array_library(name), domain(name))


def compiled_by_jax(name):
    """The search in JAX, or a skip."""
    if "jax" not in supported(name):
        pytest.skip(f"{label(name)} does not run in JAX, which compiles the loop of this test")
    return search_of(name, "jax")


def start(name):
    return {
        "real": np.zeros(DIM),
        "binary": np.full(DIM, 0.5),
        "categorical": np.full((DIM, CHOICES), 1 / CHOICES),
    }[domain(name).kind]


def values(name):
    """A function of points, in NumPy or JAX."""
    if domain(name).kind != "real":
        return lambda x: (x * OPTIMUM[None, :]).sum(axis=1)
    return lambda x: (np.linspace(1, 30, DIM)[None, :] * (x - OPTIMUM[None, :]) ** 2).sum(axis=1)


@cache
def loop(name):
    """``key -> (state, (points, values))`` of fifty generations, as one program, and its number of traces."""
    solver, plain, traced = compiled_by_jax(name), values(name), []

    def counted(points):
        traced.append(1)
        return plain(points)

    one = generation(solver, counted)

    @jax.jit
    def run(key):
        def body(state, t):
            state, points, found = one(state, solver.draw(jax.random.fold_in(key, t)))
            return state, (points, found)

        return jax.lax.scan(body, solver.init(start(name), 0.5), jnp.arange(50))

    return run, traced


@cache
def first_generation(name):
    """A start, noise and points of its first generation, and the compiled tell and measures."""
    solver = compiled_by_jax(name)

    def first(key):
        state, noise = solver.init(start(name), 0.5), solver.draw(key)
        return state, noise, solver.ask(state, noise)

    def tell(*args):
        state = solver.tell(*args)
        return state, solver.mean(state), solver.spread(state)

    return *jax.jit(first)(jax.random.key(0)), jax.jit(tell)


def own_options(name):
    """The options of a search of lowvar's; a user's own may give these names other meanings."""
    return set(inspect.signature(SEARCH.get(name)).parameters) if name in SEARCH.own else set()


def arrays(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_close(ones, others, rtol):
    for one, other in zip(arrays(ones), arrays(others), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


class SearchContract:
    """The contract of searches: shapes, one program, its backends, values that are not finite, bad settings."""

    method: Any = None

    @pytest.fixture
    def name(self):
        return self.method

    def test_signature(self, name):
        factory = SEARCH.get(name)
        parameters = inspect.signature(factory).parameters
        assert list(parameters)[:3] == ["backend", "domain", "population"]
        assert all(p.default is not inspect.Parameter.empty for p in list(parameters.values())[2:])
        text = inspect.getdoc(factory) or ""
        for part in ("Args:", "Raises:", "References:"):
            assert text.count(part) == 1, part
        assert all(f"{p}: " in text for p in parameters)
        solver = search_of(name)
        assert (solver.name, solver.domain) == (label(name), domain(name))

    def test_shapes_and_dtypes(self, name):
        solver = search_of(name)
        state, noise, points, tell = first_generation(name)
        assert points.shape == (solver.evaluations, DIM)
        assert points.dtype == (jnp.float64 if domain(name).kind == "real" else jnp.int32)
        after, mean, spread = tell(state, noise, points, jnp.arange(float(solver.evaluations)))
        assert jax.tree.structure(after) == jax.tree.structure(state)
        assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(after)] == [
            (leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state)
        ]
        assert mean.shape == (DIM,)
        assert all(part.shape == () for part in spread)

    def test_mapped_runs_are_the_single_ones_and_trace_once(self, name):
        keys = jnp.stack([named_key(3, "contract", "noise"), named_key(4, "contract", "noise")])
        run, traced = loop(name)
        alone = [run(keys[0])[0]]
        before = len(traced)  # 1, or more where JAX's caches were cleared since another test
        alone.append(run(keys[1])[0])
        assert len(traced) == before
        together = jax.vmap(run)(keys)[0]
        for r, one in enumerate(alone):
            assert_close(one, jax.tree.map(lambda leaf: leaf[r], together), 1e-9)

    def test_a_loop_from_python_is_the_compiled_loop_in_every_backend(self, name):
        """Fifty generations, to 1e-10."""
        f = values(name)
        key = named_key(3, "contract", "noise")
        state, (points, found) = loop(name)[0](key)
        assert float(jnp.mean(found[-1])) < float(jnp.mean(found[0])), "it learns nothing"
        searches = {b: CompiledSearch(search_of(name, b), start(name), 0.5, key) for b in supported(name)}
        for backend, search in searches.items():
            for t in range(50):
                asked = search.propose()
                np.testing.assert_allclose(
                    asked, points[t], rtol=1e-10, atol=1e-10, err_msg=f"{backend}, generation {t}"
                )
                search.learn(asked, f(asked))
            after = jax.tree.leaves(backends.get(backend).to_numpy(search.state))
            for one, other in zip(jax.tree.leaves(state), after, strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-10, err_msg=backend)
            assert search.spread == pytest.approx(searches["jax"].spread, rel=1e-9)
        np.testing.assert_allclose(searches["jax"].mean, search_of(name).mean(state), rtol=1e-10, atol=1e-10)

    def test_bad_values_leave_everything_finite(self, name):
        before, noise, points, tell = first_generation(name)
        n = search_of(name).evaluations
        some, third = np.random.default_rng(0).normal(size=n), np.arange(n) % 3 == 0
        cases = {
            "some NaN": np.where(third, np.nan, some),
            "some inf": np.where(third, np.inf, some),
            "minus inf": np.where(third, -np.inf, some),
            "one number": np.where(np.arange(n) == 1, 1.0, np.nan),
            "all NaN": np.full(n, np.nan),
            "all inf": np.full(n, np.inf),
            "all equal": np.full(n, 7.0),
            "huge": 1e150 * some,
            "tiny": 1e-150 * some,
        }
        after = {what: tell(before, noise, points, jnp.asarray(found)) for what, found in cases.items()}
        for what, told in after.items():
            assert all(np.isfinite(leaf).all() for leaf in arrays(told)), what
        # a failed point counts as the worst, and an uninformative generation changes nothing
        worst = np.where(third, some[~third].max(), some)
        for what in ("some NaN", "some inf", "minus inf"):
            assert_close(after[what], tell(before, noise, points, jnp.asarray(worst)), 0)
        for what in ("all NaN", "all inf", "all equal"):
            np.testing.assert_allclose(after[what][1], search_of(name).mean(before), atol=1e-15)
            assert_close(after[what][2], search_of(name).spread(before), 1e-12)
        if backends.HOST in supported(name):
            solver, (before, noise, points) = (
                search_of(name, backends.HOST),
                jax.tree.map(np.asarray, (before, noise, points)),
            )
            for what, found in cases.items():
                with np.errstate(all="ignore"):
                    state = solver.tell(before, noise, points, found)
                    assert_close((state, solver.mean(state), solver.spread(state)), after[what], 1e-10)

    def test_deviations_are_limited(self, name):
        """By the third of a box, if the search can be limited; by those of no box, not at all."""
        if search_of(name).limit is None:
            return
        for backend in supported(name):
            search = CompiledSearch(search_of(name, backend), start(name), 0.5, named_key(3, "contract", "noise"))
            for _ in range(5):
                search.learn(points := search.propose(), values(name)(points))
            before, mean = search.deviations, search.mean
            search.limit(np.full(DIM, np.inf))
            np.testing.assert_array_equal(search.deviations, before)
            most = before * np.linspace(0.4, 1.6, DIM)
            search.limit(most)
            np.testing.assert_array_equal(search.mean, mean)
            found = search.deviations  # from 200 draws: they differ from the deviations themselves
            assert (found[most > 1.3 * before] == before[most > 1.3 * before]).all()
            assert (found < 1.3 * most).all()
            narrowed = most < 0.7 * before
            assert (found[narrowed] > 0.7 * most[narrowed]).all()

    def test_the_scale_of_values_does_not_matter(self, name):
        """Normalised values: ``f`` and ``5 f + 3`` give one run."""
        before, noise, points, tell = first_generation(name)
        found = jnp.asarray(values(name)(points), float)
        assert_close(tell(before, noise, points, found), tell(before, noise, points, 5 * found + 3), 1e-11)

    @pytest.mark.parametrize("backend", ["jax", "torch", backends.HOST])
    def test_values_may_be_integers_or_of_another_precision(self, name, backend):
        if backend not in supported(name):
            pytest.skip(f"{label(name)} does not run on {backend}")
        solver, ops = search_of(name, backend), backends.get(backend)
        before, noise, points, tell = first_generation(name)
        if backend != "jax":
            noise = ops.asarray(np.asarray(noise))
            before = solver.init(start(name), 0.5)
            points, tell = solver.ask(before, noise), solver.tell
        found = np.arange(solver.evaluations) % 5
        after = [tell(before, noise, points, ops.asarray(found.astype(t))) for t in (float, np.float32, np.int32)]
        for other in after[1:]:
            assert_close(ops.to_numpy(other), ops.to_numpy(after[0]), 1e-12)

    def test_one_dimension(self, name):
        """A short step finds the minimum."""
        dim, short = 1, {"beta": 0.2} if "beta" in own_options(name) else {}
        solver = SEARCH.get(name)(array_library(name), domain(name, dim), **short)
        x0 = {"real": np.ones(dim), "binary": np.full(dim, 0.5)}.get(solver.domain.kind, np.full((dim, CHOICES), 1 / 3))
        search = CompiledSearch(solver, x0, 0.5, named_key(0, "search", "noise"))
        for _ in range(30):
            points = search.propose()
            search.learn(points, (points**2).sum(axis=1))
        assert np.isfinite(search.mean).all()
        assert (search.mean**2).sum() < dim

    def test_it_searches_the_domains_that_the_registry_says(self, name):
        factory, ops = SEARCH.get(name), array_library(name)
        assert set(SEARCH.about(name).domains) <= set(KINDS)
        for kind in KINDS:
            where = domain(name, kind=kind)
            if kind in SEARCH.about(name).domains:
                assert factory(ops, where).domain == where
            else:
                with pytest.raises(UserError, match=f"{label(name)} searches .* domains?, not {kind} ones"):
                    factory(ops, where)

    def test_bad_settings_are_refused(self, name):
        factory, ops = SEARCH.get(name), array_library(name)
        kind = domain(name).kind
        with pytest.raises(UserError, match="dim 0: it must be at least 1"):
            factory(ops, Domain(kind, 0, CHOICES))
        for population in (1, 0, -4, 7.5):
            with pytest.raises(UserError, match=f"population {population}"):
                factory(ops, domain(name), population)

    def test_bad_options_of_our_own_are_refused(self, name):
        factory, ops, options = SEARCH.get(name), array_library(name), own_options(name)
        for step in {"beta", "step_size"} & options:
            for value in (0, -1.0, float("nan"), float("inf")):
                with pytest.raises(UserError, match=f"{step.replace('_', '.')} {value}: it must be a positive number"):
                    factory(ops, domain(name), **{step: value})
        if "baseline" in options:
            with pytest.raises(UserError, match="unknown baseline 'meen': did you mean 'mean'"):
                factory(ops, domain(name), baseline="meen")
        if "noise" in options:
            with pytest.raises(UserError, match="did you mean 'antithetic'"):
                factory(ops, domain(name), noise="antithetical")
        if "baseline" in options and domain(name).kind != "real":
            with pytest.raises(UserError, match="baseline 'centre'"):
                factory(ops, domain(name), baseline="centre")
