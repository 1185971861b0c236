"""Constants by generalised least squares, for any points and, in eigenvectors, for tasks at the same points."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lowvar.integrals.exact.reml import Hyper, Space
from lowvar.integrals.stacked import Batched, pulled_back, times


@dataclass(frozen=True)
class Fit(Batched):
    """A fit of ``y = H beta + g + noise``, ``g ~ N(0, sigma^2 K)`` and ``noise ~ N(0, sigma^2 diag(s))``.

    Attributes:
        beta: ``(R, T)``.
        reml_error: standard errors of ``beta`` if that law is right, ``(R, T)``.
        likely_error: the part of it that the function has, without the noise.
        jackknife_error: how far ``beta`` goes when values are replaced, one at a time, by what the others say.
        weights: coefficients ``alpha`` of ``g = K alpha``, ``(R, M)``, or ``(R, M, T)`` for shared points.
        amplitude: ``sigma^2``, ``(R,)``.
        condition: 2-norm condition number of ``K + diag(s)``, ``(R,)``.
        rounding: the order of what rounding does to ``beta``, ``(R, T)``.
        calibration: mean squared standardised residual of left-out values, ``(R,)``.
        farthest: the largest such residual, ``(R,)``.
    """

    beta: torch.Tensor
    reml_error: torch.Tensor
    likely_error: torch.Tensor
    jackknife_error: torch.Tensor
    weights: torch.Tensor
    amplitude: torch.Tensor
    condition: torch.Tensor
    rounding: torch.Tensor
    calibration: torch.Tensor
    farthest: torch.Tensor

    @property
    def error(self) -> torch.Tensor:
        """Standard errors: of the function if its law is right, and what left-out values say.

        Smooth integrands are less alike than the law has it, and the first alone is too small; the second alone does
        not know what lies beyond the points.
        """
        return (self.likely_error.square() + self.jackknife_error.square()).sqrt()


def solve(matrix: torch.Tensor, noise: torch.Tensor, y: torch.Tensor, member: torch.Tensor, rule: str = "gls") -> Fit:
    """The fit with given hyper-parameters.

    With ``gls``, ``beta = (H' M^-1 H)^-1 H' M^-1 y``, ``M = K + diag(s)``: with ``s = lambda m_t`` for task ``t``
    the minimiser of eq. (8) over the function and the constants together. With ``mean`` the function is
    fitted around the sample means, and ``beta`` is the mean of what it leaves: one sweep of block-coordinate descent.

    Args:
        matrix: ``M (R, M, M)``.
        noise: ``s (R, M)`` or ``(R, 1)``.
        y: ``(R, M)``.
        member: ``H (M, T)``.
        rule: ``gls`` or ``mean``.

    References:
        Sun, Barp and Briol, section 4; Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration",
        2017.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    singular = (failed > 0)[:, None]
    factor = torch.where(singular[:, :, None], torch.eye(matrix.shape[-1]).to(factor), factor)
    design = member.expand(len(y), -1, -1)
    share = design / member.sum(0)
    half_y = _forward(factor, y[:, :, None])
    q, r = torch.linalg.qr(_forward(factor, design))
    eye = torch.eye(r.shape[-1], dtype=r.dtype, device=r.device).expand_as(r)
    if rule == "gls":
        inverse_r = torch.linalg.solve_triangular(r, eye, upper=True)
        beta = times(inverse_r, times(q.mT, half_y))
        half_left = half_y - times(q, times(q.mT, half_y))
        half_left = half_left - times(q, times(q.mT, half_left))
        influence = _backward(factor, times(q, inverse_r.mT))  # beta = influence' y
        lost = _backward(factor, q).square().sum(-1)
    else:
        mean = times(share.mT, y[:, :, None])
        half_left = _forward(factor, y[:, :, None] - times(design, mean))
        there = _backward(factor, _forward(factor, noise[:, :, None] * share))
        influence = share + there - times(share, times(design.mT, there))
        beta = times(influence.mT, y[:, :, None])
        lost = torch.zeros_like(y)
    weights = _backward(factor, half_left)[:, :, 0]
    inverse = torch.cholesky_inverse(factor)
    precision = (inverse.diagonal(dim1=-2, dim2=-1) - lost).clamp(min=torch.finfo(y.dtype).tiny)
    amplitude = half_left.square().sum((-2, -1)) / (y.shape[1] - member.shape[1])
    condition, largest = condition_number(matrix, inverse)
    condition = torch.where(singular[:, 0], torch.inf, condition)
    variance = times(factor.mT, influence).square().sum(1)
    return Fit(
        torch.where(singular, torch.nan, beta[:, :, 0]),
        (amplitude[:, None] * variance).sqrt(),
        likely_error(amplitude, variance, (noise[:, :, None] * influence.square()).sum(1)),
        (influence * (weights / precision)[:, :, None]).square().sum(1).sqrt(),
        weights,
        amplitude,
        condition,
        torch.finfo(y.dtype).eps * largest[:, None] * influence.norm(dim=1) * weights.norm(dim=1)[:, None],
        *standardised(weights, amplitude, precision),
    )


def likely_error(amplitude, variance, of_noise):
    """The part of ``beta``'s error that is the function's: the noise is left to the jackknife.

    Args:
        amplitude: ``(R,)``.
        variance: of ``beta`` in units of the amplitude, noise included, ``(R, T)``.
        of_noise: the noise's part of it, ``(R, T)``.
    """
    return (amplitude[:, None] * (variance - of_noise).clamp(min=0)).sqrt()


def condition_number(matrix: torch.Tensor, inverse: torch.Tensor, steps: int = 15) -> tuple[torch.Tensor, torch.Tensor]:
    """2-norm condition numbers and 2-norms ``(R,)`` of symmetric matrices, by power iteration."""
    largest, reciprocal = (_norm(of, steps) for of in (matrix, inverse))
    return largest * reciprocal, largest


def _norm(matrix, steps):
    index = torch.arange(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    vector = (1 + 0.5 * torch.sin(index)).expand(len(matrix), -1)[:, :, None]  # any vector without symmetries
    for _ in range(steps):
        vector = times(matrix, vector / vector.norm(dim=1, keepdim=True))
    return vector.norm(dim=(1, 2))


def standardised(weights, amplitude, precision):
    """Residuals ``weights / precision (R, M)`` of left-out values, standardised: mean square, and largest."""
    scaled = weights.square() / (amplitude[:, None] * precision)
    scaled = torch.where(amplitude[:, None] > 0, scaled, 1.0)
    return scaled.mean(-1), scaled.amax(-1).sqrt()


def _forward(factor, right):
    return torch.linalg.solve_triangular(factor, right, upper=False)


def _backward(factor, right):
    return torch.linalg.solve_triangular(factor.mT, right, upper=True)


@dataclass(frozen=True)
class Spectrum(Batched):
    """Values in the eigenvectors of ``k0 = U S U'``.

    Attributes:
        U: ``(R, m, m)``.
        S: ``(R, m)``, not negative.
        y: ``U'Y (R, m, T)``.
        h: ``U'1 (R, m)``.
    """

    U: torch.Tensor
    S: torch.Tensor
    y: torch.Tensor
    h: torch.Tensor


@dataclass(frozen=True)
class Rotated:
    """A fit with given ``B = V D V'`` and noise, in the eigenvectors of both: arrays ``(R, m, T)`` or ``(R, T)``.

    Attributes:
        V: ``(R, T, T)``.
        variance: of each entry of ``U'YV`` up to the amplitude.
        information: ``h' diag(1 / variance) h``.
        beta: constants.
        weights: ``(U'YV - h beta) / variance``.
        precision: diagonal of the projector, entry by entry.
        square: ``y'Py (R,)``.
    """

    V: torch.Tensor
    variance: torch.Tensor
    information: torch.Tensor
    beta: torch.Tensor
    weights: torch.Tensor
    precision: torch.Tensor
    square: torch.Tensor


def spectrum_of(matrix: torch.Tensor, y: torch.Tensor) -> Spectrum:
    """The eigenvectors of ``k0 (R, m, m)``, and values ``(R, m, T)`` in them."""
    S, U = torch.linalg.eigh(matrix)
    return Spectrum(U, S.clamp(min=0), times(U.mT, y), U.sum(1))


def rotate(data: Spectrum, B: torch.Tensor, shift: torch.Tensor) -> Rotated:
    """The generalised least squares fit in ``O(m T^2 + T^3)``."""
    D, V = torch.linalg.eigh(B)
    variance = data.S[:, :, None] * D.clamp(min=0)[:, None] + shift[:, None, None]
    y, h = data.y @ V, data.h[:, :, None]
    information = (h * h / variance).sum(1)
    beta = (h * y / variance).sum(1) / information
    weights = (y - h * beta[:, None]) / variance
    precision = 1 / variance - (h / variance).square() / information[:, None]
    return Rotated(V, variance, information, beta, weights, precision, (y * weights).sum((1, 2)))


def shared_objective(data: Spectrum, space: Space, level: torch.Tensor) -> Callable:
    """``(z, which) -> (value, gradient)``: the restricted likelihood of ``B (x) k0 + noise`` in ``B`` and the nugget.

    Args:
        data: values.
        space: learns the nugget, the factor of ``B``, or both.
        level: mean diagonal of ``k0``, ``(R,)``.
    """

    def evaluate(z, which):
        here = data.pick(which)
        z = z.detach().requires_grad_(True)
        with torch.enable_grad():
            B, shift = matrices(space.unpack(z, which), level[which])
        fit = rotate(here, B.detach(), shift.detach())
        degrees = here.y[0].numel() - here.y.shape[2]
        square = fit.square.clamp(min=1e-280)
        logarithms = fit.variance.log().sum((1, 2)) + fit.information.log().sum(1)
        value = 0.5 * (degrees * (square / degrees).log() + logarithms)
        bent = fit.weights @ fit.V.mT * (degrees / square).sqrt()[:, None, None]
        own = fit.V * (here.S[:, None] @ fit.precision)  # V diag(sum_i s_i P_aii)
        slope = 0.5 * (own @ fit.V.mT - bent.mT @ (here.S[:, :, None] * bent))
        trace = 0.5 * (fit.precision.sum((1, 2)) - bent.square().sum((1, 2)))
        return torch.where(value.isfinite(), value, torch.inf), pulled_back(z, (B, slope), (shift, trace))

    return evaluate


def matrices(hyper: Hyper, level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``B`` and the noise's variance, which is the nugget times the mean diagonal of ``B (x) k0``."""
    B = hyper.factor @ hyper.factor.mT
    return B, hyper.nugget * level * B.diagonal(dim1=-2, dim2=-1).mean(-1)


def solve_shared(data: Spectrum, B: torch.Tensor, shift: torch.Tensor) -> Fit:
    """As ``solve``, for shared points, in ``O(m^2 T + m T^2)``; the jackknife leaves out whole points."""
    fit = rotate(data, B, shift)
    m, tasks = data.y.shape[1:]
    amplitude = fit.square / ((m - 1) * tasks)
    influence = times(data.U, data.h[:, :, None] / fit.variance / fit.information[:, None])
    rotated = times(data.U, fit.weights)
    # (P_a)_ii: leaving out a point leaves out its values of all tasks
    inverse = data.U.square() @ (1 / fit.variance) - influence.square() * fit.information[:, None]
    inverse = inverse.clamp(min=torch.finfo(inverse.dtype).tiny)
    moved = (influence * rotated / inverse) @ fit.V.mT
    variance, size = (
        times(fit.V.square(), of[:, :, None])[:, :, 0] for of in (1 / fit.information, influence.square().sum(1))
    )
    scaled = rotated.square() / (amplitude[:, None, None] * inverse)
    scaled = torch.where(amplitude[:, None, None] > 0, scaled, 1.0)
    largest = fit.variance.amax((1, 2))
    rounding = torch.finfo(rotated.dtype).eps * largest * rotated.norm(dim=(1, 2))
    return Fit(
        times(fit.V, fit.beta[:, :, None])[:, :, 0],
        (amplitude[:, None] * variance).sqrt(),
        likely_error(amplitude, variance, shift[:, None] * size),
        moved.square().sum(1).sqrt(),
        rotated @ fit.V.mT,
        amplitude,
        largest / fit.variance.amin((1, 2)),
        rounding[:, None] * size.sqrt(),
        scaled.mean((1, 2)),
        scaled.amax((1, 2)).sqrt(),
    )
