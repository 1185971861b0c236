"""Vector-valued control variates with ``B`` from objective (10): alternating minimisation, and convex problems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowvar.errors import UserError, positive, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples
from lowvar.integrals.exact.bfgs import minimise
from lowvar.integrals.exact.gls import Fit, solve
from lowvar.integrals.exact.kernel_fit import KernelFit, learn, space_of
from lowvar.integrals.exact.reml import Hyper, pieces, plus_diagonal
from lowvar.integrals.exact.settings import FitSettings, check_memory, check_sizes
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.stacked import Batched, cholesky, diagonal, inverse, solve_lower, stack

LOOK_EVERY = 10  # sweeps between two looks at which repetitions have converged
LEAST, MOST = -30.0, 10.0  # logarithms of the diagonal of B's factor
LARGE = 1e4  # its other entries


@dataclass(frozen=True)
class TaskObjective(Batched):
    """``sum_t 1/m_t |f_t - g_t - beta_t|^2 + penalty |g|^2 + |B|^2``, for standardised values.

    The norms are those of the space of ``B k0``, whose mean diagonal is that of ``B``, and Frobenius'. For given ``B``
    the first two terms are least at the generalised least squares fit with ``M = K + penalty diag(m_t)``; there they
    are ``penalty y'Py``.

    Attributes:
        matrix: ``k0 (R, M, M)``, each point with its own target's score, with a mean diagonal of one.
        y: ``(R, M)``.
        member: ``(M, T)``.
        penalty: ``lambda``.
    """

    one_for_all = ("member",)

    matrix: np.ndarray
    y: np.ndarray
    member: np.ndarray
    penalty: float

    @property
    def noise(self) -> np.ndarray:
        """``penalty m_t`` of every row, ``(1, M)``."""
        return self.penalty * (self.member @ self.member.sum(0))[None]

    def covariance(self, B: np.ndarray) -> np.ndarray:
        """``M (R, M, M)``."""
        return plus_diagonal(self.matrix * (self.member @ B @ self.member.T), self.noise)

    def best(self, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The objective at the best function and constants, and ``A' k0 A`` there.

        ``A (M, T)`` has the weight of each value in the column of its task. The function's coefficients are ``A B``,
        its squared norm is the trace of ``B A' k0 A``, and ``-penalty A' k0 A`` is the derivative in ``B`` of what the
        first two terms of the objective are.

        Args:
            B: ``(R, T, T)``, positive semi-definite.

        Returns:
            ``(R,)``, infinite where ``M`` is not positive definite, and ``(R, T, T)``.
        """
        factor, failed = cholesky(self.covariance(B))
        design = np.broadcast_to(self.member, (len(B), *self.member.shape))
        half = solve_lower(factor, np.concatenate([design, self.y[:, :, None]], axis=2))
        q = np.linalg.qr(half[:, :, :-1])[0]
        left = half[:, :, -1:] - q @ (q.mT @ half[:, :, -1:])
        spread = solve_lower(factor, left, transposed=True) * self.member
        value = self.penalty * (left**2).sum((1, 2)) + (B**2).sum((1, 2))
        return np.where(failed | ~np.isfinite(value), np.inf, value), spread.mT @ self.matrix @ spread


def relation_of(squares: np.ndarray, penalty: float) -> np.ndarray:
    """The ``B`` that minimises ``penalty trace(B^-1 S) + |B|^2``: of ``S``'s eigenvectors, with ``2 b^3 = penalty s``.

    Args:
        squares: ``S (R, T, T)``, positive semi-definite.
        penalty: ``lambda``.
    """
    values, vectors = np.linalg.eigh(squares)
    return vectors * np.cbrt(penalty * np.maximum(values, 0) / 2)[:, None] @ vectors.mT


@dataclass(frozen=True)
class RelationResult:
    """The end of a search for ``B``.

    Attributes:
        B: ``(R, T, T)``.
        steps: solutions of the linear system, ``(R,)``.
        converged: ``(R,)``.
        trace: the objective (10) along the way, ``(R, n)``; the last is that of ``B``.
    """

    B: np.ndarray
    steps: np.ndarray
    converged: np.ndarray
    trace: np.ndarray


