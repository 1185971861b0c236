"""The fit that the exact integrators share: hyper-parameters by REML, then the constants, then a report.

The search has a few starts, then BFGS, on some of the rows and then on all, in coordinates of ``B`` that move along
with it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lowvar.errors import UserError
from lowvar.integrals.base import Integrals, Samples
from lowvar.integrals.exact.bfgs import Minimum, minimise
from lowvar.integrals.exact.gls import Fit, solve
from lowvar.integrals.exact.reml import NUGGET, TREND, Covariance, Hyper, Space, objective, pieces, plus_diagonal
from lowvar.integrals.exact.settings import FitSettings
from lowvar.integrals.stacked import Batched, Stacked, diagonal, stack

LENGTHSCALES = 1.0, 10.0, 200.0  # common ones to start from, in standard deviations of the points
ONE_LENGTHSCALE = 3.0, 30.0, 3e4  # then one input after the other
NUGGETS = 1e-8, 1e-3
INPUTS = 30  # with more of them none is looked at alone
ROWS = 64  # of the first search
ROUND = 40  # evaluations between two changes of coordinates
GRADIENT = 1e-2  # gradient tolerance, of the log likelihood
DIFFERENCE = 1e-3  # value tolerance, of the log likelihood
TOO_FEW = 2  # values for each parameter that is learnt
FAR_OFF = 4.0  # mean squared standardised residual of left-out values


@dataclass(frozen=True)
class KernelFit(Batched):
    """Learnt hyper-parameters, and the constants and functions with them.

    Attributes:
        data: the samples.
        covariance: kernel and operator.
        space: the hyper-parameters that were learnt.
        hyper: all of them.
        level: the mean diagonal of the kernel matrix, ``(R,)``.
        ended: the end of the search.
        fit: constants and weights.
    """

    data: Stacked
    covariance: Covariance
    space: Space
    hyper: Hyper
    level: np.ndarray
    ended: Minimum
    fit: Fit

    def of_own_points(self) -> Integrals:
        """The results, where each task has points of its own."""
        member, factor = self.data.member, self.hyper.factor

        def coefficients(task: int) -> np.ndarray:
            row = (member @ factor @ factor[:, task, :, None])[:, :, 0]  # B[task, t_j], (R, M)
            return row * self.fit.weights

        size = ((factor**2).sum(-1) @ member.T).mean(-1)  # mean diagonal of B over the values
        return self.report(np.sqrt(self.fit.amplitude * self.level / size)[:, None, None], coefficients)

    def report(self, amplitude: np.ndarray, coefficients: Callable[[int], np.ndarray]) -> Integrals:
        """Estimates, errors, flags, learnt parameters and the fitted functions.

        Args:
            amplitude: ``(R, 1, 1)``, makes of ``hyper.factor`` a factor of the functions' mean prior covariance.
            coefficients: of a task's function in the kernel at the rows of ``data``, ``(R, M)``.
        """
        scale = self.data.y_scale

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            x, lx = self.data.points(points, scores)
            cross = self.covariance.between(self.hyper.kernel, x, self.data.x, lx, self.data.scores)
            values = self.fit.beta[:, task, None] + (cross @ coefficients(task)[:, :, None])[:, :, 0]
            return self.data.y_shift[:, task, None] + scale[:, task, None] * values

        factor = self.hyper.factor * amplitude * scale[:, :, None]
        B = factor @ factor.mT
        deviation = np.maximum(np.sqrt(diagonal(B)), 1e-150)
        info = {
            "nugget": self.hyper.nugget,
            "B": B,
            "correlation": B / (deviation[:, :, None] * deviation[:, None]),
            "steps": self.ended.steps,
            "reml_error": self.fit.reml_error * scale,
            "likely_error": self.fit.likely_error * scale,
            "jackknife_error": self.fit.jackknife_error * scale,
            "calibration": self.fit.calibration,
            "farthest": self.fit.farthest,
        }
        if "log_lengthscale" in self.hyper.kernel:
            info["lengthscale"] = np.exp(self.hyper.kernel["log_lengthscale"]) * self.data.x_scale
        if "log_trend" in self.hyper.kernel:
            info["trend"] = np.exp(self.hyper.kernel["log_trend"][:, 0])
        return Integrals(
            value=self.data.y_shift + scale * self.fit.beta,
            standard_error=scale * self.fit.error,
            condition=self.fit.condition,
            flags=_flags(self),
            info=info,
            fitted=fitted,
        )


def space_of(data: Stacked, chosen: FitSettings, factor: np.ndarray, learn_factor: bool) -> Space:
    """The hyper-parameters to learn; the factor of ``B``, ``(R, q, q)``, is given, or to start from.

    Raises:
        UserError: the kernel has no lengthscale, but one was given, or one of another length; its matrix or its
            derivatives are wrong.
    """
    repetitions, dim = data.x.shape[0], data.x.shape[2]
    chosen.covariance.kernel.check(data.x[0, :6], data.scores[0, :6], chosen.operator)
    defaults = chosen.covariance.defaults(dim)
    parameters = {name: np.broadcast_to(value, (repetitions, len(value))) for name, value in defaults.items()}
    learnt = tuple(parameters)
    if chosen.scales is not None:
        if "log_lengthscale" not in parameters or len(chosen.scales) not in (1, dim):
            raise UserError(f"lengthscale: give one, or {dim}, and only to a kernel that has a lengthscale")
        given = np.array(chosen.scales) / data.x_scale
        if parameters["log_lengthscale"].shape[1] < dim and len(chosen.scales) > 1:
            raise UserError("lengthscale: a kernel without ard takes one")
        parameters["log_lengthscale"] = np.log(given)  # one for each input: standardisation may tell them apart
        learnt = tuple(name for name in learnt if name != "log_lengthscale")
    own = chosen.given_nugget
    nugget = np.full(repetitions, NUGGET[0] if own is None else own)
    deviation = data.x.std(axis=1, ddof=1)
    spread = np.log(np.where(deviation > 0, deviation, 1.0))
    return Space(Hyper(parameters, nugget, factor), learnt, own is None, learn_factor, spread)


def fit(samples: Samples, chosen: FitSettings, B: np.ndarray | None) -> KernelFit:
    """All tasks at once, each with points of its own, in ``O((sum_t m_t)^3)``; ``B (T, T)``, or None to learn it."""
    data = stack(samples, chosen.standardise, penalty=chosen.penalty)
    if B is None:
        factor = np.broadcast_to(correlation_factor(data.tasks), (data.repetitions, data.tasks, data.tasks))
    else:
        factor = data.standardised(B)
    space = space_of(data, chosen, factor, B is None and data.tasks > 1)
    hyper, ended = learn(chosen.covariance, data, space, chosen.steps)
    levels, fits = [], []
    for which, here in pieces(data):
        matrix, level = chosen.covariance.gram(here, hyper.pick(which))
        noise = (hyper.nugget[which] * level)[:, None] + here.ridge
        levels.append(level)
        fits.append(solve(plus_diagonal(matrix, noise), noise, here.y[:, :, 0], here.member, chosen.beta))
    return KernelFit(data, chosen.covariance, space, hyper, np.concatenate(levels), ended, Fit.joined(fits))


def learn(covariance: Covariance, data: Stacked, space: Space, steps: int) -> tuple[Hyper, Minimum]:
    """Hyper-parameters of the largest restricted likelihood, for each repetition; from ``space.fixed``'s ``B``."""
    repetitions = np.arange(data.repetitions)
    z = space.pack(space.fixed)
    if z.shape[1] == 0:
        none = np.zeros_like(repetitions)
        return space.fixed, Minimum(z, 1.0 * none, z, none, none == 0, z[:, :, None], z > 0)
    levels = list(_thinned(data))
    starts = [_better(covariance, levels[0], one, repetitions) for one in _starts(space)]
    times = np.tile(repetitions, len(starts))

    def climb(level: Stacked, space: Space, origin: np.ndarray, hessian: np.ndarray | None = None):
        def function_of(here, which):
            return objective(covariance, level, here, origin[which])

        return search(function_of, space, level.rows / level.member.shape[1], steps, hessian)

    space, ended = climb(levels[0], replace(space.pick(times), fixed=Hyper.joined(starts)), times)
    values = ended.value
    if len(levels) > 1:
        where = np.arange(len(times))
        values = objective(covariance, levels[1], space, times)(space.pack(space.fixed), where, False)[0]
    best = values.reshape(-1, len(repetitions)).argmin(axis=0) * len(repetitions) + repetitions
    space, ended = space.pick(best), ended.pick(best)
    for before, level in pairwise(levels):
        space, ended = climb(level, space, repetitions, ended.hessian * (level.rows / before.rows))
    return space.fixed, ended


