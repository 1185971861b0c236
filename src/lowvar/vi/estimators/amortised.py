"""Estimators under an amortised guide: a batch's gradient, through the encoder."""

from dataclasses import replace

import jax

from lowvar.vi.estimators.base import Estimator
from lowvar.vi.rows import OfBatch


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