def fit_relation(
    samples: Samples,
    chosen: FitSettings,
    penalty: float,
    search: Callable[[TaskObjective], RelationResult],
    length: int,
) -> Integrals:
    """Lengthscales by REML with ``B`` the identity (Appendix D.2), then ``B``, then the constants.

    ``search`` finds ``B``, of all repetitions at once. Traces of its objective that are shorter than ``length`` repeat
    their last value.
    """
    check_sizes(samples)
    check_memory(sum(samples.sizes), chosen.max_gigabytes, "treat fewer tasks together")
    data = stack(samples, chosen.standardise)
    eye = np.broadcast_to(np.eye(data.tasks), (data.repetitions, data.tasks, data.tasks))
    space = space_of(data, chosen, eye, False)
    hyper, ended = learn(chosen.covariance, data, space, chosen.steps)
    found, fits, levels = [], [], []
    for which, here in pieces(data):
        params = hyper.pick(which).kernel
        matrix = chosen.covariance.between(params, here.x, here.x, here.scores, here.scores)
        level = diagonal(matrix).mean(-1)
        problem = TaskObjective(matrix / level[:, None, None], here.y[:, :, 0], here.member, penalty)
        one = search(problem)
        found.append(one)
        levels.append(level)
        fits.append(solve(problem.covariance(one.B), problem.noise, problem.y, problem.member))
    fit, level, B = Fit.joined(fits), np.concatenate(levels), np.concatenate([one.B for one in found])
    trace = np.concatenate([_padded(one.trace, length) for one in found])

    def coefficients(task: int) -> np.ndarray:
        return B[:, task] @ data.member.T / level[:, None] * fit.weights

    ended = replace(
        ended,
        steps=np.concatenate([one.steps for one in found]),
        converged=ended.converged & np.concatenate([one.converged for one in found]),
    )
    values, vectors = np.linalg.eigh(B)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None]
    learnt = Hyper(hyper.kernel, np.full_like(hyper.nugget, penalty), root)
    whole = KernelFit(data, chosen.covariance, space, learnt, level, ended, fit)
    result = whole.report(np.ones((data.repetitions, 1, 1)), coefficients)
    return replace(result, info={**result.info, "objective": trace[:, -1], "objective_trace": trace})


def _padded(trace: np.ndarray, length: int) -> np.ndarray:
    """The last value as often as is missing."""
    return np.concatenate([trace, np.repeat(trace[:, -1:], length - trace.shape[1], axis=1)], axis=1)


def alternating(
    kernel: str | Kernel = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    penalty: float = 1e-5,
    ard: bool = True,
    lengthscale: float | Sequence[float] | None = None,
    standardise: bool = True,
    operator: int = 1,
    trend: bool | None = False,
    sweeps: int = 300,
    tolerance: float = 1e-8,
    steps: int = 200,
    max_gigabytes: float = 4.0,
) -> Integrator:
    """Objective (10), ``sum_t 1/m_t |f_t - g_t - beta_t|^2 + lambda |g|^2 + |B|^2``, without mini-batches.

    For given ``B`` the best ``g`` and ``beta`` are the generalised least squares fit. For given ``g``, whose
    coefficients have the squares ``S = C' k0 C``, the best ``B`` has ``S``'s eigenvectors and eigenvalues
    ``(lambda s / 2)^(1/3)``. Neither half can increase the objective, and in ``(g, beta, B)`` it is convex. Values
    are standardised, and ``k0`` has a mean diagonal of one.

    Args:
        penalty: ``lambda``.
        lengthscale: in the unit of the points; None is learnt by REML with ``B`` the identity (Appendix D.2).
        sweeps: at most.
        tolerance: of the relative decrease of the objective in ten sweeps.
        kernel: as of ``control_functional``, and so are the options that are not listed here.

    Returns:
        An integrator; ``info`` has ``objective_trace (R, n)``, the objective after each sweep.

    Raises:
        UserError: an option is unknown or out of range; while integrating, too few points or too many.

    References:
        Sun, Barp and Briol, eq. (10); Ciliberto, Mroueh, Poggio and Rosasco, "Convex learning of multiple tasks and
        their structure", 2015.
    """
    chosen = FitSettings(
        kernel=kernel, kernel_options=kernel_options, ard=ard, lengthscale=lengthscale, standardise=standardise,
        operator=operator, trend=trend, steps=steps, max_gigabytes=max_gigabytes,
    )  # fmt: skip
    positive("penalty", penalty)
    whole("sweeps", sweeps, 1)

    def search(problem: TaskObjective) -> RelationResult:
        tasks = problem.member.shape[1]
        B = np.broadcast_to(np.eye(tasks), (len(problem.y), tasks, tasks))
        value, inner = problem.best(B)
        going, taken = np.isfinite(value), np.ones(len(value), int)
        trace = [value]
        for sweep in range(1, sweeps + 1):
            new = relation_of(B @ inner @ B, penalty)
            new_value, new_inner = problem.best(new)
            B, inner = (np.where(going[:, None, None], *pair) for pair in ((new, B), (new_inner, inner)))
            trace.append(np.where(going, new_value, trace[-1]))
            taken = taken + going
            if sweep % LOOK_EVERY == 0:
                going = going & (trace[-1 - LOOK_EVERY] - trace[-1] > tolerance * trace[-1])
                if not going.any():
                    break
        return RelationResult(B, taken, ~going, np.stack(trace, axis=1))

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        return fit_relation(samples, chosen, penalty, search, sweeps + 1)

    properties = IntegralProperties(transfers=True, exact_on="constants", interpolates=True)
    return Integrator("alternating", properties, integrate)


