"""What (12) and (13) share: the tasks' scales from ``B``, and the units that tasks are fitted in."""

from collections.abc import Sequence

import numpy as np
import torch

from lowvar.errors import UserError
from lowvar.integrals.stacked import Stacked, tensor

Relation = Sequence[Sequence[float]] | np.ndarray


def row_sums(B: Relation | None, tasks: int, where: str) -> torch.Tensor:
    """``s_t = sum_t' B_tt'``, which is all of ``B`` that additive and neural control variates see; one without ``B``.

    Args:
        B: ``(T, T)``, symmetric.
        tasks: ``T``.
        where: the integrator, for messages.

    Returns:
        ``(T,)``.

    Raises:
        UserError: ``B`` has another shape, is not symmetric or not finite, or all its rows sum to zero.
    """
    if B is None:
        return torch.ones(tasks, dtype=torch.float64, device=torch.get_default_device())
    try:
        matrix = np.asarray(B, dtype=float)
    except (TypeError, ValueError):
        matrix = np.full(0, np.nan)
    if matrix.shape != (tasks, tasks) or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise UserError(f"B of {where}: it must be a symmetric matrix of {tasks} rows, one for each task")
    sums = matrix.sum(axis=1)
    if not sums.any():
        raise UserError(f"B of {where}: its rows sum to zero, and {where} sees nothing else of it")
    return tensor(sums)


def in_one_unit(data: Stacked) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of all tasks in one unit, as functions that tasks share need them.

    Returns:
        Centred values ``(R, M)``, and the unit ``(R, 1)``: the root mean square of the tasks' standard deviations,
        or 1 where all are constant.
    """
    unit = data.y_scale.square().mean(1, keepdim=True).sqrt()
    unit = torch.where(unit > 0, unit, 1.0)
    return data.y[:, :, 0] * ((data.y_scale / unit) @ data.member.mT), unit
