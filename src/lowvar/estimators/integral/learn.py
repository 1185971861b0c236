"""The search for hyper-parameters: a few starts, then BFGS, on some of the rows and then on all."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from lowvar.estimators.integral.bfgs import Minimum, minimise
from lowvar.estimators.integral.hyper import TREND, Hyper, Space
from lowvar.estimators.integral.reml import Covariance, objective
from lowvar.estimators.integral.stacked import Stacked

LENGTHSCALES = 1.0, 10.0, 200.0  # common ones to start from, in standard deviations of the points
ONE_LENGTHSCALE = 3.0, 30.0, 3e4  # then one input after the other
NUGGETS = 1e-8, 1e-3
INPUTS = 30  # with more of them none is looked at alone
ROWS = 64  # more rows than 1.5 times this are thinned to it at first
TOLERANCE = 1e-2  # a slope of the log likelihood that is as good as none
DIFFERENCE = 1e-3  # a difference of the log likelihood that is


def learn(covariance: Covariance, data: Stacked, space: Space, steps: int) -> tuple[Hyper, Minimum]:
    """Hyper-parameters of the largest restricted likelihood, for each repetition.

    Args:
        covariance: kernel and operator.
        data: samples.
        space: what is learnt; its ``fixed`` has the ``B`` to start from.
        steps: evaluations at most, of each of the two searches.
    """
    lower, upper = space.bounds()
    which = torch.arange(data.repetitions, device=data.y.device)
    starts = list(_starts(space))
    if starts[0].shape[1] == 0:
        none, z = torch.zeros_like(which), starts[0]
        return space.fixed, Minimum(z, none.to(z), z, none, none == 0, z > 0)

    def search(function, start):
        times = len(start) // len(which)
        return minimise(
            lambda z, problem: function(z, problem % len(which)),
            start, lower.repeat(times, 1), upper.repeat(times, 1),
            steps=steps, gradient_tolerance=TOLERANCE, value_tolerance=DIFFERENCE,
        )  # fmt: skip

    few = data.thin(ROWS) if data.rows > 1.5 * ROWS else data
    of_few, of_all = objective(covariance, few, space), objective(covariance, data, space)
    better = [_better(start, lambda z: of_few(z, which, False)[0], space, which) for start in starts]
    ended = search(of_few, torch.cat(better))
    value = ended.value
    if few is not data:
        value = torch.cat([of_all(z, which, False)[0] for z in ended.x.split(len(which))])
    best = value.reshape(-1, len(which)).argmin(0) * len(which) + which
    ended = ended.pick(best)
    if few is not data:
        ended = search(of_all, ended.x)
    return space.unpack(ended.x, which), ended


def _starts(space: Space) -> Iterator[torch.Tensor]:
    """With a trend and without: the likelihood may have a maximum for either."""
    fixed = space.fixed
    yield space.pack(fixed)
    if "log_trend" in space.kernel:
        none = torch.full_like(fixed.kernel["log_trend"], math.log(TREND[0]))
        yield space.pack(replace(fixed, kernel=fixed.kernel | {"log_trend": none}))


def _better(best: torch.Tensor, value: Callable, space: Space, which: torch.Tensor) -> torch.Tensor:
    """The best of a few: common lengthscales and nuggets, signs of ``B``, then each lengthscale alone."""
    at_best = value(best)

    def offer(change):
        nonlocal best, at_best
        hyper = space.unpack(best, which)
        z = space.pack(change(hyper))
        there = value(z)
        better = there < at_best
        best, at_best = torch.where(better[:, None], z, best), torch.where(better, there, at_best)

    def common():
        for lengthscale in LENGTHSCALES if space.lengthscales else (1.0,):
            kernel = {name: space.around(name, lengthscale=lengthscale) for name in space.lengthscales}
            for nugget in NUGGETS if space.nugget else (1.0,):
                offer(lambda h: Hyper(h.kernel | kernel, torch.full_like(h.nugget, nugget), h.factor))

    common()
    if space.factor:
        for task in range(1, space.fixed.factor.shape[1]):
            offer(lambda h: Hyper(h.kernel, h.nugget, _flip(h.factor, task)))
        common()
    for name in space.lengthscales:
        inputs = space.width(name)
        if 1 < inputs <= INPUTS:
            for j in range(inputs):
                for lengthscale in ONE_LENGTHSCALE:
                    one = space.around(name, lengthscale=lengthscale)[:, j : j + 1]
                    offer(lambda h: Hyper(h.kernel | {name: _put(h.kernel[name], j, one)}, h.nugget, h.factor))
    return best


def _flip(factor, task):
    """The task's correlations with the others turned: its row but the diagonal, and the rest of its column."""
    sign = torch.ones_like(factor[0])
    sign[task] = -1
    sign[:, task] *= -1
    return factor * sign


def _put(values, j, one):
    return torch.cat([values[:, :j], one, values[:, j + 1 :]], 1)


def related(tasks: int, correlation: float = 0.95) -> torch.Tensor:
    """The factor of a ``B`` that has this correlation between all tasks, ``(T, T)``."""
    return torch.linalg.cholesky((1 - correlation) * torch.eye(tasks, dtype=torch.float64) + correlation)
