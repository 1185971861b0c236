"""The program for epochs of mapped runs in JAX: one compiled loop over epochs."""

import jax

from lowvar.core.jax import compiled
from lowvar.vi.run.programs import draw, draw_one, noise_axes


class Epochs:
    """Epochs of mapped runs as one compiled loop; arguments as in ``torch_program``.

    An axis of one step size or one repetition is not mapped: a map doubles the time of a trace, and XLA's code on a CPU
    for a map over one run may take four times as long as that for the run.
    """

    def __init__(self, problem, sampler, at, cuts: bool = False):
        steps = sampler.batches.steps
        self._every = (0, steps) if cuts and steps > 1 else ()

        def epoch(setting, state, noise, part):
            solver = at(setting)
            if not part:
                return solver.epoch(state, noise)
            state = jax.lax.cond(part[0] == 0, solver.begin_epoch, lambda state: state, state)
            state = solver.steps(state, noise, part)
            return jax.lax.cond(part[1] == steps, lambda s: solver.end_epoch(s, noise.index), lambda s: s, state)

        def advance(state, settings, keys, first, count, part):
            sizes, repetitions = (len(jax.tree.leaves(one)[0]) > 1 for one in (settings, keys))

            def drawn(i):
                return draw(sampler, keys, i) if repetitions else draw_one(sampler, keys[0], i)

            def epochs(settings, state, noise):
                return epoch(settings, state, noise, part)

            if repetitions:
                epochs = jax.vmap(epochs, (None, 0, noise_axes(sampler)[1]))
            if sizes:
                epochs = jax.vmap(epochs, (0, 0, None))
            runs = tuple(slice(None) if many else 0 for many in (sizes, repetitions))
            settings = jax.tree.map(lambda leaf: leaf[runs[0]], settings)
            state = jax.tree.map(lambda leaf: leaf[runs], state)
            state = jax.lax.fori_loop(first, first + count, lambda i, state: epochs(settings, state, drawn(i)), state)
            axes = tuple(slice(None) if many else None for many in (sizes, repetitions))
            return jax.tree.map(lambda leaf: leaf[axes], state)

        self._advance = compiled(advance, donate_argnums=0)

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``; a count of 0 only compiles."""
        return self._advance(state, settings, keys, first, count, self._every)

    def cut(self, state, settings, keys, epoch, first, end):
        """The state after the steps ``first`` to ``end - 1`` of an epoch, which only its last step closes.

        The same program, with other arguments: another one would take as long to compile.
        """
        return self._advance(state, settings, keys, epoch, 1, (first, end))

    def close(self):
        """Nothing is open between calls."""


def one_epoch(solver, key, params):
    """See ``programs.one_epoch``."""
    sampler = solver.sampler
    noise = jax.block_until_ready((sampler.plan if sampler.wide else sampler.epoch)(key))
    epoch, state = compiled(solver.epoch), compiled(solver.init)(params)
    return lambda: jax.block_until_ready(epoch(state, noise))
