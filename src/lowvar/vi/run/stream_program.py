"""The program for epochs of one run whose rows are read from files: a compiled loop for each window of batches."""

from typing import Any

import jax
import jax.numpy as jnp

from lowvar.core.jax import compiled
from lowvar.core.keys import numpy_generator
from lowvar.core.windows import windows
from lowvar.vi.batches import Noise

_HELD = 2**21  # maximum number of base noise values held for a window


class Epochs:
    """Epochs of a single run; arguments as for ``engine.Epochs``, states and settings with two axes of length 1.

    Between windows the state waits for the rows, which a thread reads while a window is computed. An estimator's full
    pass at the start of an epoch is a pass over the files, outside of compiled programs.
    """

    def __init__(self, problem, sampler, at, cuts: bool):
        self._problem, self._sampler, self._at = problem, sampler, at
        self._advance = compiled(self._steps, donate_argnums=0)
        self._open: tuple[Any, ...] = (None,)  # where the last call ended within an epoch, and the window there

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``; programs are compiled where they are first needed."""
        for epoch in range(first, first + count):
            state = self.cut(state, settings, keys, epoch, 0, self._sampler.batches.steps)
        return state

    def cut(self, state, settings, keys, epoch, first, end):
        """The state after the steps ``first`` to ``end - 1`` of an epoch.

        Steps that continue where the last call ended go on with its window; others read the epoch from its start.
        """
        setting, batches = jax.tree.map(lambda leaf: leaf[0], settings), self._sampler.batches
        for_rows, for_eps = jax.random.split(jax.random.fold_in(keys[0], epoch))
        state = jax.tree.map(lambda leaf: leaf[0, 0], state)
        if first == 0:
            state = self._at(setting).begin_epoch(state)
        state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)  # its memory is reused
        (place, *here), self._open = self._open, (None,)
        if place != (epoch, first):
            stream = windows(self._problem.source, batches.size, numpy_generator(for_rows), self._problem.checked)
            here = [0, next(stream), stream]
        at, window, stream = here  # the window's first step
        while True:
            part = max(first - at, 0), min(end - at, window.steps)
            if part[0] < part[1]:
                rows = {name: of.reshape(-1, batches.size, *of.shape[1:]) for name, of in window.rows.items()}
                state = jax.block_until_ready(self._advance(state, setting, rows, for_eps, at, *part))
            if at + window.steps >= end:
                break
            at, window = at + window.steps, next(stream)
        if end < batches.steps:
            self._open = (epoch, end), at, window, stream
        return jax.tree.map(lambda leaf: leaf[None, None], state)

    def close(self):
        """Ends the reading of an epoch within which the last call ended, and frees its window."""
        if len(self._open) > 1:
            self._open[-1].close()
        self._open = (None,)

    def _steps(self, state, setting, rows, key, first, begin, end):
        """The state after steps with the batches ``begin`` to ``end - 1`` of ``rows``, ``{name: (steps, B, ...)}``."""
        sampler, solver = self._sampler, self._at(setting)
        batches, N = sampler.batches, self._problem.N
        held = len(next(iter(rows.values())))
        short = N - (batches.steps - 1) * batches.size  # rows of the last batch

        def draw(i):
            return sampler.gaussian.draw(jax.random.fold_in(key, first + i), sampler.dim, sampler.dtype)

        wide = held * sampler.gaussian.particles * sampler.dim > _HELD
        at = draw if wide else jax.vmap(draw)(jnp.arange(held)).__getitem__

        def body(i, state):
            position = first + i
            real = jnp.where(position == batches.steps - 1, short, batches.size).astype(sampler.dtype)
            weight = jnp.where(jnp.arange(batches.size) < real, 1 / real, 0).astype(sampler.dtype)
            batch = {name: of[i] for name, of in rows.items()}
            return solver.step(state, Noise(batch, weight, real, at(i), position))

        return jax.lax.fori_loop(begin, end, body, state)
