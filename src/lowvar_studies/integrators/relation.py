"""Vector-valued control variates with ``B`` from objective (10): alternating minimisation, and convex problems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from lowvar.errors import UserError, positive, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples
from lowvar.integrals.exact.bfgs import minimise
from lowvar.integrals.exact.gls import Fit, solve
from lowvar.integrals.exact.kernel_fit import KernelFit, learn, space_of
from lowvar.integrals.exact.reml import Hyper, pieces
from lowvar.integrals.exact.settings import FitSettings, check_memory, check_sizes
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.stacked import Batched, numpy, stack, times
from lowvar.registry import declares

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

    matrix: torch.Tensor
    y: torch.Tensor
    member: torch.Tensor
    penalty: float

    @property
    def noise(self) -> torch.Tensor:
        """``penalty m_t`` of every row, ``(1, M)``."""
        return self.penalty * (self.member @ self.member.sum(0))[None]

    def covariance(self, B: torch.Tensor) -> torch.Tensor:
        """``M (R, M, M)``."""
        return self.matrix * (self.member @ B @ self.member.mT) + torch.diag_embed(self.noise)

    def best(self, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective at the best function and constants, and ``A' k0 A`` there.

        ``A (M, T)`` has the weight of each value in the column of its task. The function's coefficients are ``A B``,
        its squared norm is the trace of ``B A' k0 A``, and ``-penalty A' k0 A`` is the derivative in ``B`` of what the
        first two terms of the objective are.

        Args:
            B: ``(R, T, T)``, positive semi-definite.

        Returns:
            ``(R,)``, infinite where ``M`` is not positive definite, and ``(R, T, T)``.
        """
        factor, failed = torch.linalg.cholesky_ex(self.covariance(B))
        design = self.member.expand(len(B), -1, -1)
        half = torch.linalg.solve_triangular(factor, torch.cat([design, self.y[:, :, None]], 2), upper=False)
        q = torch.linalg.qr(half[:, :, :-1]).Q
        left = half[:, :, -1:] - times(q, times(q.mT, half[:, :, -1:]))
        weights = torch.linalg.solve_triangular(factor.mT, left, upper=True)
        value = self.penalty * left.square().sum((1, 2)) + B.square().sum((1, 2))
        spread = weights * self.member
        bad = (failed > 0) | ~value.isfinite()
        return torch.where(bad, torch.inf, value), spread.mT @ self.matrix @ spread


def relation_of(squares: torch.Tensor, penalty: float) -> torch.Tensor:
    """The ``B`` that minimises ``penalty trace(B^-1 S) + |B|^2``: of ``S``'s eigenvectors, with ``2 b^3 = penalty s``.

    Args:
        squares: ``S (R, T, T)``, positive semi-definite.
        penalty: ``lambda``.
    """
    values, vectors = torch.linalg.eigh(squares)
    return vectors * (penalty * values.clamp(min=0) / 2).pow(1 / 3)[:, None] @ vectors.mT


@dataclass(frozen=True)
class RelationResult:
    """The end of a search for ``B``.

    Attributes:
        B: ``(R, T, T)``.
        steps: solutions of the linear system, ``(R,)``.
        converged: ``(R,)``.
        trace: the objective (10) along the way, ``(R, n)``; the last is that of ``B``.
    """

    B: torch.Tensor
    steps: torch.Tensor
    converged: torch.Tensor
    trace: torch.Tensor


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
    eye = torch.eye(data.tasks, dtype=data.y.dtype, device=data.y.device).expand(data.repetitions, -1, -1)
    space = space_of(data, chosen, eye, False)
    hyper, ended = learn(chosen.covariance, data, space, chosen.steps)
    found, fits, levels = [], [], []
    for which, here in pieces(data):
        params = hyper.pick(which).kernel
        matrix = chosen.covariance.between(params, here.x, here.x, here.scores, here.scores)
        level = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
        problem = TaskObjective(matrix / level[:, None, None], here.y[:, :, 0], here.member, penalty)
        one = search(problem)
        found.append(one)
        levels.append(level)
        fits.append(solve(problem.covariance(one.B), problem.noise, problem.y, problem.member))
    fit, level, B = Fit.joined(fits), torch.cat(levels), torch.cat([one.B for one in found])
    trace = torch.cat([_padded(one.trace, length) for one in found])

    def coefficients(task: int) -> torch.Tensor:
        return B[:, task] @ data.member.mT / level[:, None] * fit.weights

    ended = replace(
        ended,
        steps=torch.cat([one.steps for one in found]),
        converged=ended.converged & torch.cat([one.converged for one in found]),
    )
    values, vectors = torch.linalg.eigh(B)
    root = vectors * values.clamp(min=0).sqrt()[:, None]
    learnt = Hyper(hyper.kernel, torch.full_like(hyper.nugget, penalty), root)
    whole = KernelFit(data, chosen.covariance, space, learnt, level, ended, fit)
    result = whole.report(torch.ones_like(eye[:, :1, :1]), coefficients)
    return replace(result, info={**result.info, "objective": numpy(trace[:, -1]), "objective_trace": numpy(trace)})


