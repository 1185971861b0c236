"""Least squares on functions of zero mean, with a constant for each task: the constants are the estimates."""

from dataclasses import dataclass

import numpy as np
import torch

from lowvar.estimators.integral.chains import effective_size

ILL = 1e10  # condition numbers above this are worth a look at rounding
LEAST_FREEDOM = 1e-6  # of a row whose own value decides what is fitted to it
DIRECT, STEPS = 60, 20  # unknowns up to which a singular value decomposition is cheap; power iterations for more
VAGUE = 1e-12  # length of what is left of a constant beside the features, relative, below which it means nothing


@dataclass(frozen=True)
class Regression:
    """A fit ``y = H beta + Z theta + noise`` of ``N`` data sets, for ``K`` integrands each.

    Attributes:
        beta: ``(N, T, K)``; NaN where the points are so few, or so alike, that features add up to a constant.
        error: standard errors of ``beta``, ``(N, T, K)``.
        theta: ``(N, p, K)``.
        effective: what the rows of a task are worth, from the residuals' autocorrelations, ``(N, T, K)``.
        condition: 2-norm condition number of the design with columns of length one, ``(N,)``.
        ill: whether rounding may be as large as a standard error, ``(N,)``.
    """

    beta: torch.Tensor
    error: torch.Tensor
    theta: torch.Tensor
    effective: torch.Tensor
    condition: torch.Tensor
    ill: torch.Tensor


def regress(
    features: torch.Tensor, member: torch.Tensor, y: torch.Tensor, chain: bool = False, shared: bool = False
) -> Regression:
    """Least squares, each task with the same weight: ``sum_t (1 / m_t) sum_j (y - beta_t - z . theta)^2``.

    By a QR decomposition whose last columns are the constants': what is left of them beside the features gives
    ``beta``, whether the features are independent or not. Residuals are no noise, they depend on the points as much as
    the features do, and are largest where the features are. Errors are therefore the jackknife's: each residual
    as if its row had been left out, times the row's weight in ``beta``. (With one residual variance for all rows,
    intervals at 95 % cover 70 to 90 %.) Along a chain, they are multiplied by what a row of the task is worth.

    Args:
        features: ``Z (N, M, p)``, with ``M > p + T``.
        member: ``H (M, T)``, one where a row belongs to a task, else zero.
        y: ``(N, M, K)``.
        chain: rows of a task are successive states of a Markov chain.
        shared: row ``j`` of each task has the same point; then points are left out, and not rows.

    References:
        MacKinnon and White, "Some heteroskedasticity-consistent covariance matrix estimators with improved finite
        sample properties", 1985 (HC3).
    """
    sizes, width = member.sum(0), features.shape[-1]
    weight = (member / sizes).sum(1).sqrt()[:, None]
    q, r, length, condition = decompose(weight * torch.cat([features, member.expand(len(features), -1, -1)], -1), width)
    projected = q.mT @ (weight * y)
    solution = torch.linalg.solve_triangular(r, projected, upper=True) / length.mT
    vague = r.diagonal(dim1=-2, dim2=-1)[:, width:].abs() < VAGUE
    solution[:, width:][vague] = torch.nan
    residual = y - q @ projected / weight
    inverse = torch.linalg.solve_triangular(r[:, width:, width:], q[:, :, width:].mT, upper=True)
    influence = inverse / length[:, :, width:].mT * weight.mT  # (N, T, M): beta = influence y
    effective = effective_sizes(residual, member, chain)
    worth = sizes[:, None] / effective
    if shared:
        error = (_by_point(q, influence, residual, member.shape[1]) * worth).sqrt()
    else:
        left_out = residual / (1 - q.square().sum(2, keepdim=True)).clamp(min=LEAST_FREEDOM)
        error = (influence.square() @ (left_out.square() * (member @ worth))).sqrt()
    rounding = torch.finfo(y.dtype).eps * condition[:, None] * influence.norm(dim=2) * y.norm(dim=1).amax(1)[:, None]
    ill = ((condition > ILL) & (rounding[:, :, None] > error).flatten(1).any(1)) | vague.any(1)
    return Regression(solution[:, width:], error, solution[:, :width], effective, condition, ill)


def decompose(design: torch.Tensor, features: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``Q``, ``R``, the lengths of the columns ``(N, 1, p)``, and the condition number of ``design (N, M, p)``.

    ``R`` is of columns of length one. Where one of the first ``features`` columns depends on those before it, its
    diagonal is infinite: the solution is zero there.
    """
    length = design.norm(dim=1, keepdim=True)
    length = torch.where(length > 0, length, 1.0)
    q, r = torch.linalg.qr(design / length)
    condition = _condition(r)
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    dependent = diagonal.abs() < 1e-14 * diagonal.abs().amax(-1, keepdim=True)
    dependent[:, features:] = False
    r = r + torch.diag_embed(torch.where(dependent, torch.inf, 0.0).to(r))
    return q, r, length, condition


def _condition(r: torch.Tensor) -> torch.Tensor:
    """2-norm condition numbers of triangles ``(N, p, p)``, large ones by power iterations: within a few per cent."""
    if r.shape[-1] <= DIRECT:
        singular = torch.linalg.svdvals(r)
        return singular[:, 0] / singular[:, -1]
    longest = shortest = torch.ones_like(r[:, :, :1])
    for _ in range(STEPS):
        longest = torch.nn.functional.normalize(r.mT @ (r @ longest), dim=1)
        half = torch.linalg.solve_triangular(r.mT, shortest, upper=False)
        shortest = torch.nn.functional.normalize(torch.linalg.solve_triangular(r, half, upper=True), dim=1)
    found = ((r @ longest).norm(dim=1) / (r @ shortest).norm(dim=1))[:, 0]
    return torch.where(found.isfinite(), found, torch.inf)


def _by_point(q: torch.Tensor, influence: torch.Tensor, residual: torch.Tensor, tasks: int) -> torch.Tensor:
    """The jackknife's squared errors ``(N, T, K)``, where ``tasks`` rows belong to each point and are left out at once.

    Of ``q (N, T m, p + T)``, ``influence (N, T, T m)`` and ``residual (N, T m, K)``.
    """
    rows, left = (array.unflatten(1, (tasks, -1)).transpose(1, 2) for array in (q, residual))  # (N, m, T, ..)
    freedom = (1 + LEAST_FREEDOM) * torch.eye(tasks, dtype=q.dtype, device=q.device) - rows @ rows.mT
    moved = torch.einsum("ntsm,nmsk->ntmk", influence.unflatten(2, (tasks, -1)), torch.linalg.solve(freedom, left))
    return moved.square().sum(2)


def effective_sizes(residual: torch.Tensor, member: torch.Tensor, chain: bool) -> torch.Tensor:
    """What the rows of each task are worth, ``(N, T, K)``: their number, or less (or more) along a chain."""
    if not chain:
        return member.sum(0)[None, :, None].expand(len(residual), -1, residual.shape[2])
    host, owner = residual.cpu().numpy(), member.cpu().numpy() > 0
    return residual.new_tensor(np.stack([effective_size(host[:, rows]) for rows in owner.T], axis=1))
