"""Programs for epochs of mapped runs: in JAX a loop over epochs; ``torch_program`` has those in PyTorch."""

import jax
import numpy as np

from lowvar.backends.compiled import compiled
from lowvar.noise import Noise, Plan

NOISE = Noise(index=0, weight=None, rows=None, eps=0, position=None)
_PLAN = Plan(index=0, weight=None, rows=None, key=0, position=None)
RUNS, REPETITIONS = (0, 0), (None, 0)  # axes of arguments with step sizes and repetitions, and with repetitions only


def mapped(backend, function, *axes):
    """``function(setting, ...)`` over step sizes (outer) and repetitions (inner).

    The axes of each further argument are ``RUNS`` (both), ``REPETITIONS`` (shared by the step sizes) or those of noise
    (shared by the step sizes; batch weights and positions are shared by the repetitions as well).
    """
    inner = backend.vmap(function, (None, *(inner for _, inner in axes)))
    return backend.vmap(inner, (0, *(outer for outer, _ in axes)))


def noise_axes(sampler):
    """The axes of an epoch's noise, or of its plan if the noise is too wide for memory."""
    return None, _PLAN if sampler.wide else NOISE


def draw(sampler, keys, epoch):
    """The noise of an epoch, or its plan, for the repetitions of ``keys``."""
    make = sampler.plan if sampler.wide else sampler.epoch
    return jax.vmap(lambda key: make(jax.random.fold_in(key, epoch)), out_axes=noise_axes(sampler)[1])(keys)


class InJax:
    """Epochs of mapped runs as one compiled loop; arguments as for ``InTorch``."""

    def __init__(self, problem, sampler, at):
        self._sampler, self._at, self._backend = sampler, at, problem.backend
        epochs = mapped(problem.backend, lambda setting, state, noise: at(setting).epoch(state, noise),
                        RUNS, noise_axes(sampler))  # fmt: skip

        def advance(state, settings, keys, first, count):
            def body(i, state):
                return epochs(settings, state, draw(sampler, keys, i))

            return jax.lax.fori_loop(first, first + count, body, state)

        self._advance = compiled(advance, donate_argnums=0)

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``; a count of 0 only compiles."""
        return self._advance(state, settings, keys, first, count)

    def cut(self, state, settings, keys, epoch, steps):
        """The state after the first ``steps`` steps of an epoch, which is not closed."""

        def some(setting, state, noise):
            return self._at(setting).some(state, jax.tree.map(lambda leaf: leaf[:steps], noise))

        mapped_steps = mapped(self._backend, some, RUNS, noise_axes(self._sampler))

        def rest(settings, state, keys, epoch):
            return mapped_steps(settings, state, draw(self._sampler, keys, epoch))

        return self._backend.jit(rest)(settings, state, keys, epoch)


def program(problem, sampler, at):
    """The program of a backend: ``InJax`` or ``InTorch``.

    Args:
        problem: an objective.
        sampler: draws the noise.
        at: ``setting -> solver``.
    """
    if problem.backend.name == "jax":
        return InJax(problem, sampler, at)
    from lowvar.studies.variational.torch_program import InTorch

    return InTorch(problem, sampler, at)


def one_epoch(solver, key, params):
    """``() -> state``: the state of a solver after one epoch from its start, with the same noise in every call.

    Args:
        solver: a ``Descent``.
        key: JAX key of the noise, which is drawn before.
        params: the parameters at the start.
    """
    sampler, problem = solver.sampler, solver.estimator.problem
    if problem.backend.name == "jax":
        noise = jax.block_until_ready((sampler.plan if sampler.wide else sampler.epoch)(key))
        epoch, state = jax.jit(solver.epoch), jax.jit(solver.init)(params)
        return lambda: jax.block_until_ready(epoch(state, noise))
    run, mapped_state = program(problem, sampler, lambda setting: solver), jax.tree.map(_alone, solver.init(params))
    keys, setting = key[None], {"step_size": problem.backend.asarray(np.zeros(1, problem.dtype))}
    return lambda: jax.tree.map(lambda leaf: leaf[0, 0], run(mapped_state, setting, keys, 0, 1))


def _alone(leaf):
    return leaf[None, None]
