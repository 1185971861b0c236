"""Errors of a run's gradients at its current state: the conditional variance, and the true squared error."""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from lowvar.core.gaussian import GAUSSIAN, MAX_DIM

_SCRAMBLES = 8  # independent replicates of the reference, for its error
_APART = 2**31 - 1  # folded into keys, to separate measurements from the run
_GROUP = 64  # particles of the reference evaluated at once


class Diagnostics(NamedTuple):
    """Errors of an estimate ``G`` of ``grad F`` given the past, over fresh noise; squared norms over all parameters.

    Attributes:
        variance: ``trace Var[G | past]``.
        mean2: ``||E[G | past]||^2``.
        squared_error: ``E[||G - grad F||^2 | past]``: the variance plus the squared bias carried over from the past.
        signal: ``||grad F||^2``.
        reference_error: trace of the variance of the reference estimate of ``grad F``; the other fields are corrected
            for it.
    """

    variance: Any
    mean2: Any
    squared_error: Any
    signal: Any
    reference_error: Any


def diagnose(estimator, state, params, noise, reference, draw=lambda one: one) -> Diagnostics:
    """The errors of one run's next estimate.

    Args:
        estimator: the estimator.
        state: its state in the run.
        params: the run's parameters.
        noise: fresh noise of ``R`` estimates, with a leading axis, or the inputs from which ``draw`` makes it.
        reference: particles ``(scrambles, groups, S, dim)`` of the reference gradient.
        draw: converts one entry of ``noise`` to a ``Noise``.
    """
    problem = estimator.problem
    backend, xp = problem.backend, problem.backend.xp
    zero = xp.concat([xp.zeros_like(params[block]) for block in problem.blocks])

    def flat(gradient):
        return xp.concat([gradient[block] for block in problem.blocks])

    def add_group(total, eps):
        return total + flat(problem.full_objective_gradient(params, eps))

    def scramble(points):
        return backend.scan_or_loop(add_group, zero, points) / points.shape[0]

    def add_scramble(sums, points):
        off = scramble(points) - start
        return sums[0] + off, sums[1] + xp.sum(off * off)

    # centre both sums at one of their terms: the variation may be far smaller than the mean
    start, scrambles = scramble(reference[0]), reference.shape[0]
    off, squares = backend.scan_or_loop(add_scramble, (zero, xp.sum(zero)), reference)
    exact = start + off / scrambles
    norm2 = xp.sum(exact * exact)
    error = (squares - xp.sum(off * off) / scrambles) / (scrambles * (scrambles - 1))

    def estimate(one):
        return flat(estimator.estimate(state, params, draw(one))[0])

    centre = estimate(backend.tree_map(lambda leaf: leaf[0], noise))

    def add_draw(sums, one):
        off = estimate(one) - centre
        return sums[0] + off, sums[1] + xp.sum(off * off), sums[2] + 1

    off, squares, draws = backend.scan_or_loop(add_draw, (zero, xp.sum(zero), xp.sum(zero)), noise)
    variance = (squares - xp.sum(off * off) / draws) / (draws - 1)
    mean = centre + off / draws
    bias2 = xp.sum((mean - exact) ** 2) - variance / draws - error
    return Diagnostics(variance, xp.sum(mean * mean) - variance / draws, bias2 + variance, norm2 - error, error)


def reference_points(key, count: int, dim: int, dtype):
    """Particles of the reference gradient, ``(scrambles, groups, group size, dim)``: quasi-random where possible.

    ``count`` is rounded up, so that each scramble has a power of two.
    """
    each = 1 << max(0, -(-count // _SCRAMBLES) - 1).bit_length()
    group = min(each, _GROUP)
    gaussian = GAUSSIAN["rqmc" if dim <= MAX_DIM else "iid"](each)
    eps = jax.vmap(lambda key: gaussian.draw(key, dim, dtype))(jax.random.split(key, _SCRAMBLES))
    return eps.reshape(_SCRAMBLES, each // group, group, dim)


def first_batch(sampler, key):
    """The noise of the first batch of an epoch."""
    return sampler.with_noise(jax.tree.map(lambda leaf: leaf[0], sampler.plan(key)))


def measurer(engine, particles: int):
    """``(part of the state, keys of its repetitions, position) -> Diagnostics`` of arrays ``(sizes, repetitions)``.

    Methods share the noise, and so do step sizes.

    Args:
        engine: a ``VariationalEngine``.
        particles: number of particles of the measured estimate.
    """
    problem, backend, spec = engine.problem, engine.backend, engine.settings.diagnostics
    sampler, estimator = engine.sampler_of(particles), engine.at(1.0).estimator
    batch = jax.jit(partial(first_batch, sampler))

    @jax.jit
    def drawn(key, position):
        key = jax.random.fold_in(jax.random.fold_in(key, _APART), position)
        for_noise, for_reference = jax.random.split(key)
        reference = reference_points(for_reference, spec.reference, problem.noise_dim, problem.dtype)
        return jax.random.split(for_noise, spec.draws), reference

    @backend.jit
    def measure(part, keys, position):
        def of_run(run):
            solver, repetition = run
            draws, reference = drawn(keys[repetition], position)
            return diagnose(estimator, solver.estimator, solver.params, draws, backend.from_jax(reference),
                            lambda key: backend.from_jax(batch(key)))  # fmt: skip

        sizes, repetitions = next(iter(part.params.values())).shape[:2]
        flat = backend.tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), part)
        found = backend.map(of_run, (flat, np.tile(np.arange(repetitions), sizes)))
        return backend.tree_map(lambda leaf: leaf.reshape(sizes, repetitions), found)

    return measure