def search(
    function_of: Callable[[Space, np.ndarray], Callable],
    space: Space,
    rows: float,
    steps: int,
    hessian: np.ndarray | None = None,
) -> tuple[Space, Minimum]:
    """The maximum of the restricted likelihood next to the start, of ``N`` problems.

    ``B = F S S' F'`` for the factor ``F`` at the beginning of a round and a triangular ``S`` that is learnt: how much
    the likelihood bends in ``S`` hardly depends on ``F``, which may be nearly singular. Each round renews ``F``.

    Args:
        function_of: ``(space, which (A,)) -> function`` for ``bfgs.minimise``, of these problems alone; the space too
            has these alone.
        space: what is learnt, with the start as ``fixed``.
        rows: values of a task, on average.
        steps: evaluations at most.
        hessian: to start with, ``(N, p, p)``; of ``B`` it is not used.

    Returns:
        The space with the end as ``fixed``, and the end.
    """
    active = np.arange(len(space.spread))
    whole: Minimum | None = None
    left = steps
    while left > 0 and len(active):
        here = space.pick(active)
        if hessian is not None and space.factor:
            hessian = _renewed(hessian, here, rows)
        ended = minimise(
            function_of(here, active),
            here.pack(here.fixed),
            *here.bounds(),
            steps=min(left, ROUND) if space.factor else left,
            gradient_tolerance=GRADIENT,
            value_tolerance=DIFFERENCE,
            hessian=hessian,
        )
        left -= ROUND if space.factor else left
        fixed = here.unpack(ended.x, np.arange(len(active)))
        space = replace(space, fixed=space.fixed.put(active, fixed))
        whole = ended if whole is None else whole.put(active, replace(ended, steps=whole.steps[active] + ended.steps))
        active = np.flatnonzero(~whole.converged)
        hessian = whole.hessian[active]
    assert whole is not None
    return space, whole