def _padded(trace: torch.Tensor, length: int) -> torch.Tensor:
    """The last value as often as is missing."""
    return torch.cat([trace, trace[:, -1:].expand(-1, length - trace.shape[1])], 1)


@declares(packages=("torch",), extra="torch")
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
        B = torch.eye(tasks, dtype=problem.y.dtype, device=problem.y.device).expand(len(problem.y), -1, -1)
        value, inner = problem.best(B)
        going, taken = value.isfinite(), torch.ones_like(value, dtype=torch.long)
        trace = [value]
        for sweep in range(1, sweeps + 1):
            new = relation_of(B @ inner @ B, penalty)
            new_value, new_inner = problem.best(new)
            B, inner = (torch.where(going[:, None, None], *pair) for pair in ((new, B), (new_inner, inner)))
            trace.append(torch.where(going, new_value, trace[-1]))
            taken = taken + going
            if sweep % LOOK_EVERY == 0:
                going = going & (trace[-1 - LOOK_EVERY] - trace[-1] > tolerance * trace[-1])
                if not going.any():
                    break
        return RelationResult(B, taken, ~going, torch.stack(trace, 1))

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        return fit_relation(samples, chosen, penalty, search, sweeps + 1)

    properties = IntegralProperties(transfers=True, exact_on="constants", interpolates=True)
    return Integrator("alternating", properties, integrate)


@declares(packages=("torch",), extra="torch")
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
        row, column = torch.tril_indices(tasks, tasks, device=problem.y.device)
        diagonal = row == column
        z = torch.zeros(len(problem.y), len(row), dtype=problem.y.dtype, device=problem.y.device)
        bound = torch.where(diagonal, MOST, LARGE).to(z)
        lower = torch.where(diagonal, LEAST, -LARGE).to(z)
        taken, trace = torch.zeros(len(z), dtype=torch.long, device=z.device), []
        B, converged = torch.eye(tasks).to(z), taken > 0

        def factor(z: torch.Tensor) -> torch.Tensor:
            entries = torch.where(diagonal, torch.where(diagonal, z, 0.0).exp(), z)
            return (
                z.new_zeros(len(z), tasks * tasks)
                .index_copy(1, row * tasks + column, entries)
                .unflatten(1, (tasks, -1))
            )

        for delta in deltas:

            def function(z, which, delta=delta):
                z = z.detach().requires_grad_(True)
                with torch.enable_grad():
                    L = factor(z)
                    B = L @ L.mT
                value, slope = perturbed(problem.pick(which), B.detach(), L.detach(), delta)
                return value, torch.autograd.grad(B, z, slope)[0]

            ended = minimise(
                function, z, lower, bound, steps=steps, gradient_tolerance=0.0, value_tolerance=tolerance * penalty
            )
            z, taken, converged = ended.x, taken + ended.steps, ended.converged
            B = factor(z) @ factor(z).mT
            trace.append(problem.best(B)[0])
        return RelationResult(B, taken, converged, torch.stack(trace, 1))

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        return fit_relation(samples, chosen, penalty, search, len(deltas))

    properties = IntegralProperties(transfers=True, exact_on="constants", one_target=True, interpolates=True)
    return Integrator("convex", properties, integrate)


def perturbed(
    problem: TaskObjective, B: torch.Tensor, factor: torch.Tensor, delta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The perturbed objective at the best function and constants, ``(R,)``, and its derivative in ``B (R, T, T)``."""
    value, inner = problem.best(B)
    inverse = torch.cholesky_inverse(factor)
    weight = problem.penalty * delta**2
    value = value + weight * inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
    return value, 2 * B - problem.penalty * inner - weight * inverse @ inverse
