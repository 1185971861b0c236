"""The public face of integration: ``integrate``."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.stats

from lowvar.api.bring import bring, without_copies
from lowvar.errors import UserError, unknown_name
from lowvar.estimators import INTEGRAL
from lowvar.estimators.integral.base import FLAGS, Integrals
from lowvar.estimators.integral.options import check_options, make
from lowvar.problems.integrals.samples import Samples

_KERNEL = ("control_functional", "vector_valued", "alternating", "convex")  # they solve for all points together
_MOST = 2000  # unknowns of a linear system up to which "auto" solves one
_ONCE = "samples that occur more than once were used once"
_APART = 4.0  # standard errors of Monte Carlo that an estimate may lie away from it
_FALSE = np.zeros(1, bool)
_HALF = scipy.stats.norm.isf(0.025)


@dataclass(frozen=True, eq=False)
class IntegralResult:
    """What ``integrate`` returns.

    Attributes:
        value: the integrals, ``(T,)``.
        standard_error: ``(T,)``; NaN where the method has none. Of kernel methods it is that of the fitted process
            and that of the jackknife together, for independent samples.
        method: which integrator it was.
        notes: what you should know before you trust it; they were issued as warnings, too.
        table: a row for each integral: ``task, value, standard_error, low, high`` (95 %), the Monte Carlo estimate
            ``monte_carlo`` and ``monte_carlo_se``, and ``gain``, the ratio of the squared standard errors.
        condition: condition number of the linear system that was solved.
        info: what was learnt: ``lengthscale``, ``nugget``, ``B``, ..., without the axis of repetitions.
    """

    value: np.ndarray
    standard_error: np.ndarray
    method: str
    notes: tuple[str, ...]
    table: Any = field(repr=False)
    condition: float
    info: dict[str, np.ndarray] = field(repr=False)
    _fitted: Any = field(repr=False, default=None)

    def fitted(self, points: Any, scores: Any, task: int = 0) -> np.ndarray:
        """The fitted function of a task at other points.

        Args:
            points: ``(n, d)``.
            scores: of the task's target there, ``(n, d)``.
            task: index of the integral.

        Raises:
            UserError: the method fits no function.
        """
        if self._fitted is None:
            raise UserError(f"{self.method} fits no function")
        rows = [np.atleast_2d(np.asarray(of, float).T).T for of in (points, scores)]
        if rows[0].shape != rows[1].shape:
            raise UserError(f"scores: their shape is {rows[1].shape}, that of points {rows[0].shape}; they must agree")
        if not 0 <= task < len(self.value):
            raise UserError(f"task {task}: there are the tasks 0 to {len(self.value) - 1}")
        return self._fitted(task, rows[0][None], rows[1][None])[0]

    def __repr__(self) -> str:
        shown = self.table.to_string(index=False, float_format=lambda x: f"{x:.6g}")
        lines = [f"integrals by {self.method} (95 % intervals)", shown, *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)


def integrate(
    samples: Any,
    scores: Any,
    values: Any,
    method: str = "auto",
    *,
    chain: bool = False,
    names: Any = None,
    seed: int = 0,
    **options: Any,
) -> IntegralResult:
    """Expectations of functions, with control variates made of scores.

    Args:
        samples: points ``(m, d)``, or ``(m,)`` in one dimension, unconstrained coordinates: NumPy, JAX or PyTorch. For
            several integrals over different points or densities a list of such arrays, one for each.
        scores: gradients of the log density at the samples, in the same shapes; a density known up to a constant
            will do, and it must be that of the samples' own coordinates (with the Jacobian of any transformation).
        values: of the integrand ``(m,)``; of ``T`` integrands over the same samples ``(m, T)``; or a list as above.
        method: a name of ``lowvar list integrators``. ``auto`` fits several and takes the one whose errors, judged by
            leaving points out (the jackknife), are smallest.
        chain: the samples are successive states of a Markov chain: standard errors of ``monte_carlo`` and
            ``zero_variance``, and the check of the scores, then use effective sample sizes. Independent chains may lie
            below each other.
        names: a name for each integral, for the table.
        seed: of methods that draw (``neural``, ``paper_*``).
        options: of the method, see its docstring.

    Returns:
        Values, standard errors and how far to trust them.

    Raises:
        UserError: shapes that do not fit, values that are not finite, fewer than 3 samples, an unknown method or
            option, or a system that would not fit in memory.

    Warns:
        UserWarning: each note, such as scores that look like another density's.

    References:
        Oates, Girolami and Chopin (2017), "Control functionals for Monte Carlo integration"; Sun, Barp and Briol
        (2023), "Vector-valued control variates"; Mira, Solgi and Imparato (2013), "Zero variance Markov chain Monte
        Carlo for Bayesian estimators".

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=50)
    >>> result = integrate(x, -x, np.sin(x) + x**2)  # the score of N(0, 1) is -x
    >>> bool(abs(result.value[0] - 1.0) < 1e-4), bool(abs(np.mean(np.sin(x) + x**2) - 1.0) < 1e-2)
    (True, False)
    """
    import warnings

    if method != "auto" and method not in INTEGRAL:
        raise unknown_name("method", method, ("auto", *INTEGRAL))
    if method != "auto":
        check_options(method, options)
    elif options:
        raise UserError(f"{next(iter(options))}: options belong to a method; name it with method=...")
    if not isinstance(chain, (bool, np.bool_)):
        raise UserError(f"chain {chain!r}: it must be True or False; put the draws of several chains below each other")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**62:
        raise UserError(f"seed {seed!r}: it must be a whole number, 0 or more")
    found, notes = bring(samples, scores, values, chain=bool(chain))
    names = _names(names, found.tasks)
    seeds = np.array([seed])
    plain = make("monte_carlo", {}).integrate(found, seeds)
    constant = np.array([np.ptp(v) == 0 for v in found.values])
    if constant.all():
        method, result = "monte_carlo", plain
    elif method == "auto":
        method, result, more = _best(found, seeds, plain)
        notes += more
    else:
        result, more = _run(method, options, found, seeds)
        notes += more
    notes += [sentence for name, sentence in FLAGS.items() if bool(result.flags.get(name, _FALSE)[0])]
    notes += _far_off(result, plain)
    for t in np.flatnonzero(constant):
        notes.append(
            f"integral {names[t]}: the values are equal at all samples, so nothing tells how far the integral is off"
        )
    value = result.value[0]
    rounding = 8 * np.finfo(float).eps * np.array([np.abs(v).max() for v in found.values])
    error = np.where(constant, np.nan, np.maximum(result.standard_error[0], rounding))
    if not np.isfinite(value).all():
        notes.append(f"{method} gave no finite value: its options, or the samples, do not suit it")
    for note in notes:
        if not note.endswith(_ONCE):  # said in the result, but too common for a warning
            warnings.warn(note, stacklevel=2)
    return IntegralResult(
        value, error, method, tuple(notes), _table(names, value, error, plain), float(result.condition[0]),
        {name: np.asarray(array)[0] for name, array in result.info.items()}, result.fitted,
    )  # fmt: skip


def _run(method: str, options, found: Samples, seeds) -> tuple[Integrals, list[str]]:
    """The method on the samples, without copies of points where it interpolates."""
    used, notes = found, []
    if method in _KERNEL:
        used, copies = without_copies(found)
        if copies:
            notes.append(f"{copies} {_ONCE}")
    return make(method, options).integrate(used, seeds), notes


def _best(found: Samples, seeds, plain: Integrals) -> tuple[str, Integrals, list[str]]:
    """The candidate with the smallest errors, as a geometric mean over the tasks.

    They are the jackknife's, which believe no model, or the method's own where those are larger. Kernel methods take
    the samples as independent: along a chain theirs are multiplied by what the chain makes of Monte Carlo's. A
    candidate that warns of its own error is taken only if all do.
    """
    make("zero_variance", {})  # says if PyTorch is missing
    unknowns = max(found.sizes) if found.shared else sum(found.sizes)
    candidates: list[tuple[str, dict]] = [("zero_variance", {"order": 1}), ("zero_variance", {"order": 2})]
    if unknowns <= _MOST:
        candidates.append(("control_functional", {}))
        if not found.shared and found.tasks > 1:
            candidates.append(("vector_valued", {}))
    worth = float(np.min(plain.info["effective"][0] / np.array(found.sizes)))
    best = (_doubted(plain), _error(plain, 1.0), "monte_carlo", plain, [])
    left_out = []
    for name, options in candidates:
        try:
            result, notes = _run(name, options, found, seeds)
        except UserError as error:
            if name in _KERNEL:
                left_out.append(f"{name} was left out: {error}")
            continue  # too few points for a polynomial
        rank = (_doubted(result), _error(result, min(worth, 1.0) if name in _KERNEL else 1.0))
        if np.isfinite(rank[1]) and rank < best[:2]:
            best = (*rank, name, result, notes)
    _, _, name, result, notes = best
    notes = [*notes, *left_out]
    if unknowns > _MOST:
        notes.append(f"{unknowns} samples are too many for 'auto' to try kernel methods: name one to use it")
    if name in _KERNEL and worth < 0.5:
        notes.append(
            f"the chain is worth {worth:.0%} of its samples, and the standard errors of {name} take them as independent"
        )
    return name, result, notes


def _doubted(result: Integrals) -> bool:
    """Whether a result says that its error is not to be believed."""
    return any(bool(result.flags.get(name, _FALSE)[0]) for name in ("few_points", "ill_conditioned", "not_converged"))


def _error(result: Integrals, worth: float) -> float:
    """The mean logarithm of the errors, of samples that are worth this part of their number."""
    own = result.standard_error[0]
    error = np.fmax(own, result.info["jackknife_error"][0]) if "jackknife_error" in result.info else own
    return float(np.mean(np.log(np.maximum(error, 1e-300)))) - 0.5 * np.log(max(worth, 1e-12))


def _far_off(result: Integrals, plain: Integrals) -> list[str]:
    """A note where an estimate is farther from Monte Carlo's than chance allows: the scores may be wrong."""
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(result.value[0] - plain.value[0]) / plain.standard_error[0]
    if not (apart > _APART).any():
        return []
    t = int(np.nanargmax(apart))
    return [
        f"integral {t} is {apart[t]:.1f} standard errors of Monte Carlo away from the mean of its values: the scores "
        "may be another density's, or few samples hold most of the integral"
    ]


def _names(names, tasks):
    if names is None:
        return [f"f{t}" for t in range(tasks)] if tasks > 1 else ["f"]
    try:
        names = [names] if isinstance(names, str) else list(names)
    except TypeError as error:
        raise UserError(f"names {names!r}: it must be a list with a name for each integral") from error
    if len(names) != tasks:
        raise UserError(f"names: there are {len(names)}, for {tasks} integrals")
    return names


def _table(names, value, error, plain):
    import pandas as pd

    monte_carlo, its_error = plain.value[0], plain.standard_error[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = (its_error / error) ** 2
    return pd.DataFrame(
        {
            "task": names,
            "value": value,
            "standard_error": error,
            "low": value - _HALF * error,
            "high": value + _HALF * error,
            "monte_carlo": monte_carlo,
            "monte_carlo_se": its_error,
            "gain": gain,
        }
    )
