"""An estimator of integrals: its properties, its results, and how it is made from its name and options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import scipy.stats

from lowvar.errors import UserError, kind_of
from lowvar.integrals import INTEGRAL
from lowvar.integrals.samples import Samples
from lowvar.registry import label

LEVEL = 0.95  # of the intervals
HALF = float(scipy.stats.norm.isf((1 - LEVEL) / 2))  # half the width of an interval, in known standard errors
Found = TypeVar("Found")


@dataclass(frozen=True)
class IntegralProperties:
    """What an integrator claims of itself; the contract tests measure all of it.

    Attributes:
        scores: it needs scores.
        transfers: values of one task change the estimates of the others.
        exact_on: functions that it integrates without error, up to rounding, from enough points: ``constants``,
            ``span`` (constants plus its own control variates) or ``nothing`` (it is stopped before its optimum).
        random: it draws (mini-batches, initial weights): its result depends on ``seeds``.
        one_target: it needs all tasks to have the same target.
        fewest: points of a task that it needs at least.
        interpolates: it solves for all points together, so that a point that occurs twice makes its system singular.
    """

    scores: bool = True
    transfers: bool = False
    exact_on: str = "span"
    random: bool = False
    one_target: bool = False
    fewest: int = 3
    interpolates: bool = False


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
    """

    name: str
    properties: IntegralProperties
    integrate: Callable[[Samples, np.ndarray], Integrals]


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


def of_last_points(function: Callable[[np.ndarray, np.ndarray], Found]) -> Callable[[np.ndarray, np.ndarray], Found]:
    """The same function of ``(points, scores)``, which keeps its last result while it is given the same arrays."""
    last: list = []

    def remembered(points: np.ndarray, scores: np.ndarray) -> Found:
        if not (last and last[0] is points and last[1] is scores):
            last[:] = points, scores, function(points, scores)
        return last[2]

    return remembered
