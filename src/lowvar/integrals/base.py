"""An estimator of integrals: the samples that it takes, its properties, its results, and how it is made by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from lowvar.errors import UserError, kind_of
from lowvar.integrals import INTEGRAL
from lowvar.registry import label

UNITS = 8  # rounding allowed in a value, in units in the last place of its precision
_FEW_BITS = 16  # numbers of no more significant bits, as halves, are taken as exact
LEVEL = 0.95  # of the intervals
HALF = 1.959963984540054  # half the width of an interval, in known standard errors: the normal quantile of 0.975
Result = TypeVar("Result")


@dataclass(frozen=True)
class Samples:
    """Points of ``T`` tasks, for ``R`` independent repetitions. All arrays are float64.

    Attributes:
        points: for each task ``(R, m_t, d)``, drawn from the task's own target.
        scores: for each task ``(R, m_t, d)``, gradients of the log density of the task's own target at its points.
        values: for each task ``(R, m_t)``, values of the task's integrand.
        shared: whether the tasks have one target and the same points: all entries of ``points`` (``scores``) are equal.
        cross_scores: for each task ``(R, m_t, T, d)``, the scores of all targets at the task's points; None if not
            computed, and unnecessary with one target.
        chain: whether the points of a task are successive states of a Markov chain.
    """

    points: tuple[np.ndarray, ...]
    scores: tuple[np.ndarray, ...]
    values: tuple[np.ndarray, ...]
    shared: bool = False
    cross_scores: tuple[np.ndarray, ...] | None = None
    chain: bool = False

    @property
    def tasks(self) -> int:
        """``T``."""
        return len(self.values)

    @property
    def repetitions(self) -> int:
        """``R``."""
        return self.values[0].shape[0]

    @property
    def dim(self) -> int:
        """``d``."""
        return self.points[0].shape[-1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """``m_t`` of each task."""
        return tuple(values.shape[-1] for values in self.values)

    @property
    def sets(self) -> slice:
        """The tasks whose points and scores are looked at: the first, where all share them."""
        return slice(1 if self.shared else None)

    @property
    def rounding(self) -> np.ndarray:
        """Relative rounding of each task's numbers, ``(R, T)``: ``UNITS`` units in the last place of their precision.

        Single where the task's values, points or scores are: numbers say in which precision they were calculated, since
        those of single precision are often converted to double before they come here.
        """
        inputs = self.points[self.sets], self.scores[self.sets], self.values
        own = [[_single(of) for of in arrays] for arrays in inputs]
        single = np.logical_or.reduce(np.broadcast_arrays(*(np.stack(rows, axis=1) for rows in own)))
        return UNITS * np.where(single, np.finfo(np.float32).eps, np.finfo(float).eps)

    def of_tasks(self, tasks: Sequence[int]) -> "Samples":
        """Only these tasks, in this order."""
        cross = None
        if self.cross_scores is not None:
            cross = tuple(self.cross_scores[t][:, :, list(tasks)] for t in tasks)
        points, scores, values = (tuple(of[t] for t in tasks) for of in (self.points, self.scores, self.values))
        return replace(self, points=points, scores=scores, values=values, cross_scores=cross)

    def first(self, sizes: Sequence[int]) -> "Samples":
        """The first ``sizes[t]`` points of each task."""

        def cut(arrays):
            return tuple(array[:, :m] for array, m in zip(arrays, sizes, strict=True))

        return self._with(cut)

    def repetition(self, chosen: slice | np.ndarray) -> "Samples":
        """Only these repetitions: a slice, or their indices."""

        return self._with(lambda arrays: each_once(lambda array: array[chosen], arrays))

    def _with(self, change: Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]) -> "Samples":
        cross = None if self.cross_scores is None else change(self.cross_scores)
        points, scores, values = (change(of) for of in (self.points, self.scores, self.values))
        return replace(self, points=points, scores=scores, values=values, cross_scores=cross)


def each_once(change: Callable[[np.ndarray], np.ndarray], arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The changed arrays; one that stands for several tasks is changed, and held, once."""
    changed: dict[int, np.ndarray] = {}
    for array in arrays:
        if id(array) not in changed:
            changed[id(array)] = change(array)
    return tuple(changed[id(array)] for array in arrays)


