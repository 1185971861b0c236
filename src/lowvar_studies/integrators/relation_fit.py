"""What ``alternating`` and ``convex`` share: the kernel's lengthscales, and the fit at the ``B`` that they find."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from lowvar.integrals.base import Integrals
from lowvar.integrals.exact import gls
from lowvar.integrals.exact.checks import check_memory, check_sizes
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.hyper import Hyper
from lowvar.integrals.exact.kernel_fit import joined, learn, space_of
from lowvar.integrals.exact.reml import pieces
from lowvar.integrals.exact.verdicts import report
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import numpy, stack
from lowvar_studies.integrators.task_objective import TaskObjective


@dataclass(frozen=True)
class Found:
    """Where a search for ``B`` ended.

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
    samples: Samples, chosen: FitSettings, penalty: float, search: Callable[[TaskObjective], Found], length: int
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
        fits.append(gls.solve(problem.covariance(one.B), problem.noise, problem.y, problem.member))
    fit, level, B = joined(fits), torch.cat(levels), torch.cat([one.B for one in found])
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
    result = report(data, learnt, torch.ones_like(eye[:, :1, :1]), space, ended, fit, chosen.covariance, coefficients)
    return replace(result, info={**result.info, "objective": numpy(trace[:, -1]), "objective_trace": numpy(trace)})


def _padded(trace: torch.Tensor, length: int) -> torch.Tensor:
    """The last value as often as is missing."""
    return torch.cat([trace, trace[:, -1:].expand(-1, length - trace.shape[1])], 1)
