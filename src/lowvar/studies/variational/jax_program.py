"""The program for epochs of mapped runs in JAX: one compiled loop over epochs."""

import jax

from lowvar.backends.compiled import compiled
from lowvar.studies.variational.programs import RUNS, draw, mapped, noise_axes


class Epochs:
    """Epochs of mapped runs as one compiled loop; arguments as in ``torch_program``."""

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
