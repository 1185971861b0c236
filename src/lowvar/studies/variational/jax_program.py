"""The program for epochs of mapped runs in JAX: one compiled loop over epochs."""

import jax

from lowvar.backends.compiled import compiled
from lowvar.studies.variational.programs import RUNS, draw, mapped, noise_axes


class Epochs:
    """Epochs of mapped runs as one compiled loop; arguments as in ``torch_program``."""

    def __init__(self, problem, sampler, at, cuts: bool = False):
        self._steps = sampler.batches.steps
        self._cuts = cuts and self._steps > 1

        def advance(state, settings, keys, first, count, steps):
            epochs = mapped(problem.backend, lambda setting, state, noise: at(setting).epoch(state, noise, *steps),
                            RUNS, noise_axes(sampler))  # fmt: skip

            def body(i, state):
                return epochs(settings, state, draw(sampler, keys, i))

            return jax.lax.fori_loop(first, first + count, body, state)

        self._advance = compiled(advance, donate_argnums=0)

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``; a count of 0 only compiles."""
        return self._advance(state, settings, keys, first, count, (self._steps,) if self._cuts else ())

    def cut(self, state, settings, keys, epoch, steps):
        """The state after the first ``steps`` steps of an epoch, with an incomplete memory of the estimator.

        The same program, with another number of steps as its argument: another one would take as long to compile.
        """
        return self._advance(state, settings, keys, epoch, 1, (steps,))


def one_epoch(solver, key, params):
    """See ``programs.one_epoch``."""
    sampler = solver.sampler
    noise = jax.block_until_ready((sampler.plan if sampler.wide else sampler.epoch)(key))
    epoch, state = compiled(solver.epoch), compiled(solver.init)(params)
    return lambda: jax.block_until_ready(epoch(state, noise))
