"""A fit in the units of the samples, with its learnt parameters and flags; tasks by themselves or in groups."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from lowvar.errors import UserError
from lowvar.integrals.base import Integrals
from lowvar.integrals.exact.bfgs import Minimum
from lowvar.integrals.exact.gls import Fit
from lowvar.integrals.exact.hyper import NUGGET, Hyper, Space
from lowvar.integrals.exact.reml import Covariance
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import Stacked, numpy

TOO_FEW = 2  # values for each parameter that is learnt
FAR_OFF = 4.0  # mean squared standardised residual of left-out values


def report(
    data: Stacked,
    hyper: Hyper,
    amplitude: torch.Tensor,
    space: Space,
    ended: Minimum,
    fit: Fit,
    covariance: Covariance,
    coefficients: Callable[[int], torch.Tensor],
) -> Integrals:
    """Estimates, errors, flags, learnt parameters and the fitted functions.

    Args:
        data: the samples.
        hyper: hyper-parameters.
        amplitude: ``(R, 1, 1)``, makes of ``hyper.factor`` a factor of the functions' mean prior covariance.
        space: the hyper-parameters that were learnt.
        ended: the end of the search.
        fit: constants and weights.
        covariance: kernel and operator.
        coefficients: of a task's function in the kernel at the rows of ``data``, ``(R, M)``.
    """
    scale = data.y_scale

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        x, lx = data.points(points, scores)
        cross = covariance.between(hyper.kernel, x, data.x, lx, data.scores)
        values = fit.beta[:, task, None] + (cross @ coefficients(task)[:, :, None])[:, :, 0]
        return numpy(data.y_shift[:, task, None] + scale[:, task, None] * values)

    factor = hyper.factor * amplitude * scale[:, :, None]
    B = factor @ factor.mT
    deviation = B.diagonal(dim1=-2, dim2=-1).sqrt().clamp(min=1e-150)
    info = {
        "nugget": hyper.nugget,
        "B": B,
        "correlation": B / (deviation[:, :, None] * deviation[:, None]),
        "steps": ended.steps,
        "reml_error": fit.reml_error * scale,
        "likely_error": fit.likely_error * scale,
        "jackknife_error": fit.jackknife_error * scale,
        "calibration": fit.calibration,
        "farthest": fit.farthest,
    }
    if "log_lengthscale" in hyper.kernel:
        info["lengthscale"] = hyper.kernel["log_lengthscale"].exp() * data.x_scale
    if "log_trend" in hyper.kernel:
        info["trend"] = hyper.kernel["log_trend"][:, 0].exp()
    return Integrals(
        value=numpy(data.y_shift + scale * fit.beta),
        standard_error=numpy(scale * fit.error),
        condition=numpy(fit.condition),
        flags={name: numpy(flag) for name, flag in flags(data, hyper, space, ended, fit).items()},
        info={name: numpy(entry) for name, entry in info.items()},
        fitted=fitted,
    )


def flags(data: Stacked, hyper: Hyper, space: Space, ended: Minimum, fit: Fit) -> dict[str, torch.Tensor]:
    """See ``base.FLAGS``; a nugget at its lower bound, or a lengthscale at its upper one, is no reason for distrust."""
    values = data.y.shape[1] * data.y.shape[2]
    parameters = ended.x.shape[1] + 1 + data.tasks  # the amplitude and the constants
    inputs = [name.endswith("log_lengthscale") for name in space.kernel for _ in range(space.width(name))]
    short = (ended.at_bound & (ended.x <= space.bounds()[0]))[:, : len(inputs)][:, inputs].any(1)
    rough = hyper.nugget >= (1 - 1e-9) * NUGGET[1] if space.nugget else torch.zeros_like(short)
    return {
        "ill_conditioned": (fit.rounding > fit.error).any(1) | fit.beta.isnan().any(1),
        "few_points": torch.full_like(short, values < TOO_FEW * parameters),
        "at_bound": short | rough,
        "not_converged": ~ended.converged,
        "miscalibrated": fit.calibration > FAR_OFF,
    }


def side_by_side(results: Sequence[Integrals]) -> Integrals:
    """Results of one task each as one; what was learnt gets an axis of tasks, the second."""
    return together(results, [[t] for t in range(len(results))])


def together(results: Sequence[Integrals], groups: Sequence[Sequence[int]]) -> Integrals:
    """Results of groups of tasks as one.

    Args:
        results: for each group.
        groups: its tasks; each task is in one group.

    Returns:
        What was learnt has an axis of tasks, the second; matrices are zero between groups.
    """
    tasks = sum(map(len, groups))
    place = {task: (g, i) for g, group in enumerate(groups) for i, task in enumerate(group)}
    order = np.argsort([task for group in groups for task in group])

    def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(arrays, 1)[:, order]

    def learnt(name: str) -> np.ndarray:
        entries = [result.info[name] for result in results]
        repetitions = len(entries[0])
        if name in ("B", "correlation"):
            whole = np.zeros((repetitions, tasks, tasks))
            for group, entry in zip(groups, entries, strict=True):
                whole[np.ix_(range(repetitions), group, group)] = entry
            return whole
        if name.endswith("_error"):
            return joined(entries)
        return joined([np.repeat(e[:, None], len(group), 1) for e, group in zip(entries, groups, strict=True)])

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        group, index = place[task]
        function = results[group].fitted
        assert function is not None
        return function(index, points, scores)

    return Integrals(
        value=joined([result.value for result in results]),
        standard_error=joined([result.standard_error for result in results]),
        condition=np.max([result.condition for result in results], axis=0),
        flags={name: np.any([result.flags[name] for result in results], axis=0) for name in results[0].flags},
        info={name: learnt(name) for name in results[0].info},
        fitted=fitted,
    )


def by_groups(
    samples: Samples,
    group: int | Sequence[Sequence[int]] | None,
    integrate: Callable[[Samples, Sequence[int]], Integrals],
) -> Integrals:
    """Each group of tasks by itself; what was learnt then has an axis of tasks, see ``together``.

    Args:
        samples: of all tasks.
        group: how many neighbours, or lists of tasks; None is one group.
        integrate: ``(samples of a group, its tasks) -> Integrals``.

    Raises:
        UserError: a group is empty, or the groups leave out a task or have one twice.
    """
    tasks = list(range(samples.tasks))
    if group is None:
        return integrate(samples, tasks)
    if isinstance(group, int):
        if group < 1:
            raise UserError(f"group {group}: it must be a positive number of tasks")
        groups = [tasks[first : first + group] for first in range(0, len(tasks), group)]
    else:
        try:
            groups = [[int(t) for t in one] for one in group]
        except (TypeError, ValueError) as error:
            raise UserError(f"group {group!r}: it must be a number of tasks, or lists of them") from error
    if sorted(t for one in groups for t in one) != tasks or not all(groups):
        raise UserError(f"group {group}: each of the tasks 0 to {len(tasks) - 1} must be in one group")
    return together([integrate(samples.of_tasks(one), one) for one in groups], groups)