def evenly(number: float, of: int) -> np.ndarray:
    """So many of the indices below ``of``, from the first to the last."""
    return np.rint(np.linspace(0, of - 1, int(number))).astype(int)


def _single(array: np.ndarray) -> np.ndarray:
    """Whether the numbers of each repetition are of single precision, ``(R,)``.

    All fit in it, and one needs more than a few of its bits. Whole numbers that single precision counts need none.
    """
    rows = array.reshape(len(array), -1)
    with np.errstate(over="ignore", under="ignore"):
        single = rows.astype(np.float32)
    mantissa = np.finfo(np.float32).nmant
    fits = (single == rows).all(axis=1)
    if not fits.any():
        return fits
    counted = (single == np.rint(single)) & (np.abs(single) < 2 ** (mantissa + 1))
    last = single.view(np.uint32) & (2 ** (mantissa + 1 - _FEW_BITS) - 1)
    return fits & ((last != 0) & ~counted).any(axis=1)


@dataclass(frozen=True)
class IntegralProperties:
    """The properties that an integrator declares; the contract tests measure all of them.

    Attributes:
        scores: it needs scores.
        transfers: values of one task change the estimates of the others.
        exact_on: functions that it integrates without error, up to rounding, from enough points: ``constants``,
            ``span`` (constants plus its own control variates) or ``nothing`` (it is stopped before its optimum).
        random: it draws (mini-batches, initial weights): its result depends on ``seeds``.
        one_target: it needs all tasks to have the same target.
        fewest: points of a task that it needs at least.
        interpolates: it solves for all points together, so that a point that occurs twice makes its system singular.
        most: points of a task beyond which a fit gains little: a fit to folds takes no more of them.
    """

    scores: bool = True
    transfers: bool = False
    exact_on: str = "span"
    random: bool = False
    one_target: bool = False
    fewest: int = 3
    interpolates: bool = False
    most: float = np.inf


@dataclass(frozen=True)
class Integrals:
    """Estimates of ``T`` integrals in ``R`` repetitions.

    Attributes:
        value: ``(R, T)``.
        standard_error: ``(R, T)``: see each method for what it means; NaN where the method has none.
        condition: ``(R,)``, 2-norm condition number of the linear system that was solved, as it was solved; NaN
            where there is none. (An estimate from the diagonal of a Cholesky factor will do.)
        flags: ``(R,)`` booleans by name, true where a result is not to be trusted: see ``FLAGS``.
        info: what was learnt, ``(R, ...)`` arrays by name: ``lengthscale (R, d)`` (in the unit of the points),
            ``nugget (R,)`` (relative), ``B (R, T, T)``, ``steps (R,)``, ...
        fitted: ``(t, points (R, n, d), scores (R, n, d)) -> (R, n)``: the fitted function ``g_t + beta_t``, scores
            being those of task ``t``'s target; None where there is no such function.
        untried: of ``auto``: a sentence for each method that refused the samples, other than for being too few.
        half_width: ``(R, T)``, half of the 95 % intervals; 1.96 standard errors where a method gives none.
    """

    value: np.ndarray
    standard_error: np.ndarray
    condition: np.ndarray
    flags: Mapping[str, np.ndarray] = field(default_factory=dict)
    info: Mapping[str, np.ndarray] = field(default_factory=dict)
    fitted: Callable[[int, np.ndarray, np.ndarray], np.ndarray] | None = None
    untried: tuple[str, ...] = ()
    half_width: np.ndarray | None = None

    @property
    def half(self) -> np.ndarray:
        """Half of the 95 % intervals, ``(R, T)``."""
        return HALF * self.standard_error if self.half_width is None else self.half_width


