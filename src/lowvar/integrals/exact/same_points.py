"""Vector-valued control variates whose tasks have the same points: two small eigendecompositions."""

from dataclasses import replace

import numpy as np
import torch

from lowvar.integrals.base import Integrals
from lowvar.integrals.exact import spectral
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.hyper import Hyper, Space
from lowvar.integrals.exact.kernel_fit import joined, learn, search, space_of
from lowvar.integrals.exact.reml import pieces
from lowvar.integrals.exact.verdicts import report
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import stack

NOISE = 1e-6  # a smaller nugget is none, and then B makes no difference to the estimates
COLUMNS = 20  # with more tasks lengthscales are learnt from some of them
MANY = 15  # with more tasks B keeps its closed form


def same_points(samples: Samples, chosen: FitSettings, B: np.ndarray | None) -> Integrals:
    """All tasks at once, in ``O(m^3 + T^3 + m^2 T)``.

    The covariance of the values ``(m, T)`` is ``B (x) k0 + noise``; with ``k0 = U S U'`` and ``B = V D V'`` it is
    diagonal for ``U'YV``. Lengthscales maximise the sum of the likelihoods of the tasks alone, with amplitudes of their
    own: that of the product would be ruled by the smallest eigenvalues of ``B``, small differences of neighbouring
    tasks. Then ``B`` is ``Y'PY / (m - 1)``, and where there is noise, ``B`` and its variance are learnt by REML in the
    eigenvectors.

    Without noise ``(B (x) k0)^-1`` and the constants' design are products, and ``B`` cancels from ``beta``: the
    estimates are those of a control functional with the same kernel, for any ``B``. Values of other tasks help at the
    same points only where there is noise.

    Args:
        samples: shared ones.
        chosen: options.
        B: ``(T, T)``, of the values; None is learnt.
    """
    data = stack(samples, chosen.standardise, shared=True)
    one = torch.ones_like(data.y[:, :1, :1])
    space = space_of(data, chosen, one, False)
    hyper, ended = learn(chosen.covariance, data.columns(COLUMNS), space, chosen.steps)
    results = []
    for which, here in pieces(data):
        matrix, level = chosen.covariance.gram(here, hyper.pick(which))
        spectrum = spectral.spectrum(matrix, here.y)
        if B is None:
            factor = _closed_form(spectrum, hyper.nugget[which] * level)
        else:
            factor = here.standardised(B)
        learns_factor = B is None and 1 < data.tasks <= MANY
        fixed = Hyper({}, hyper.nugget[which], factor)
        rest = Space(fixed, (), space.nugget, learns_factor, space.spread[which])
        learnt, steps = _refined(spectrum, level, rest, chosen.steps)
        results.append((learnt, level, steps, spectral.solve(spectrum, *spectral.matrices(learnt, level))))
    hypers, levels, steps, fits = zip(*results, strict=True)
    levels, fit = torch.cat(levels), joined(fits)
    hyper = Hyper(hyper.kernel, torch.cat([h.nugget for h in hypers]), torch.cat([h.factor for h in hypers]))
    ended = replace(ended, steps=ended.steps + torch.cat(steps))

    def coefficients(task: int) -> torch.Tensor:
        relation = (hyper.factor @ hyper.factor[:, task, :, None])[:, None, :, 0]  # B[task], (R, 1, T)
        return (fit.weights * relation).sum(2)

    amplitude = (fit.amplitude * levels).sqrt()[:, None, None]
    return report(data, hyper, amplitude, space, ended, fit, chosen.covariance, coefficients)


def _closed_form(data: spectral.Spectrum, shift: torch.Tensor) -> torch.Tensor:
    """A root of the best ``B``, if the noise is alike, with a mean diagonal of one."""
    variance, h = (data.S + shift[:, None])[:, :, None], data.h[:, :, None]
    left = data.y - h * ((h * data.y / variance).sum(1) / (h * h / variance).sum(1))[:, None]
    best = left.mT @ (left / variance)
    level = best.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    eye = torch.eye(best.shape[1], dtype=best.dtype, device=best.device)
    return torch.linalg.cholesky_ex(torch.where(level > 0, best / level.clamp(min=1e-280), eye) + 1e-12 * eye).L


def _refined(data: spectral.Spectrum, level: torch.Tensor, space: Space, steps: int) -> tuple[Hyper, torch.Tensor]:
    """``B`` and the nugget by REML in the eigenvectors, and the evaluations that it took."""
    hyper, taken = space.fixed, torch.zeros(len(level), dtype=torch.long, device=level.device)
    noisy = torch.nonzero(hyper.nugget > NOISE)[:, 0]
    if len(noisy) and (space.nugget or space.factor):

        def function_of(here, which):
            return spectral.objective(data.pick(noisy[which]), here, level[noisy[which]])

        here, ended = search(function_of, space.pick(noisy), data.y.shape[1], steps)
        hyper, taken = hyper.put(noisy, here.fixed), taken.index_copy(0, noisy, ended.steps)
    return hyper, taken
