"""The options that the exact integrators share, and refusals before any work."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowvar.errors import TooFewPoints, UserError, positive, whole
from lowvar.integrals.base import Samples
from lowvar.integrals.exact.reml import Covariance
from lowvar.integrals.kernels import KERNELS, Kernel, kernel

ALIVE = 12  # matrices of the kernel's size that exist at the same time, at most


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How a kernel is chosen, learnt and fitted. A method that lacks an option of these leaves it at its default.

    Attributes:
        penalty: ``lambda`` of eq. (8), in place of the nugget: a ridge ``lambda m_t`` for task ``t``.
        kernel: as of ``control_functional``, and so are the options that are not listed here.
        scales: ``lengthscale`` as a tuple; None is learnt.
        covariance: what kernel, operator and trend amount to.

    Raises:
        UserError: one of them is unknown or out of range.
    """

    kernel: str | Kernel = "squared_exponential"
    kernel_options: Mapping[str, Any] | None = None
    ard: bool = True
    lengthscale: float | Sequence[float] | None = None
    nugget: float | None = None
    penalty: float | None = None
    standardise: bool = True
    beta: str = "gls"
    operator: int = 1
    trend: bool | None = None
    steps: int = 200
    max_gigabytes: float = 4.0
    scales: tuple[float, ...] | None = field(init=False, repr=False)
    covariance: Covariance = field(init=False, repr=False)

    def __post_init__(self):
        if self.beta not in ("gls", "mean"):
            raise UserError(f"beta {self.beta!r}: it must be 'gls' or 'mean'")
        if self.operator not in (1, 2):
            raise UserError(f"operator {self.operator}: it must be 1 or 2, the order of the Langevin Stein operator")
        if self.nugget is not None:
            positive("nugget", self.nugget, or_zero=True)
        if self.penalty is not None:
            positive("penalty", self.penalty)
            if self.nugget is not None:
                raise UserError(
                    "penalty and nugget: give one of them; the penalty has a ridge of its own for each task"
                )
        whole("steps", self.steps, 1)
        positive("max_gigabytes", self.max_gigabytes)
        object.__setattr__(self, "scales", _scales(self.lengthscale))
        trend = self.scales is None if self.trend is None else self.trend
        object.__setattr__(self, "covariance", Covariance(self._kernel(), self.operator, trend))

    def _kernel(self) -> Kernel:
        if isinstance(self.kernel, str):
            options = dict(self.kernel_options or {})
            if self.kernel in KERNELS and "ard" in KERNELS.options_of(self.kernel):
                options.setdefault("ard", self.ard)
            return kernel(self.kernel, **options)
        if not isinstance(self.kernel, Kernel):
            raise UserError(f"kernel {self.kernel!r}: it must be one of {', '.join(KERNELS)}")
        return self.kernel

    @property
    def given_nugget(self) -> float | None:
        """The nugget, which is zero beside a penalty; None is learnt."""
        return self.nugget if self.penalty is None else 0.0

    @property
    def exact_on(self) -> str:
        """See ``IntegralProperties``: where the kernel is learnt, its span is not known beforehand."""
        known = self.scales is not None and not self.covariance.trend
        return "span" if known and self.nugget is not None and self.nugget <= 1e-8 else "constants"


def _scales(lengthscale: float | Sequence[float] | None) -> tuple[float, ...] | None:
    if lengthscale is None:
        return None
    try:
        scales = tuple(map(float, np.atleast_1d(np.asarray(lengthscale))))
    except (TypeError, ValueError) as error:
        raise UserError(f"lengthscale {lengthscale!r}: it must be a number, or one for each input") from error
    if not all(0 < one < math.inf for one in scales):
        raise UserError(f"lengthscale {lengthscale}: it must be positive, or None to learn it")
    return scales


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


def symmetric(name: str, value: Any, tasks: int | None = None) -> np.ndarray:
    """A symmetric matrix of finite numbers, ``(T, T)``.

    Raises:
        UserError: it is another thing, or has not ``tasks`` rows.
    """
    try:
        matrix = np.asarray(value, float)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    rows = len(matrix) if tasks is None and matrix.ndim else tasks
    if matrix.shape != (rows, rows) or not np.abs(matrix - matrix.T).max() <= 1e-6 * np.abs(matrix).max():
        given = f"{tasks} rows, one for each task" if tasks else "as many rows as columns"
        raise UserError(f"{name}: it must be a symmetric matrix of finite numbers, of {given}")
    return matrix


def relation(B: Sequence[Sequence[float]] | None) -> np.ndarray | None:
    """A user's ``B``, checked.

    Raises:
        UserError: it is not symmetric and positive semi-definite, or zero.
    """
    if B is None:
        return None
    matrix = symmetric("B", B)
    size = np.abs(matrix).max()
    if size == 0 or np.linalg.eigvalsh(matrix)[0] < -1e-10 * size:
        raise UserError("B: it must be symmetric and positive semi-definite, and not zero")
    return matrix