# why a result is not to be trusted: the sentence that a user reads
FLAGS = {
    "ill_conditioned": "the linear system is ill-conditioned: rounding may be as large as the standard error",
    "few_points": "there are too few points for the number of parameters learnt: the standard error is optimistic",
    "at_bound": "a hyper-parameter ended at its bound: the kernel may not suit the integrand",
    "not_converged": "the optimiser stopped before it converged",
    "scores_doubted": "the scores do not match the density of the samples: Monte Carlo's estimate was returned",
    "discrete": "many samples are equal, and they lie on a grid: they look discrete or rounded. Scores do not exist "
    "for discrete variables, and Monte Carlo's estimate was returned, with its error for independent samples; which is "
    "too small if the samples were drawn by weights: then give those before the draw",
    "far_from_monte_carlo": "a control variate moved the estimate by more than four standard errors of Monte Carlo's, "
    "which was returned: the scores may be another density's, or few samples hold most of the integral",
    "like_a_chain": "the samples are autocorrelated and were treated as Markov chains; pass chain=True, with one chain "
    "after another, or shuffle samples that are independent and sorted",
    "chains_mixed": "samples several rows apart depend on each other more than neighbours do, and were read as chains "
    "whose states lie between each other: give one chain after another. Of a single chain, whose states may alternate "
    "by themselves, the standard error may be a little off",
    "few_carriers": "very few samples hold most of the variance: more samples may move the estimate by more than its "
    "standard error",
    "may_jump": "the error allows for an integrand that bends where no sample fell, as a cap does, but not for one "
    "that jumps there, as a truncation does; set polynomial=True for a polynomial",
    "short_chain": "the effective sample size is below 200: the chain may not have explored the whole distribution, so "
    "its standard error is unreliable",
    "few_states": "the effective sample size is below 10: the standard error is unreliable",
    "miscalibrated": "left-out values lie farther off than the fit says: multiply the standard error accordingly",
}


@dataclass(frozen=True)
class Integrator:
    """A method that estimates integrals.

    Attributes:
        name: as in the registry.
        properties: what it declares.
        integrate: ``(samples, seeds (R,) of int) -> Integrals``; methods that draw nothing ignore the seeds. Repetition
            ``r`` depends on ``seeds[r]`` and its own samples alone.
        features: of a method whose fit to a task is ordinary least squares on functions of mean zero and a constant:
            ``points (R, m, d)`` that set their units ``->`` a function ``(points (R, n, d), scores) -> (R, n, p)``. Its
            attribute ``span`` is equal where they span the same functions. None for other methods.
    """

    name: str
    properties: IntegralProperties
    integrate: Callable[[Samples, np.ndarray], Integrals]
    features: Callable[[np.ndarray], Any] | None = None


def make(name: str | Callable[..., Integrator], options: Mapping[str, Any]) -> Integrator:
    """The integrator called ``name``.

    Args:
        name: one of ``lowvar.integrals.INTEGRAL``, ``module:function``, or a factory.
        options: keyword arguments of its factory.

    Raises:
        UserError: no integrator has that name, PyTorch is missing, or an option is unknown or out of range.
    """
    INTEGRAL.check_options(name, options)
    factory = INTEGRAL.get(name)
    try:
        integrator = factory(**options)
    except UserError:
        raise
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{label(name)}: it cannot be made with the options {dict(options)}: {error}") from error
    if not isinstance(integrator, Integrator):
        raise UserError(f"{label(name)}: the factory returned {kind_of(integrator)}, not an Integrator")
    return integrator


def of_last_points(function: Callable[[np.ndarray, np.ndarray], Result]) -> Callable[[np.ndarray, np.ndarray], Result]:
    """The same function of ``(points, scores)``, which keeps its last result while it is given the same arrays."""
    last: list = []

    def remembered(points: np.ndarray, scores: np.ndarray) -> Result:
        if not (last and last[0] is points and last[1] is scores):
            last[:] = points, scores, function(points, scores)
        return last[2]

    return remembered


def side_by_side(results: Sequence[Integrals]) -> Integrals:
    """Results of one task each as one; what was learnt gets an axis of tasks, the second."""
    return joined_tasks(results, [[t] for t in range(len(results))])


def joined_tasks(results: Sequence[Integrals], groups: Sequence[Sequence[int]]) -> Integrals:
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
