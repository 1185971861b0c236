"""Samples of all tasks as one set of standardised tensors, and products of them that round alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from lowvar.integrals.base import Samples


class Batched:
    """A dataclass whose tensors begin with an axis of repetitions, but for those of the fields ``one_for_all``."""

    one_for_all: ClassVar[tuple[str, ...]] = ()

    def pick(self, which: torch.Tensor | slice) -> Self:
        """These repetitions alone."""
        return _each_tensor(lambda array: array[which], self)

    def put(self, which: torch.Tensor, some: Self) -> Self:
        """A copy with repetitions ``which`` replaced by ``some``."""
        return _each_tensor(lambda array, other: array.index_copy(0, which, other), self, some)

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """The repetitions of all, one after the other."""
        return _each_tensor(lambda *arrays: torch.cat(arrays), *several)


def _each_tensor(function: Callable[..., torch.Tensor], first: Any, *others: Any) -> Any:
    """``function`` of corresponding tensors; of all else the first."""
    if isinstance(first, Batched) and is_dataclass(first):
        names = [field.name for field in fields(first) if field.name not in first.one_for_all]
        changed = {name: _each_tensor(function, *(getattr(one, name) for one in (first, *others))) for name in names}
        return replace(first, **changed)
    if isinstance(first, dict):
        return {name: _each_tensor(function, *(one[name] for one in (first, *others))) for name in first}
    return function(first, *others) if isinstance(first, torch.Tensor) else first


@dataclass(frozen=True)
class Stacked(Batched):
    """Points of all tasks one after the other, in units of their spread: float64 on torch's default device.

    Tasks with points of their own are rows: ``S = 1``, ``q = T``. Tasks that share their points are columns: ``S = T``,
    ``q = 1``, and ``M`` is the number of points.

    Attributes:
        x: ``(R, M, d)``; the points are ``x_shift + x_scale x``.
        scores: ``(R, M, d)``, with respect to ``x``.
        y: ``(R, M, S)``; the values of task ``t`` are ``y_shift[t] + y_scale[t] y``.
        member: ``(M, q)``, one where a row belongs to the task, else zero: the design of the constants.
        x_shift: ``(R, d)``.
        x_scale: ``(R, d)``.
        y_shift: ``(R, T)``.
        y_scale: ``(R, T)``.
        ridge: ``(M,)``, a noise variance of each row that is given, in the unit of ``y^2``; zero unless a penalty is.
    """

    one_for_all = ("member", "ridge")

    x: torch.Tensor
    scores: torch.Tensor
    y: torch.Tensor
    member: torch.Tensor
    x_shift: torch.Tensor
    x_scale: torch.Tensor
    y_shift: torch.Tensor
    y_scale: torch.Tensor
    ridge: torch.Tensor

    @property
    def repetitions(self) -> int:
        """``R``."""
        return self.y.shape[0]

    @property
    def rows(self) -> int:
        """``M``."""
        return self.y.shape[1]

    @property
    def tasks(self) -> int:
        """``T``."""
        return self.y_shift.shape[1]

    def thin(self, rows: int) -> "Stacked":
        """About ``rows`` of the rows, spread evenly over every task; no task keeps fewer than three."""
        if rows >= self.rows:
            return self
        kept = []
        for column in self.member.T:
            own = torch.nonzero(column)[:, 0]
            number = min(len(own), max(3, round(rows * len(own) / self.rows)))
            kept.append(own[torch.linspace(0, len(own) - 1, number, device=own.device).round().long()])
        keep = torch.cat(kept)
        thinned = {name: getattr(self, name)[:, keep] for name in ("x", "scores", "y")}
        return replace(self, member=self.member[keep], ridge=self.ridge[keep], **thinned)

    def columns(self, number: int) -> "Stacked":
        """About ``number`` of the columns of values, spread evenly."""
        if number >= self.y.shape[2]:
            return self
        return replace(self, y=self.y[:, :, torch.linspace(0, self.y.shape[2] - 1, number).round().long()])

    def standardised(self, B: np.ndarray) -> torch.Tensor:
        """A root ``(R, T, T)`` of ``B (T, T)``, of the values' own unit, for standardised values."""
        scale = _inverse(self.y_scale)
        values, vectors = torch.linalg.eigh(self.y.new_tensor(B) * scale[:, :, None] * scale[:, None])
        return vectors * values.clamp(min=0).sqrt()[:, None]

    def points(self, points: np.ndarray, scores: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Other points ``(R, n, d)`` and scores in these units."""
        return (tensor(points) - self.x_shift[:, None]) / self.x_scale[:, None], tensor(scores) * self.x_scale[:, None]


def tensor(array) -> torch.Tensor:
    """A copy as float64 on torch's default device, with torch's alignment: NumPy's differs from run to run."""
    return torch.tensor(np.asarray(array, order="C"), dtype=torch.float64, device=torch.get_default_device())


def numpy(array: torch.Tensor) -> np.ndarray:
    """On the host."""
    return array.detach().cpu().numpy()


def stack(samples: Samples, standardise: bool = True, shared: bool = False, penalty: float | None = None) -> Stacked:
    """All tasks as one problem.

    Args:
        samples: points, scores and values.
        standardise: subtract the mean of the points and divide by their standard deviation, input by input, over all
            tasks; scores are multiplied by it. Values are standardised, task by task, unless there is a penalty.
        shared: tasks as columns; the samples must be shared.
        penalty: ``lambda`` of eq. (8), not with ``shared``: values keep their unit, and task ``t`` the ridge
            ``lambda m_t``.

    Returns:
        Tensors. An input that does not vary is divided by one; an integrand that does not has ``y = y_scale = 0``.
    """
    one = 1 if shared else samples.tasks
    x, scores = (tensor(np.concatenate(of[:one], 1)) for of in (samples.points, samples.scores))
    y = tensor(np.concatenate(samples.values, 1))
    if shared:
        y = torch.stack(y.split(samples.sizes, 1), 2)
        member, sizes = torch.ones_like(y[0, :, :1]), float(y.shape[1])
        y_shift, square = y.mean(1), y.square().mean(1).sqrt()
        y = y - y_shift[:, None]
        y_scale = _spread((y.square().sum(1) / (sizes - 1)).sqrt(), square)
        y = y * _inverse(y_scale)[:, None]
    else:
        task = np.repeat(np.arange(samples.tasks), samples.sizes)
        member = tensor(task[:, None] == np.arange(samples.tasks))
        sizes = member.sum(0)
        own = y[:, :, None] * member  # (R, M, T)
        y_shift, square = own.sum(1) / sizes, (own.square().sum(1) / sizes).sqrt()
        own = (own - y_shift[:, None]) * member
        y_scale = _spread((own.square().sum(1) / (sizes - 1)).sqrt(), square)
        if penalty is not None:
            y_scale = torch.ones_like(y_scale)
        y = (own * _inverse(y_scale)[:, None]).sum(2, keepdim=True)
    x_shift, x_scale = torch.zeros_like(x[:, 0]), torch.ones_like(x[:, 0])
    if standardise:
        x_shift = x.mean(1)
        x_scale = _spread(deviation(x), x_shift)
        x_scale = torch.where(x_scale > 0, x_scale, 1.0)
        x, scores = (x - x_shift[:, None]) / x_scale[:, None], scores * x_scale[:, None]
    ridge = (0.0 if penalty is None else penalty) * (member @ member.sum(0))
    return Stacked(x, scores, y, member, x_shift, x_scale, y_shift, y_scale, ridge)


def deviation(x: torch.Tensor) -> torch.Tensor:
    """Standard deviations over axis 1; ``Tensor.std`` rounds differently for one repetition."""
    return ((x - x.mean(1, keepdim=True)).square().sum(1) / (x.shape[1] - 1)).sqrt()


def _spread(deviation: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """Standard deviations; zero where they are nothing but rounding."""
    return torch.where(deviation > 1e-13 * size.abs(), deviation, 0.0)


def _inverse(scale: torch.Tensor) -> torch.Tensor:
    """Zero of zero."""
    return torch.where(scale > 0, 1 / scale, 0.0)


def times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left (R, n, k) @ right (R, k, c)``, one column being multiplied as two.

    Libraries have another routine for a single matrix times a single column, whose last digits differ, and a search for
    hyper-parameters makes more digits of them: a repetition's result would depend on how many others there are.
    """
    if right.shape[-1] > 1:
        return left @ right
    return (left @ torch.cat([right, right], -1))[..., :1]


def pulled_back(z: torch.Tensor, *pairs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Vector-Jacobian product in ``z``: of the derivatives ``slope`` in ``of``, summed over the pairs ``(of, slope)``.

    What does not depend on ``z``, because it was given and is not learnt, adds nothing.
    """
    moving = [(of, slope) for of, slope in pairs if of.requires_grad]
    return torch.autograd.grad([of for of, _ in moving], z, [slope for _, slope in moving])[0]
