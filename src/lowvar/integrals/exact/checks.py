"""Refusals before any work: too few points, more than memory holds, and a matrix ``B`` that is none."""

from collections.abc import Sequence

import numpy as np

from lowvar.errors import TooFewPoints, UserError
from lowvar.integrals.samples import Samples

ALIVE = 12  # matrices of the kernel's size that exist at the same time, at most


def check_sizes(samples: Samples) -> None:
    """Refuses what no kernel can be learnt from.

    Raises:
        TooFewPoints: a task has fewer than three points.
    """
    if min(samples.sizes) < 3:
        t = int(np.argmin(samples.sizes))
        raise TooFewPoints(f"task {t} has {samples.sizes[t]} points: a control variate needs 3 or more")


def check_memory(rows: int, gigabytes: float, instead: str) -> None:
    """Refuses a kernel matrix that is too large.

    Raises:
        UserError: with what to do ``instead``.
    """
    needed = ALIVE * 8 * rows**2 / 1e9
    if needed > gigabytes:
        raise UserError(f"{rows} values at once need {needed:.3g} GB, max_gigabytes is {gigabytes:g}: {instead}")


def relation(B: Sequence[Sequence[float]] | None) -> np.ndarray | None:
    """A user's ``B``, checked.

    Raises:
        UserError: it is not symmetric and positive semi-definite.
    """
    if B is None:
        return None
    try:
        matrix = np.asarray(B, float)
    except (TypeError, ValueError) as error:
        raise UserError(f"B {B!r}: it must be a square matrix of numbers") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise UserError(f"B of shape {matrix.shape}: it must be a square matrix of numbers")
    size = np.abs(matrix).max()
    if size == 0 or not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix)[0] < -1e-10 * size:
        raise UserError("B: it must be symmetric and positive semi-definite, and not zero")
    return matrix
