"""Samples that are refused before any work: too few points, or more than memory holds."""

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
