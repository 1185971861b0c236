"""The settings of the paper's own algorithms, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowvar.errors import UserError, positive, whole
from lowvar.integrals.base import Samples
from lowvar.integrals.exact.settings import symmetric
from lowvar.integrals.kernels import Kernel, kernel

# Adam's rate on the borehole problem by the mean number of points of the tasks: Appendix E.4.1 for 10, 20, 50, 100 and
# 150; Appendix E.4.2 for 30 and 40, which are its 40 and 60 points beside 20
BOREHOLE_RATES: Mapping[int, float] = {10: 0.09, 20: 0.06, 30: 0.04, 40: 0.02, 50: 0.012, 100: 0.0035, 150: 0.002}
BOREHOLE_B = (5e-4, 5e-5)  # diagonal, off-diagonal
BOREHOLE_B_START = 0.0032**2  # printed as 1e-5


@dataclass(frozen=True)
class Tuning:
    """How lengthscales are found: Adam on the marginal likelihood of mini-batches.

    Attributes:
        kernel: a name of ``lowvar.integrals.kernels``.
        kernel_options: its options.
        nu: squared lengthscale to start from, in the unit of the points squared; what is used without tuning.
        batch: points of the smallest task in a mini-batch, the others in proportion.
        rate: of Adam, for the logarithm of ``nu``.
        epochs: 0 for no tuning.
        constant: added to the Stein kernel in the likelihood.
        joint: one set of lengthscales for all tasks.
    """

    kernel: str
    kernel_options: Mapping[str, Any] | None
    nu: float
    batch: int
    rate: float
    epochs: int
    constant: float
    joint: bool = True
    chosen: Kernel = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "chosen", kernel(self.kernel, **(self.kernel_options or {})))
        positive("nu", self.nu)
        whole("tuning_batch", self.batch, least=1)
        positive("tuning_rate", self.rate)
        whole("tuning_epochs", self.epochs, least=0)
        positive("tuning_constant", self.constant, or_zero=True)


@dataclass(frozen=True)
class Descent:
    """How coefficients are found: Adam on mini-batches of the penalised least-squares objective.

    Attributes:
        penalty: ``lambda`` of ``lambda |theta|^2``, the Euclidean norm (Appendix A.2).
        batch: points of the largest task in a mini-batch, the others in proportion.
        rate: of Adam: a number, or numbers by mean points of the tasks (see ``rate_at``).
        decay: the rates are multiplied by it after every epoch.
        epochs: how many.
        shuffle: a new order of the points for every epoch after the first.
        record: every how many epochs the estimate of the last task is kept; 0 for never.
    """

    penalty: float
    batch: int
    rate: float | Mapping[int, float]
    decay: float
    epochs: int
    shuffle: bool
    record: int

    def __post_init__(self):
        positive("penalty", self.penalty, or_zero=True)
        whole("batch", self.batch, least=1)
        rates = self.rate if isinstance(self.rate, Mapping) else {1: self.rate}
        for size, rate in rates.items():
            positive("rate", rate)
            if not str(size).isdecimal() or int(size) < 1:
                raise UserError(f"rate: {size!r} is no number of points; give one rate, or rates by number of points")
        if not rates:
            raise UserError("rate: no number is given; give one rate, or rates by number of points")
        positive("decay", self.decay)
        whole("epochs", self.epochs, least=1)
        whole("record", self.record, least=0)

    def rate_at(self, points: float) -> float:
        """The rate at a mean number of points; between the sizes given log-log linear, outside the nearest."""
        if not isinstance(self.rate, Mapping):
            return float(self.rate)
        sizes, rates = zip(*sorted((int(size), rate) for size, rate in self.rate.items()), strict=True)
        return float(np.exp(np.interp(np.log(points), np.log(sizes), np.log(rates))))


def check_batches(samples: Samples, tuning: Tuning, descent: Descent | None = None) -> None:
    """Refuses mini-batches of more points than there are.

    Raises:
        UserError: a batch is too large.
    """
    if tuning.epochs and tuning.batch > min(samples.sizes):
        raise UserError(f"tuning_batch {tuning.batch}: the smallest task has {min(samples.sizes)} points")
    if descent is not None and descent.batch > max(samples.sizes):
        raise UserError(f"batch {descent.batch}: the largest task has {max(samples.sizes)} points")


def fewest(tuning: Tuning, descent: Descent | None = None) -> int:
    """Points that every task needs, so that no batch is too large."""
    return max(3, tuning.batch if tuning.epochs else 0, descent.batch if descent else 0)


def relation(name: str, value: float | Sequence, tasks: int | None = None) -> np.ndarray:
    """A task relationship ``B (T, T)``, checked.

    Args:
        name: of the option, for messages.
        value: a number ``b`` for ``b I``, a pair ``(diagonal, off-diagonal)``, or ``T`` rows.
        tasks: ``T``; None where only the value is to be checked.

    Raises:
        UserError: it has another shape, or is not symmetric positive definite.
    """
    given = value
    if np.shape(value) in ((), (2,)) and not isinstance(value, str):
        diagonal, other = (value, 0.0) if np.shape(value) == () else value  # type: ignore[misc]
        given = other + (np.asarray(diagonal, float) - other) * np.eye(tasks or 2)
    matrix = symmetric(name, given, tasks)
    if np.linalg.eigvalsh(matrix)[0] <= 0:
        raise UserError(f"{name}: it must be positive definite; its smallest eigenvalue is not positive")
    return matrix
