"""Lengthscales as the paper's code finds them."""

from collections.abc import Sequence

import numpy as np
import torch

from lowvar_studies.integrators.columns import Columns
from lowvar_studies.integrators.descent import Adam, plan
from lowvar_studies.integrators.settings import Tuning

_CONDITION = 1e6  # the largest allowed


def tune(data: Columns, tuning: Tuning, rngs: Sequence[np.random.Generator]) -> dict[str, torch.Tensor]:
    """Kernel parameters, ``(R, p)`` by name, after ``epochs`` of Adam on mini-batches.

    The objective is the sum over tasks of ``-log N(y_t; 0, k0 + c + lambda I)`` on the batch alone, with a mean of
    zero. ``lambda`` is 1e-6, or if the condition number is above 1e6 the smallest power of ten, from 1e-5 on, that
    brings it below. The rate is multiplied by ``decay`` before every step, so that ``log nu`` moves by hardly more
    than ``rate decay / (1 - decay)`` however many steps there are. What is returned is where the last gradient was
    taken, one step behind the last update, as in the published code.

    References:
        Sun, Barp and Briol, Appendix D.2, whose display lacks the inverse.
    """
    repetitions, _, dim = data.points.shape
    params = {name: value.to(data.points).repeat(repetitions, 1) for name, value in tuning.chosen.defaults(dim).items()}
    if "log_lengthscale" not in params:
        return params
    log_nu = torch.full_like(params["log_lengthscale"], float(np.log(tuning.nu)))
    used, optimiser, rate = log_nu.clone(), Adam(log_nu), tuning.rate
    cut = plan(data.blocks, tuning.batch, min(data.blocks))
    for epoch in range(tuning.epochs):
        order = torch.tensor(cut.order(rngs, shuffle=epoch > 0), device=log_nu.device)
        for batch, counts in zip(cut.batches(), cut.counts, strict=True):
            rate *= tuning.decay
            used = log_nu.clone()
            pieces = order[:, batch].split(counts, 1)
            groups = [torch.stack(pieces, 1)] if len(set(counts)) == 1 else [piece[:, None] for piece in pieces]
            slopes = [_gradient(data, tuning, params, used, rows) for rows in groups]
            optimiser.step(torch.stack(slopes).sum(0), rate)
    return params | {"log_lengthscale": 0.5 * used}


def _gradient(data: Columns, tuning: Tuning, params, log_nu: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The gradient of the objective in ``log nu``, ``(R, p)``; ``rows (R, A, b)`` are ``A`` blocks of equal size."""
    which = torch.arange(rows.shape[0], device=rows.device)[:, None, None]
    points, scores, values = data.points[which, rows], data.own[which, rows], data.values[which, rows]
    if not data.shared:
        values = values.sum(-1, keepdim=True)  # the one task that the row is an observation of
    with torch.enable_grad():
        leaf = log_nu.clone().requires_grad_()
        here = {name: value[:, None] for name, value in params.items()} | {"log_lengthscale": 0.5 * leaf[:, None]}
        k = tuning.chosen.stein(here, points, points, scores, scores) + tuning.constant
    spectrum, vectors = torch.linalg.eigh(k.detach())
    spectrum = _regularised(spectrum)[..., None, :]
    inverse = (vectors / spectrum) @ vectors.mT
    weights = inverse @ values
    slope = 0.5 * (values.shape[-1] * inverse - weights @ weights.mT)
    return torch.autograd.grad(k, leaf, slope)[0]


def _regularised(spectrum: torch.Tensor) -> torch.Tensor:
    """Eigenvalues ``(..., b)`` in rising order, plus ``lambda``."""
    least, most = spectrum[..., :1].clamp_min(0), spectrum[..., -1:]
    needed = (most - _CONDITION * least) / (_CONDITION - 1)
    powers = torch.ceil(torch.log10(needed.clamp_min(1e-5)))
    return spectrum + torch.where(needed > 0, 10.0**powers, 1e-6)
