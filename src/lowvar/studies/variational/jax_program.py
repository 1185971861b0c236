"""The program for epochs of mapped runs in JAX: one compiled loop over epochs."""

import jax

from lowvar.backends.compiled import compiled
from lowvar.studies.variational.programs import RUNS, draw, mapped, noise_axes


class Epochs:
    """Epochs of mapped runs as one compiled loop; arguments as in ``torch_program``."""

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


def one_epoch(solver, key, params):
    """See ``programs.one_epoch``."""
    sampler = solver.sampler
    noise = jax.block_until_ready((sampler.plan if sampler.wide else sampler.epoch)(key))
    epoch, state = compiled(solver.epoch), compiled(solver.init)(params)
    return lambda: jax.block_until_ready(epoch(state, noise))
