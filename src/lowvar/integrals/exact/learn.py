"""The search for hyper-parameters: a few starts, then BFGS, on some of the rows and then on all."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import torch

from lowvar.integrals.exact.bfgs import Minimum
from lowvar.integrals.exact.hyper import TREND, Hyper
from lowvar.integrals.exact.likelihood_search import search
from lowvar.integrals.exact.reml import Covariance, objective
from lowvar.integrals.exact.space import Space
from lowvar.integrals.stacked import Stacked

LENGTHSCALES = 1.0, 10.0, 200.0  # common ones to start from, in standard deviations of the points
ONE_LENGTHSCALE = 3.0, 30.0, 3e4  # then one input after the other
NUGGETS = 1e-8, 1e-3
INPUTS = 30  # with more of them none is looked at alone
ROWS = 64  # of the first search


def learn(covariance: Covariance, data: Stacked, space: Space, steps: int) -> tuple[Hyper, Minimum]:
    """Hyper-parameters of the largest restricted likelihood, for each repetition; from ``space.fixed``'s ``B``."""
    repetitions = torch.arange(data.repetitions, device=data.y.device)
    z = space.pack(space.fixed)
    if z.shape[1] == 0:
        none = torch.zeros_like(repetitions)
        return space.fixed, Minimum(z, none.to(z), z, none, none == 0, torch.diag_embed(z), z > 0)
    levels = list(_thinned(data))
    starts = [_better(covariance, levels[0], one, repetitions) for one in _starts(space)]
    times = repetitions.repeat(len(starts))

    def climb(level: Stacked, space: Space, origin: torch.Tensor, hessian: torch.Tensor | None = None):
        def function_of(here, which):
            return objective(covariance, level, here, origin[which])

        return search(function_of, space, level.rows / level.member.shape[1], steps, hessian)

    space, ended = climb(levels[0], replace(space.pick(times), fixed=Hyper.of(starts)), times)
    values = ended.value
    if len(levels) > 1:
        where = torch.arange(len(times), device=times.device)
        values = objective(covariance, levels[1], space, times)(space.pack(space.fixed), where, False)[0]
    best = values.reshape(-1, len(repetitions)).argmin(0) * len(repetitions) + repetitions
    space, ended = space.pick(best), ended.pick(best)
    for before, level in pairwise(levels):
        space, ended = climb(level, space, repetitions, ended.hessian * (level.rows / before.rows))
    return space.fixed, ended


def _thinned(data: Stacked) -> Iterator[Stacked]:
    """The samples at last, before them some of the rows, three times as many each time."""
    rows = ROWS
    while 1.5 * rows < data.rows:
        yield data.thin(rows)
        rows *= 3
    yield data


def _starts(space: Space) -> Iterator[Space]:
    """With a trend and without: the likelihood may have a maximum for either."""
    fixed = space.fixed
    yield space
    if "log_trend" in space.kernel:
        none = torch.full_like(fixed.kernel["log_trend"], math.log(TREND[0]))
        yield replace(space, fixed=replace(fixed, kernel=fixed.kernel | {"log_trend": none}))


def _better(covariance: Covariance, data: Stacked, space: Space, which: torch.Tensor) -> Hyper:
    """The best of a few: common lengthscales and nuggets, signs of ``B``, then each lengthscale alone."""
    function = objective(covariance, data, space, which)
    best = space.pack(space.fixed)
    at_best = function(best, which, False)[0]

    def offer(change: Callable[[Hyper], Hyper]) -> None:
        nonlocal best, at_best
        z = space.pack(change(space.unpack(best, which)))
        there = function(z, which, False)[0]
        better = there < at_best
        best, at_best = torch.where(better[:, None], z, best), torch.where(better, there, at_best)

    def common() -> None:
        for lengthscale in LENGTHSCALES if space.lengthscales else (1.0,):
            kernel = {name: space.around(name, lengthscale=lengthscale) for name in space.lengthscales}
            for nugget in NUGGETS if space.nugget else (1.0,):
                offer(lambda h: Hyper(h.kernel | kernel, torch.full_like(h.nugget, nugget), h.factor))

    common()
    if space.factor:
        offer(lambda h: Hyper(h.kernel, h.nugget, torch.eye(h.factor.shape[1]).to(h.factor).expand_as(h.factor)))
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
    return space.unpack(best, which)


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
