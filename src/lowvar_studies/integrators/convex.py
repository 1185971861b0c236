"""Vector-valued control variates with ``B`` from a sequence of convex problems."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lowvar.errors import UserError, positive
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.exact.bfgs import minimise
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.samples import Samples
from lowvar.registry import declares
from lowvar_studies.integrators.relation_fit import Found, fit_relation
from lowvar_studies.integrators.task_objective import TaskObjective

LEAST, MOST = -30.0, 10.0  # logarithms of the diagonal of B's factor
LARGE = 1e4  # its other entries


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

    def search(problem: TaskObjective) -> Found:
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
        return Found(B, taken, converged, torch.stack(trace, 1))

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
