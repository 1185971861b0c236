"""Restricted likelihood of hyper-parameters: the constants and the amplitude are profiled out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from lowvar.integrals.exact.hyper import Hyper, Space
from lowvar.integrals.exact.products import pulled_back, times
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.stacked import Stacked

CHUNK = {"cpu": 2**18}  # entries of the kernel matrices worked on at a time: they should stay in the cache
CHUNK_ELSEWHERE = 2**26


@dataclass(frozen=True)
class Covariance:
    """How values vary together: the Stein kernel of a base kernel, and of additive quadratic polynomials if wanted.

    Kernels that decay leave a fit at its constant where there are no points, far out above all. The trend is the span
    of ``l_j(x)`` and ``1 + x_j l_j(x)``, images of constants and of ``x_j`` under either operator; its weight is a
    hyper-parameter, ``log_trend``.

    Attributes:
        kernel: the base kernel.
        operator: 1 for ``div u + u . l``, 2 for ``Lap u + grad u . l``.
        trend: whether there is one.
    """

    kernel: Kernel
    operator: int = 1
    trend: bool = False

    def defaults(self, dim: int) -> dict[str, torch.Tensor]:
        """Of the parameters, without axes of repetitions."""
        trend = {"log_trend": torch.zeros(1, dtype=torch.float64)} if self.trend else {}
        return self.kernel.defaults(dim) | trend

    def between(self, params, x, y, lx, ly) -> torch.Tensor:
        """The scalar Stein kernel at all pairs, ``(R, n, m)``."""
        own = {name: value for name, value in params.items() if name != "log_trend"}
        scalar = (self.kernel.stein if self.operator == 1 else self.kernel.stein2)(own, x, y, lx, ly)
        if not self.trend:
            return scalar
        left, right = torch.cat([lx, 1 + x * lx], -1), torch.cat([ly, 1 + y * ly], -1)
        return torch.baddbmm(scalar, left * params["log_trend"].exp()[:, None], right.mT)

    def gram(self, data: Stacked, hyper: Hyper) -> tuple[torch.Tensor, torch.Tensor]:
        """``B[t_i, t_j] k0(x_i, x_j)`` of all rows, ``(R, M, M)``, and its mean diagonal ``(R,)``.

        Only the scores of a point's own target enter: the functions ``K0(., x_tj) e_t``, one for each value, span the
        minimiser of eq. (8).

        References:
            Sun, Barp and Briol, special cases I and II, and Theorem 4.1.
        """
        matrix = self.between(hyper.kernel, data.x, data.x, data.scores, data.scores)
        if data.member.shape[1] > 1:
            rows = data.member @ hyper.factor
            matrix = matrix * (rows @ rows.mT)
        return matrix, matrix.diagonal(dim1=-2, dim2=-1).mean(-1)


def restricted(
    matrix: torch.Tensor, y: torch.Tensor, member: torch.Tensor, slopes: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Negative log restricted likelihood of ``y = H beta + error``, summed over the columns ``y`` of ``Y``.

    Errors have covariance ``sigma^2 M``; ``beta`` and ``sigma`` are profiled out, column by column.

    Args:
        matrix: ``M (R, M, M)``.
        y: ``(R, M, S)``.
        member: ``H (M, q)``.
        slopes: whether derivatives are wanted.

    Returns:
        Values ``(R,)``, infinite where ``M`` is not positive definite, and derivatives in ``M``, ``(R, M, M)``.

    References:
        Harville, "Maximum likelihood approaches to variance component estimation and to related problems", 1977.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    factor = torch.where((failed > 0)[:, None, None], eye, factor)
    columns, (rows, constants) = y.shape[2], member.shape
    half = torch.linalg.solve_triangular(factor, torch.cat([member.expand(len(y), -1, -1), y], 2), upper=False)
    design, half = half.split([constants, columns], 2)
    small = torch.linalg.cholesky_ex(design.mT @ design).L
    unit = torch.linalg.solve_triangular(small, design.mT, upper=False)  # orthonormal rows
    half = half - times(unit.mT, times(unit, half))
    amplitude = (half.square().sum(1) / (rows - constants)).clamp(min=1e-280)
    value = 0.5 * (rows - constants) * amplitude.log().sum(1)
    value = value + columns * (_log_diagonal(factor) + _log_diagonal(small))
    value = torch.where((failed > 0) | ~value.isfinite(), torch.inf, value)
    if not slopes:
        return value, None
    thin = torch.cat([columns**0.5 * unit.mT, half / amplitude.sqrt()[:, None]], 2)
    thin = torch.linalg.solve_triangular(factor.mT, thin, upper=True)
    return value, torch.baddbmm(torch.cholesky_inverse(factor), thin, thin.mT, beta=columns / 2, alpha=-0.5)


def objective(covariance: Covariance, data: Stacked, space: Space, origin: torch.Tensor) -> Callable:
    """``(z (A, p), which (A,), slopes=True) -> (value (A,), gradient (A, p))``; autodiff through the kernel alone.

    Args:
        covariance: kernel and operator.
        data: samples.
        space: of ``N`` problems.
        origin: the repetition of each, ``(N,)``.
    """

    def part(z, which, slopes):
        here = data.pick(origin[which])
        value, gradient = space.prior(z.detach(), which)
        z = z.detach().requires_grad_(slopes)
        with torch.set_grad_enabled(slopes):
            hyper = space.unpack(z, which)
            matrix, level = covariance.gram(here, hyper)
            shift = hyper.nugget * level
        noisy = shifted(matrix.detach(), shift.detach()[:, None] + here.ridge)
        likelihood, slope = restricted(noisy, here.y, here.member, slopes)
        if slope is not None:
            trace = slope.diagonal(dim1=-2, dim2=-1).sum(-1)
            gradient = gradient + pulled_back(z, (matrix, slope), (shift, trace))
        return value + likelihood, gradient

    def evaluate(z, which, slopes=True):
        parts = zip(z.split(_at_once(data)), which.split(_at_once(data)), strict=True)
        values, gradients = zip(*(part(*piece, slopes) for piece in parts), strict=True)
        return torch.cat(values), torch.cat(gradients)

    return evaluate


def pieces(data: Stacked) -> Iterator[tuple[torch.Tensor, Stacked]]:
    """Repetitions to work on at a time: which, and their data."""
    for which in torch.arange(data.repetitions, device=data.y.device).split(_at_once(data)):
        yield which, data.pick(which)


def _at_once(data):
    return max(1, CHUNK.get(data.y.device.type, CHUNK_ELSEWHERE) // data.rows**2)


def shifted(matrix: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """``matrix + diag(noise)``, for matrices ``(R, M, M)`` and variances ``(R, M)`` or ``(R, 1)``."""
    return matrix + torch.diag_embed(noise.expand(-1, matrix.shape[-1]))


def _log_diagonal(factor):
    """Half the log determinant of ``factor factor'``."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
