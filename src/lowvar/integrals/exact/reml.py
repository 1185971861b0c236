"""Hyper-parameters of a fit, as vectors to learn, and their restricted likelihood."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lowvar.integrals.kernels import Kernel
from lowvar.integrals.stacked import Batched, Stacked, cholesky, diagonal, inverse, solve_lower

LENGTHSCALE = 1e-2, 1e5  # bounds, in standard deviations of the points
NUGGET = 1e-10, 1.0  # bounds, relative to the mean diagonal of the kernel matrix
TREND = 1e-8, 1e4  # bounds, relative to the scores' part of the kernel
OTHER = 1e-6, 1e6  # bounds of other parameters of kernels
FACTOR = 1e3  # bound of the entries of B's factor, whose first is one
LEAST_DIAGONAL = 1e-8
LIKELY = 100.0, 3.0  # of a lengthscale beforehand: median in standard deviations, spread of the logarithm
CHUNK = 2**18  # entries of the kernel matrices worked on at a time: they should stay in the cache


@dataclass(frozen=True)
class Hyper(Batched):
    """Hyper-parameters of ``R`` repetitions.

    Attributes:
        kernel: the kernel's parameters, each ``(R, p)``.
        nugget: ``(R,)``, relative to the mean diagonal.
        factor: ``(R, q, q)``, ``B = factor factor'``; its scale has no meaning.
    """

    kernel: dict[str, np.ndarray]
    nugget: np.ndarray
    factor: np.ndarray


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
    spread: np.ndarray

    def unpack(self, z: np.ndarray, which: np.ndarray) -> Hyper:
        """Vectors ``(A, p)`` of the repetitions ``which`` as hyper-parameters."""
        fixed = self.fixed.pick(which)
        *parts, nugget, entries = np.split(z, np.cumsum([*self._widths, int(self.nugget)]), axis=1)
        kernel = fixed.kernel | dict(zip(self.kernel, parts, strict=True))
        factor = fixed.factor @ self._step(entries) if self.factor else fixed.factor
        return Hyper(kernel, np.exp(nugget[:, 0]) if self.nugget else fixed.nugget, factor)

    def pulled_back(self, hyper: Hyper, which: np.ndarray, slopes: Hyper) -> np.ndarray:
        """Derivatives in the vectors, ``(A, p)``, from those in the hyper-parameters there."""
        parts = [slopes.kernel[name] for name in self.kernel]
        if self.nugget:
            parts.append((slopes.nugget * hyper.nugget)[:, None])
        if self.factor:
            row, column, diagonal = self._entries()
            fixed = self.fixed.pick(which).factor
            step = solve_lower(fixed, hyper.factor)
            entries = (fixed.mT @ slopes.factor)[:, row, column]
            parts.append(np.where(diagonal, entries * step[:, row, column], entries))
        return np.concatenate(parts, axis=1)

    def pack(self, hyper: Hyper) -> np.ndarray:
        """The inverse of ``unpack``, for all repetitions."""
        parts = [hyper.kernel[name] for name in self.kernel]
        if self.nugget:
            parts.append(np.log(hyper.nugget[:, None]))
        if self.factor:
            row, column, diagonal = self._entries()
            step = solve_lower(self.fixed.factor, hyper.factor)
            entries = (step / step[:, :1, :1])[:, row, column]
            parts.append(np.where(diagonal, np.log(np.maximum(entries, 1e-300)), entries))
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(hyper.nugget), 0))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds, ``(R, p)`` each."""
        lower, upper = ([self.around(name, sign) for name in self.kernel] for sign in (-1, 1))
        column = np.zeros_like(self.spread[:, :1])
        if self.nugget:
            lower, upper = [*lower, column + math.log(NUGGET[0])], [*upper, column + math.log(NUGGET[1])]
        if self.factor:
            row, _, on_diagonal = self._entries()
            own = diagonal(self.fixed.factor)
            own = np.log(own / own[:, :1])[:, row]
            lower = [*lower, np.where(on_diagonal, math.log(LEAST_DIAGONAL) - own, -FACTOR)]
            upper = [*upper, np.where(on_diagonal, math.log(FACTOR) - own, FACTOR)]
        return (np.concatenate(lower, 1), np.concatenate(upper, 1)) if lower else (column[:, :0], column[:, :0])

    @property
    def _widths(self) -> list[int]:
        return [self.width(name) for name in self.kernel]

    def width(self, name: str) -> int:
        """How many entries a parameter of the kernel has."""
        return self.fixed.kernel[name].shape[1]

    @property
    def lengthscales(self) -> tuple[str, ...]:
        """Names of the lengthscales among the learnt parameters."""
        return tuple(name for name in self.kernel if name.endswith("log_lengthscale"))

    def around(self, name: str, sign: int = 0, lengthscale: float = 0.0) -> np.ndarray:
        """A parameter's bound below (``sign`` -1) or above (1), else what it is at a common lengthscale, ``(R, p)``."""
        value = self.fixed.kernel[name]
        if name == "log_trend":
            return np.full_like(value, math.log({-1: TREND[0], 1: TREND[1]}.get(sign, 1.0)))
        if not name.endswith("log_lengthscale"):
            return np.full_like(value, math.log(OTHER[sign > 0]))
        whole = value.shape[1] == self.spread.shape[1]
        spread = self.spread if whole else np.broadcast_to(self.spread.mean(1, keepdims=True), value.shape)
        return spread + math.log({-1: LENGTHSCALE[0], 1: LENGTHSCALE[1]}.get(sign, lengthscale))

    def prior(self, z: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Minus the logarithm of a wide log-normal density of the lengthscales, and its gradient.

        It decides where the values say nothing: many inputs and few points.
        """
        gradient = np.zeros_like(z)
        first = 0
        for name in self.kernel:
            width = self.width(name)
            if name.endswith("log_lengthscale"):
                offset = z[:, first : first + width] - self.around(name, lengthscale=LIKELY[0])[which]
                gradient[:, first : first + width] = offset / LIKELY[1] ** 2
            first += width
        return 0.5 * LIKELY[1] ** 2 * (gradient * gradient).sum(1), gradient

    @property
    def diagonal(self) -> np.ndarray:
        """Which of the learnt entries of the factor are on its diagonal."""
        return self._entries()[2]

    def _entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns of the learnt entries of the factor, and which are on its diagonal."""
        row, column = (of[1:] for of in np.tril_indices(self.fixed.factor.shape[1]))
        return row, column, row == column

    def _step(self, entries: np.ndarray) -> np.ndarray:
        row, column, diagonal = self._entries()
        step = np.zeros((len(entries), *self.fixed.factor.shape[1:]))
        step[:, 0, 0] = 1.0
        step[:, row, column] = np.where(diagonal, np.exp(np.where(diagonal, entries, 0.0)), entries)
        return step


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

    def defaults(self, dim: int) -> dict[str, np.ndarray]:
        """Parameters to start from, without axes of repetitions."""
        trend = {"log_trend": np.zeros(1)} if self.trend else {}
        return self.kernel.defaults(dim) | trend

    def between(self, params, x, y, lx, ly) -> np.ndarray:
        """The scalar Stein kernel at all pairs, ``(R, n, m)``."""
        scalar = (self.kernel.stein if self.operator == 1 else self.kernel.stein2)(self._own(params), x, y, lx, ly)
        if self.trend:
            left, right = _additive(x, lx), _additive(y, ly)
            scalar += (left * np.exp(params["log_trend"])[:, None]) @ right.mT
        return scalar

    def _own(self, params):
        """The kernel's parameters."""
        return {name: value for name, value in params.items() if name != "log_trend"}

    def gram(self, data: Stacked, hyper: Hyper) -> tuple[np.ndarray, np.ndarray]:
        """``B[t_i, t_j] k0(x_i, x_j)`` of all rows, ``(R, M, M)``, and its mean diagonal ``(R,)``.

        Only the scores of a point's own target enter: the functions ``K0(., x_tj) e_t``, one for each value, span the
        minimiser of eq. (8).

        References:
            Sun, Barp and Briol, special cases I and II, and Theorem 4.1.
        """
        matrix = self.between(hyper.kernel, data.x, data.x, data.scores, data.scores)
        relation = _relation(data, hyper)
        matrix = matrix if relation is None else matrix * relation
        return matrix, diagonal(matrix).mean(-1)

    def with_slopes(self, data: Stacked, hyper: Hyper):
        """As ``gram``, and a function of weights ``(R, M, M)``, which are symmetric, and derivatives in the nugget.

        It returns the derivatives of the sum over pairs of the weight times the matrix, and passes on the others.
        """
        scalar, of_kernel = self.kernel.with_slopes(self._own(hyper.kernel), data.x, data.scores, self.operator)
        columns, scale = _additive(data.x, data.scores), np.exp(hyper.kernel.get("log_trend", -np.inf))
        if self.trend:
            scalar = scalar + (columns * scale[:, None]) @ columns.mT
        relation = _relation(data, hyper)
        matrix = scalar if relation is None else scalar * relation

        def pull(weight: np.ndarray, of_nugget: np.ndarray) -> Hyper:
            factor = np.zeros_like(hyper.factor)
            if relation is not None:
                factor = 2 * data.member.T @ ((weight * scalar) @ (data.member @ hyper.factor))
                weight = weight * relation
            kernel = of_kernel(weight)
            if self.trend:
                kernel["log_trend"] = scale * (columns * (weight @ columns)).sum((1, 2))[:, None]
            return Hyper(kernel, of_nugget, factor)

        return matrix, diagonal(matrix).mean(-1), pull


def _relation(data: Stacked, hyper: Hyper) -> np.ndarray | None:
    """``B[t_i, t_j]`` of all rows; None of a single task."""
    if data.member.shape[1] == 1:
        return None
    rows = data.member @ hyper.factor
    return rows @ rows.mT


def _additive(x: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Images of constants and of ``x_j`` under either operator."""
    return np.concatenate([scores, 1 + x * scores], axis=-1)


def restricted_likelihood(
    matrix: np.ndarray, y: np.ndarray, member: np.ndarray, slopes: bool = True
) -> tuple[np.ndarray, np.ndarray | None]:
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
    factor, failed = cholesky(matrix)
    columns, (rows, constants) = y.shape[2], member.shape
    half = solve_lower(factor, np.concatenate([np.broadcast_to(member, (len(y), *member.shape)), y], axis=2))
    design, half = half[:, :, :constants], half[:, :, constants:]
    small, _ = cholesky(design.mT @ design)
    unit = solve_lower(small, design.mT)  # orthonormal rows
    half = half - unit.mT @ (unit @ half)
    amplitude = np.maximum((half * half).sum(1) / (rows - constants), 1e-280)
    value = 0.5 * (rows - constants) * np.log(amplitude).sum(1)
    value = value + columns * (_log_diagonal(factor) + _log_diagonal(small))
    value = np.where(failed | ~np.isfinite(value), np.inf, value)
    if not slopes:
        return value, None
    thin = np.concatenate([columns**0.5 * unit.mT, half / np.sqrt(amplitude)[:, None]], axis=2)
    thin = solve_lower(factor, thin, transposed=True)
    return value, columns / 2 * inverse(factor) - 0.5 * (thin @ thin.mT)


def objective(covariance: Covariance, data: Stacked, space: Space, origin: np.ndarray) -> Callable:
    """``(z (A, p), which (A,), slopes=True) -> (value (A,), gradient (A, p))``.

    Args:
        covariance: kernel and operator.
        data: samples.
        space: of ``N`` problems.
        origin: the repetition of each, ``(N,)``.
    """

    def part(z, which, slopes):
        here, hyper = data.pick(origin[which]), space.unpack(z, which)
        value, gradient = space.prior(z, which)
        matrix, level, *pull = (covariance.with_slopes if slopes else covariance.gram)(here, hyper)
        noisy = plus_diagonal(matrix, (hyper.nugget * level)[:, None] + here.ridge)
        likelihood, slope = restricted_likelihood(noisy, here.y, here.member, slopes)
        if slope is not None:
            trace = diagonal(slope).sum(-1)
            slope = plus_diagonal(slope, (hyper.nugget * trace / here.rows)[:, None])  # the noise grows with the kernel
            gradient = gradient + space.pulled_back(hyper, which, pull[0](slope, level * trace))
        return value + likelihood, gradient

    def evaluate(z, which, slopes=True):
        with np.errstate(all="ignore"):  # far out: the value is infinite, and the step will be shortened
            steps = range(0, len(z), _at_once(data))
            parts = [part(z[i : i + _at_once(data)], which[i : i + _at_once(data)], slopes) for i in steps]
        values, gradients = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(gradients)

    return evaluate


def pieces(data: Stacked) -> Iterator[tuple[np.ndarray, Stacked]]:
    """Repetitions to work on at a time: which, and their data."""
    for first in range(0, data.repetitions, _at_once(data)):
        which = np.arange(first, min(first + _at_once(data), data.repetitions))
        yield which, data.pick(which)


def _at_once(data):
    return max(1, CHUNK // data.rows**2)


def plus_diagonal(matrix: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """``matrix + diag(noise)``, for matrices ``(R, M, M)`` and variances ``(R, M)`` or ``(R, 1)``."""
    matrix = matrix.copy()
    rows = np.arange(matrix.shape[-1])
    matrix[:, rows, rows] += noise
    return matrix


def _log_diagonal(factor):
    """Half the log determinant of ``factor factor'``."""
    return np.log(diagonal(factor)).sum(-1)