def convex(
    kernel: str | Kernel = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    penalty: float = 1e-5,
    deltas: Sequence[float] = (1.0, 1e-1, 1e-2, 1e-3, 1e-4),
    ard: bool = True,
    lengthscale: float | Sequence[float] | None = None,
    standardise: bool = True,
    operator: int = 1,
    trend: bool | None = False,
    tolerance: float = 1e-10,
    steps: int = 200,
    max_gigabytes: float = 4.0,
) -> Integrator:
    """Theorem D.1: objective (10) plus ``lambda delta^2 tr B^-1``, as ``delta`` goes to nothing.

    Written in ``C = theta B``, coefficients of ``k0`` alone, the objective is convex in ``(C, beta, B)`` together;
    ``delta^2`` keeps ``B`` away from singular matrices. In the paper's display ``delta^2`` stands within the double sum
    over points; it belongs outside. The minimum over ``(C, beta)`` is the generalised least squares fit, what is left
    is convex in ``B`` alone, and is minimised by BFGS in its Cholesky factor, which starts from the minimum of the
    ``delta`` before.

    Args:
        penalty: ``lambda``, for standardised values and ``k0`` with a mean diagonal of one.
        deltas: decreasing.
        lengthscale: in the unit of the points; None is learnt by REML with ``B`` the identity (Appendix D.2).
        tolerance: of the decrease of the objective in a step, relative to the penalty.
        steps: evaluations at most, for each ``delta`` and of the restricted likelihood.
        kernel: as of ``control_functional``, and so are the options that are not listed here.

    Returns:
        An integrator for tasks with one target; ``info`` has ``objective_trace (R, n)``, (10) after each ``delta``.

    Raises:
        UserError: an option is unknown or out of range; while integrating, too few points or too many.

    References:
        Sun, Barp and Briol, Theorem D.1; Ciliberto, Mroueh, Poggio and Rosasco, "Convex learning of multiple tasks
        and their structure", 2015.
    """
    chosen = FitSettings(
        kernel=kernel, kernel_options=kernel_options, ard=ard, lengthscale=lengthscale, standardise=standardise,
        operator=operator, trend=trend, steps=steps, max_gigabytes=max_gigabytes,
    )  # fmt: skip
    positive("penalty", penalty)
    if not deltas or any(not 0 < later < earlier for earlier, later in zip((np.inf, *deltas), deltas, strict=False)):
        raise UserError(f"deltas {list(deltas)}: they must be positive and decrease")

    def search(problem: TaskObjective) -> RelationResult:
        tasks = problem.member.shape[1]
        row, column = np.tril_indices(tasks)
        on_diagonal = row == column
        z = np.zeros((len(problem.y), len(row)))
        upper, lower = np.where(on_diagonal, MOST, LARGE), np.where(on_diagonal, LEAST, -LARGE)
        taken, trace = np.zeros(len(z), int), []
        B, converged = np.eye(tasks), taken > 0

        def factor(z: np.ndarray) -> np.ndarray:
            whole = np.zeros((len(z), tasks, tasks))
            whole[:, row, column] = np.where(on_diagonal, np.exp(np.where(on_diagonal, z, 0.0)), z)
            return whole

        for delta in deltas:

            def function(z, which, delta=delta):
                L = factor(z)
                value, slope = perturbed(problem.pick(which), L @ L.mT, L, delta)
                entries = 2 * (slope @ L)[:, row, column]
                return value, np.where(on_diagonal, entries * L[:, row, column], entries)

            ended = minimise(
                function, z, lower, upper, steps=steps, gradient_tolerance=0.0, value_tolerance=tolerance * penalty
            )
            z, taken, converged = ended.x, taken + ended.steps, ended.converged
            B = factor(z) @ factor(z).mT
            trace.append(problem.best(B)[0])
        return RelationResult(B, taken, converged, np.stack(trace, axis=1))

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        return fit_relation(samples, chosen, penalty, search, len(deltas))

    properties = IntegralProperties(transfers=True, exact_on="constants", one_target=True, interpolates=True)
    return Integrator("convex", properties, integrate)


def perturbed(problem: TaskObjective, B: np.ndarray, factor: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The perturbed objective at the best function and constants, ``(R,)``, and its derivative in ``B (R, T, T)``."""
    value, inner = problem.best(B)
    inverted = inverse(factor)
    weight = problem.penalty * delta**2
    value = value + weight * diagonal(inverted).sum(-1)
    return value, 2 * B - problem.penalty * inner - weight * inverted @ inverted
