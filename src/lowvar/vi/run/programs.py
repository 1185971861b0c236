"""What the programs for epochs of mapped runs share; ``jax_program`` and ``torch_program`` hold them."""

import importlib

import jax

from lowvar.vi.batches import Noise, Plan

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
    """The program of a backend for epochs of mapped runs: ``Epochs`` of its module here.

    Args:
        problem: an objective.
        sampler: draws the noise.
        at: ``setting -> solver``.
        cuts: whether its last epoch may be partial; the number of an epoch's steps is then an argument.
    """
    return _own(problem).Epochs(problem, sampler, at, cuts)


def one_epoch(solver, key, params):
    """``() -> state``: the state of a solver after one epoch from its start, with the same noise in every call.

    Args:
        solver: a ``Descent``.
        key: JAX key of the noise, which is drawn before.
        params: the parameters at the start.
    """
    return _own(solver.estimator.problem).one_epoch(solver, key, params)


def _own(problem):
    """The module of programs for a problem: that of its backend, unless it names another."""
    name = getattr(problem, "program", problem.backend.name)
    return importlib.import_module(f"lowvar.vi.run.{name}_program")
