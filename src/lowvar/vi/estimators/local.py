"""Estimators of models whose rows have latent variables of their own, see ``OfBatch``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.variational import OfBatch, rows_of


def amortised(estimator: Estimator, problem: OfBatch) -> Estimator:
    """An estimator of a batch's mean-field gradient, through the encoder to the parameters of an ``AmortisedGuide``.

    The rows' gradients count ``N`` times their weights, so the estimate is unbiased where the batch's is.
    """
    guide, rows, whole = problem.whole.guide, problem.rows, problem.whole

    def estimate(state, params, noise):
        here, back = jax.vjp(lambda params: guide.of_batch(params, noise.index), params)
        if noise.eps.shape[-1] == whole.noise_dim:  # the noise of all rows
            noise = noise._replace(eps=noise.eps[:, rows.of(noise.index)])
        gradient, state = estimator.estimate(state, here, noise)
        counted = rows.by_row(problem.N * noise.weight)
        return back({block: value * counted for block, value in gradient.items()})[0], state

    return replace(estimator, problem=whole, estimate=estimate)


@dataclass(frozen=True)
class Shared:
    """The part of a problem that a decomposition of the gradient in what rows share reads; see ``Objective``."""

    name: str
    backend: Any
    N: int
    noise_dim: int
    dtype: Any
    blocks: Mapping[str, int]
    sites: Mapping[str, slice]

    def part(self, block: str, where: slice) -> slice:
        """See ``Objective``."""
        return where


def shared(problem: OfBatch) -> Shared:
    """The shared variables of a problem with local ones.

    Raises:
        UserError: rows share nothing.
    """
    whole, D = problem.whole, len(problem.rows.shared)
    if not D:
        raise UserError(
            f"{problem.name}: all latent variables are in the data plate: rows share none, so there is no subsampling "
            "noise to decompose"
        )
    sites, offset = {}, 0
    for site, where in sorted(whole.sites.items(), key=lambda item: item[1].start):
        if where.start in problem.rows.shared:
            sites[site] = slice(offset, offset + where.stop - where.start)
            offset = sites[site].stop
    return Shared(
        problem.name, whole.backend, whole.N, whole.noise_dim, whole.dtype, dict.fromkeys(whole.blocks, D), sites
    )


def of_shared(estimator: Estimator) -> Estimator:
    """An estimator restricted to the gradient in what rows share: all of it, unless it is of an ``OfBatch``.

    Its state, parameters and base noise are those of all rows. A row's own variables have no subsampling noise: only
    batches with the row concern them. Of an amortised guide, the rows share the encoder too.
    """
    problem: Any = estimator.problem
    rows = rows_of(problem)
    if rows is None and problem.guide.amortised:
        p = problem
        return replace(estimator, problem=Shared(p.name, p.backend, p.N, p.noise_dim, p.dtype, p.blocks, {}))
    if rows is None:
        return estimator

    def estimate(state, params, noise):
        at = rows.of(noise.index)
        state_here, params_here = jax.tree.map(
            lambda leaf: leaf[at] if leaf.shape == (rows.dim,) else leaf, (state, params)
        )
        gradient, _ = estimator.estimate(state_here, params_here, noise._replace(eps=noise.eps[:, at]))
        return {block: rows.shared_of(values) for block, values in gradient.items()}, state

    return replace(estimator, problem=shared(problem), estimate=estimate)