def _renewed(hessian: np.ndarray, space: Space, rows: float) -> np.ndarray:
    """Resets the block of ``S`` to its expected Hessian at ``S = I``, as if rows of the same task were independent."""
    on_diagonal = space.diagonal
    first = hessian.shape[1] - len(on_diagonal)
    own = np.diag(np.where(on_diagonal, 2 * rows, rows))
    new = hessian.copy()
    new[:, first:] = 0
    new[:, :, first:] = 0
    new[:, first:, first:] = own
    return new


def _thinned(data: Stacked) -> Iterator[Stacked]:
    """The samples at last, before them some of the rows, three times as many each time."""
    rows = ROWS
    while 1.5 * rows < data.rows:
        yield data.thin(rows)
        rows *= 3
    yield data


def _starts(space: Space) -> Iterator[Space]:
    """Starts with a trend and without: the likelihood may have a maximum for either."""
    fixed = space.fixed
    yield space
    if "log_trend" in space.kernel:
        none = np.full_like(fixed.kernel["log_trend"], math.log(TREND[0]))
        yield replace(space, fixed=replace(fixed, kernel=fixed.kernel | {"log_trend": none}))


def _better(covariance: Covariance, data: Stacked, space: Space, which: np.ndarray) -> Hyper:
    """The best of a few: common lengthscales and nuggets, signs of ``B``, then each lengthscale alone."""
    function = objective(covariance, data, space, which)
    best = space.pack(space.fixed)
    at_best = function(best, which, False)[0]

    def offer(change: Callable[[Hyper], Hyper]) -> None:
        nonlocal best, at_best
        z = space.pack(change(space.unpack(best, which)))
        there = function(z, which, False)[0]
        better = there < at_best
        best, at_best = np.where(better[:, None], z, best), np.where(better, there, at_best)

    def common() -> None:
        for lengthscale in LENGTHSCALES if space.lengthscales else (1.0,):
            kernel = {name: space.around(name, lengthscale=lengthscale) for name in space.lengthscales}
            for nugget in NUGGETS if space.nugget else (1.0,):
                offer(lambda h: Hyper(h.kernel | kernel, np.full_like(h.nugget, nugget), h.factor))

    common()
    if space.factor:
        offer(lambda h: Hyper(h.kernel, h.nugget, np.broadcast_to(np.eye(h.factor.shape[1]), h.factor.shape)))
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
    sign = np.ones_like(factor[0])
    sign[task] = -1
    sign[:, task] *= -1
    return factor * sign


def _put(values, j, one):
    return np.concatenate([values[:, :j], one, values[:, j + 1 :]], axis=1)


def correlation_factor(tasks: int, correlation: float = 0.95) -> np.ndarray:
    """The factor of a ``B`` that has this correlation between all tasks, ``(T, T)``."""
    return np.linalg.cholesky((1 - correlation) * np.eye(tasks) + correlation)


def _flags(found: KernelFit) -> dict[str, np.ndarray]:
    """See ``base.FLAGS``; a nugget at its lower bound, or a lengthscale at its upper one, is no reason for distrust."""
    data, space, ended, fit = found.data, found.space, found.ended, found.fit
    values = data.y.shape[1] * data.y.shape[2]
    parameters = ended.x.shape[1] + 1 + data.tasks  # the amplitude and the constants
    inputs = [name.endswith("log_lengthscale") for name in space.kernel for _ in range(space.width(name))]
    short = (ended.at_bound & (ended.x <= space.bounds()[0]))[:, : len(inputs)][:, inputs].any(1)
    rough = found.hyper.nugget >= (1 - 1e-9) * NUGGET[1] if space.nugget else np.zeros_like(short)
    return {
        "ill_conditioned": np.any((fit.rounding > fit.error) | np.isnan(fit.beta), axis=1),
        "few_points": np.full_like(short, values < TOO_FEW * parameters),
        "at_bound": np.logical_or(short, rough),
        "not_converged": ~ended.converged,
        "miscalibrated": fit.calibration > FAR_OFF,
    }
