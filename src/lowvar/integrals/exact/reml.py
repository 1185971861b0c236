"""Hyper-parameters of a fit, as vectors to learn, and their restricted likelihood."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from lowvar.integrals.kernels import Kernel
from lowvar.integrals.stacked import Batched, Stacked, pulled_back, times

LENGTHSCALE = 1e-2, 1e5  # bounds, in standard deviations of the points
NUGGET = 1e-10, 1.0  # bounds, relative to the mean diagonal of the kernel matrix
TREND = 1e-8, 1e4  # bounds, relative to the scores' part of the kernel
OTHER = 1e-6, 1e6  # bounds of other parameters of kernels
FACTOR = 1e3  # bound of the entries of B's factor, whose first is one
LEAST_DIAGONAL = 1e-8
LIKELY = 100.0, 3.0  # of a lengthscale beforehand: median in standard deviations, spread of the logarithm
CHUNK = {"cpu": 2**18}  # entries of the kernel matrices worked on at a time: they should stay in the cache
CHUNK_ELSEWHERE = 2**26


@dataclass(frozen=True)
class Hyper(Batched):
    """Hyper-parameters of ``R`` repetitions.

    Attributes:
        kernel: the kernel's parameters, each ``(R, p)``.
        nugget: ``(R,)``, relative to the mean diagonal.
        factor: ``(R, q, q)``, ``B = factor factor'``; its scale has no meaning.
    """

    kernel: dict[str, torch.Tensor]
    nugget: torch.Tensor
    factor: torch.Tensor


@dataclass(frozen=True)
class Space(Batched):
    """The hyper-parameters that are learnt, as vectors: the kernel's, the logarithm of the nugget, ``B``'s factor.

    The factor is that of ``fixed`` times a lower triangular matrix: its first entry is one, for the amplitude is
    profiled out, the rest of its diagonal is kept as logarithms, and at the start it is the identity.

    Attributes:
        fixed: hyper-parameters of all repetitions; those that are learnt are overwritten.
        kernel: names of the kernel's parameters that are learnt.
        nugget: whether the nugget is.
        factor: whether ``B`` is.
        spread: logarithms of the standard deviations of the inputs as they are in the kernel, ``(R, d)``.
    """

    fixed: Hyper
    kernel: tuple[str, ...]
    nugget: bool
    factor: bool
    spread: torch.Tensor

    def unpack(self, z: torch.Tensor, which: torch.Tensor) -> Hyper:
        """Vectors ``(A, p)`` of the repetitions ``which`` as hyper-parameters."""
        fixed = self.fixed.pick(which)
        widths = [self.width(name) for name in self.kernel]
        *parts, nugget, entries = z.split([*widths, int(self.nugget), z.shape[1] - sum(widths) - self.nugget], dim=1)
        kernel = fixed.kernel | dict(zip(self.kernel, parts, strict=True))
        factor = fixed.factor @ self._step(entries) if self.factor else fixed.factor
        return Hyper(kernel, nugget[:, 0].exp() if self.nugget else fixed.nugget, factor)

    def pack(self, hyper: Hyper) -> torch.Tensor:
        """The inverse of ``unpack``, for all repetitions."""
        parts = [hyper.kernel[name] for name in self.kernel]
        if self.nugget:
            parts.append(hyper.nugget[:, None].log())
        if self.factor:
            row, column, diagonal = self._entries()
            step = torch.linalg.solve_triangular(self.fixed.factor, hyper.factor, upper=False)
            entries = (step / step[:, :1, :1])[:, row, column]
            parts.append(torch.where(diagonal, entries.clamp(min=1e-300).log(), entries))
        return torch.cat(parts, 1) if parts else hyper.nugget.new_zeros(len(hyper.nugget), 0)

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Lower and upper bounds, ``(R, p)`` each."""
        lower, upper = ([self.around(name, sign) for name in self.kernel] for sign in (-1, 1))
        column = torch.zeros_like(self.spread[:, :1])
        if self.nugget:
            lower, upper = [*lower, column + math.log(NUGGET[0])], [*upper, column + math.log(NUGGET[1])]
        if self.factor:
            row, _, diagonal = self._entries()
            own = self.fixed.factor.diagonal(dim1=-2, dim2=-1)
            own = (own / own[:, :1]).log()[:, row]
            lower = [*lower, torch.where(diagonal, math.log(LEAST_DIAGONAL) - own, -FACTOR)]
            upper = [*upper, torch.where(diagonal, math.log(FACTOR) - own, FACTOR)]
        return (torch.cat(lower, 1), torch.cat(upper, 1)) if lower else (column[:, :0], column[:, :0])

    def width(self, name: str) -> int:
        """How many entries a parameter of the kernel has."""
        return self.fixed.kernel[name].shape[1]

    @property
    def lengthscales(self) -> tuple[str, ...]:
        """Names of the lengthscales among the learnt parameters."""
        return tuple(name for name in self.kernel if name.endswith("log_lengthscale"))

    def around(self, name: str, sign: int = 0, lengthscale: float = 0.0) -> torch.Tensor:
        """A parameter's bound below (``sign`` -1) or above (1), else what it is at a common lengthscale, ``(R, p)``."""
        value = self.fixed.kernel[name]
        if name == "log_trend":
            return torch.full_like(value, math.log({-1: TREND[0], 1: TREND[1]}.get(sign, 1.0)))
        if not name.endswith("log_lengthscale"):
            return torch.full_like(value, math.log(OTHER[sign > 0]))
        whole = value.shape[1] == self.spread.shape[1]
        spread = self.spread if whole else self.spread.mean(1, keepdim=True).expand_as(value)
        return spread + math.log({-1: LENGTHSCALE[0], 1: LENGTHSCALE[1]}.get(sign, lengthscale))

    def prior(self, z: torch.Tensor, which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Minus the logarithm of a wide log-normal density of the lengthscales, and its gradient.

        It decides where the values say nothing: many inputs and few points.
        """
        gradient = torch.zeros_like(z)
        first = 0
        for name in self.kernel:
            width = self.width(name)
            if name.endswith("log_lengthscale"):
                offset = z[:, first : first + width] - self.around(name, lengthscale=LIKELY[0])[which]
                gradient[:, first : first + width] = offset / LIKELY[1] ** 2
            first += width
        return 0.5 * LIKELY[1] ** 2 * gradient.square().sum(1), gradient

    @property
    def diagonal(self) -> torch.Tensor:
        """Which of the learnt entries of the factor are on its diagonal."""
        return self._entries()[2]

    def _entries(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows and columns of the learnt entries of the factor, and which are on its diagonal."""
        tasks, device = self.fixed.factor.shape[1], self.fixed.factor.device
        row, column = torch.tril_indices(tasks, tasks, device=device)[:, 1:]
        return row, column, row == column

    def _step(self, entries: torch.Tensor) -> torch.Tensor:
        row, column, diagonal = self._entries()
        tasks = self.fixed.factor.shape[1]
        values = torch.where(diagonal, torch.where(diagonal, entries, 0.0).exp(), entries)
        place = torch.cat([row.new_zeros(1), row * tasks + column])
        flat = entries.new_zeros(len(entries), tasks * tasks)
        flat = flat.index_copy(1, place, torch.cat([torch.ones_like(entries[:, :1]), values], 1))
        return flat.reshape(-1, tasks, tasks)


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
        """Parameters to start from, without axes of repetitions."""
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
