"""Programs for epochs of mapped runs: in JAX a loop over epochs, in PyTorch a few steps per program."""

import jax
import numpy as np

from lowvar.backends.compiled import compiled
from lowvar.noise import Noise, Plan

_UNROLL = 6  # steps that PyTorch runs as one program
_NOISE = Noise(index=0, weight=None, rows=None, eps=0, position=None)
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
    return None, _PLAN if sampler.wide else _NOISE


def draw(sampler, keys, epoch):
    """The noise of an epoch, or its plan, for the repetitions of ``keys``."""
    make = sampler.plan if sampler.wide else sampler.epoch
    return jax.vmap(lambda key: make(jax.random.fold_in(key, epoch)), out_axes=noise_axes(sampler)[1])(keys)


def _in_jax(problem, sampler, at):
    def epoch(setting, state, noise):
        return at(setting).epoch(state, noise)

    epochs = mapped(problem.backend, epoch, RUNS, noise_axes(sampler))

    def advance(state, settings, keys, first, count):
        def body(i, state):
            return epochs(settings, state, draw(sampler, keys, i))

        return jax.lax.fori_loop(first, first + count, body, state)

    return compiled(advance, donate_argnums=0)


def _in_torch(problem, sampler, at):
    backend = problem.backend
    drawn = jax.jit(lambda keys, epoch: draw(sampler, keys, epoch))
    eps = jax.jit(jax.vmap(jax.vmap(lambda key: sampler.gaussian.draw(key, problem.dim, problem.dtype))))

    def begin(setting, state):
        return at(setting).begin_epoch(state)

    def some(setting, state, noise):
        solver = at(setting)
        return backend.scan_or_loop(lambda state, noise: solver.step(state, noise), state, noise)

    def end(setting, state, index):
        return at(setting).end_epoch(state, index)

    begin = backend.compile(mapped(backend, begin, RUNS))
    some = backend.compile(mapped(backend, some, RUNS, (None, _NOISE)))
    end = backend.compile(mapped(backend, end, RUNS, REPETITIONS))

    def some_noise(noise, steps):
        """The noise of a few steps, drawn from the plan if there is one."""
        points = noise.eps[:, steps] if isinstance(noise, Noise) else eps(noise.key[:, steps])
        parts = noise.index[:, steps], noise.weight[steps], noise.rows[steps], points, noise.position[steps]
        return Noise(*(backend.asarray(np.asarray(part)) for part in parts))

    def advance(state, settings, keys, first, count):
        if count == 0:  # traces the programs by an epoch whose result is discarded
            advance(state, settings, keys, first, 1)
            return state
        for i in range(first, first + count):
            noise = drawn(keys, i)
            state = begin(settings, state)
            for t in range(0, sampler.batches.steps, _UNROLL):
                state = some(settings, state, some_noise(noise, slice(t, t + _UNROLL)))
            state = end(settings, state, backend.asarray(np.asarray(noise.index)))
        return state

    return advance


ADVANCE = {"jax": _in_jax, "torch": _in_torch}
