"""The program for epochs of mapped runs in JAX: one compiled loop over epochs."""

import jax

from lowvar.backends.compiled import compiled
from lowvar.studies.variational.programs import RUNS, draw, draw_one, mapped, noise_axes


class Epochs:
    """Epochs of mapped runs as one compiled loop; arguments as in ``torch_program``.

    With ``cuts`` there is one run, which is not mapped: a map over a single run doubles the time of a trace.
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
            epochs = mapped(problem.backend, lambda setting, state, noise: epoch(setting, state, noise, part),
                            RUNS, noise_axes(sampler))  # fmt: skip

            def body(i, state):
                return epochs(settings, state, draw(sampler, keys, i))

            return jax.lax.fori_loop(first, first + count, body, state)

        def alone(state, settings, keys, first, count, part):
            setting, run = jax.tree.map(lambda leaf: leaf[0], settings), jax.tree.map(lambda leaf: leaf[0, 0], state)

            def body(i, run):
                return epoch(setting, run, draw_one(sampler, keys[0], i), part)

            run = jax.lax.fori_loop(first, first + count, body, run)
            return jax.tree.map(lambda leaf: leaf[None, None], run)

        advance = alone if cuts else advance
        self._advance = compiled(advance, donate_argnums=0)

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``; a count of 0 only compiles."""
        return self._advance(state, settings, keys, first, count, self._every)

    def cut(self, state, settings, keys, epoch, first, end):
        """The state after the steps ``first`` to ``end - 1`` of an epoch, which only its last step closes.

        The same program, with other arguments: another one would take as long to compile.
        """
        return self._advance(state, settings, keys, epoch, 1, (first, end))


def one_epoch(solver, key, params):
    """See ``programs.one_epoch``."""
    sampler = solver.sampler
    noise = jax.block_until_ready((sampler.plan if sampler.wide else sampler.epoch)(key))
    epoch, state = compiled(solver.epoch), compiled(solver.init)(params)
    return lambda: jax.block_until_ready(epoch(state, noise))
