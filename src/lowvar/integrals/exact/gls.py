"""Constants by generalised least squares, and how far they can be trusted."""

from dataclasses import dataclass, fields

import torch

from lowvar.integrals.exact.products import times


@dataclass(frozen=True)
class Fit:
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

    def pick(self, which: torch.Tensor | slice) -> "Fit":
        """These repetitions alone."""
        return Fit(*(getattr(self, field.name)[which] for field in fields(self)))

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
