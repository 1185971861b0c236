"""Programs for epochs of mapped runs: in JAX one compiled loop; others in ``torch_program`` and ``stream_program``."""

import importlib

import jax

from lowvar.core.compiled import compiled
from lowvar.vi.sampler import Noise, Plan

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
    return jax.vmap(lambda key: draw_one(sampler, key, epoch), out_axes=noise_axes(sampler)[1])(keys)


def draw_one(sampler, key, epoch):
    """The same of the repetition of ``key``."""
    return (sampler.plan if sampler.wide else sampler.epoch)(jax.random.fold_in(key, epoch))


def program(problem, sampler, at, cuts: bool = False):
    """The program of a problem's backend for epochs of mapped runs.

    Args:
        problem: an objective.
        sampler: draws the noise.
        at: ``setting -> solver``.
        cuts: whether its last epoch may be partial; the number of an epoch's steps is then an argument.
    """
    return _epochs(problem)(problem, sampler, at, cuts)


def one_epoch(solver, key, params):
    """``() -> state``: the state of a solver after one epoch from its start, with the same noise in every call.

    Args:
        solver: a ``Descent``.
        key: JAX key of the noise, which is drawn before.
        params: the parameters at the start.
    """
    return _epochs(solver.estimator.problem).one_epoch(solver, key, params)


_MODULES = {"jax": "programs", "torch": "torch_program", "stream": "stream_program"}


def _epochs(problem):
    """The class of programs for a problem: that of its backend, unless it names another."""
    name = _MODULES[getattr(problem, "program", problem.backend.name)]
    return importlib.import_module(f"lowvar.vi.run.{name}").Epochs


class Epochs:
    """Epochs of mapped runs in JAX, as one compiled loop; arguments as for ``program``.

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

    @staticmethod
    def one_epoch(solver, key, params):
        """See ``one_epoch``."""
        sampler = solver.sampler
        noise = jax.block_until_ready((sampler.plan if sampler.wide else sampler.epoch)(key))
        epoch, state = compiled(solver.epoch), compiled(solver.init)(params)
        return lambda: jax.block_until_ready(epoch(state, noise))
