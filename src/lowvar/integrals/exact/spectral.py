"""All tasks at the same points: ``B (x) k0`` is diagonal in the eigenvectors of both, and nothing larger is formed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from lowvar.integrals.exact.gls import Fit, likely_error
from lowvar.integrals.exact.hyper import Hyper, Space
from lowvar.integrals.exact.products import pulled_back, times


@dataclass(frozen=True)
class Spectrum:
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

    def pick(self, which: torch.Tensor) -> "Spectrum":
        """These repetitions alone."""
        return Spectrum(self.U[which], self.S[which], self.y[which], self.h[which])


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


def spectrum(matrix: torch.Tensor, y: torch.Tensor) -> Spectrum:
    """Of ``k0 (R, m, m)`` and values ``(R, m, T)``."""
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


def objective(data: Spectrum, space: Space, level: torch.Tensor) -> Callable:
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


def solve(data: Spectrum, B: torch.Tensor, shift: torch.Tensor) -> Fit:
    """As ``gls.solve``, for shared points, in ``O(m^2 T + m T^2)``; the jackknife leaves out whole points."""
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
