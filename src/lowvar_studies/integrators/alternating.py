"""Vector-valued control variates with ``B`` by alternating minimisation, each half in closed form."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lowvar.errors import positive, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.samples import Samples
from lowvar.registry import declares
from lowvar_studies.integrators.relation_fit import Found, fit_relation
from lowvar_studies.integrators.task_objective import TaskObjective, relation_of

LOOK_EVERY = 10  # sweeps between two looks at which repetitions have converged


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

    def search(problem: TaskObjective) -> Found:
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
        return Found(B, taken, ~going, torch.stack(trace, 1))

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        return fit_relation(samples, chosen, penalty, search, sweeps + 1)

    properties = IntegralProperties(transfers=True, exact_on="constants", interpolates=True)
    return Integrator("alternating", properties, integrate)
