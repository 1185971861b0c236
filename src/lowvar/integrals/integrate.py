"""The public interface of integration: ``integrate``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from lowvar.errors import UserError, whole
from lowvar.integrals import INTEGRAL
from lowvar.integrals.base import FLAGS, HALF, LEVEL, UNITS, Integrals, Integrator, Samples, make
from lowvar.integrals.inputs import checked_samples, is_by_site, labels, refuse_models, without_copies
from lowvar.integrals.monte_carlo import GAIN, OFTEN, first_copies, heavy_tail, on_grid
from lowvar.registry import label

_COPIES = "duplicate samples were dropped"
_ONE_SIDED = float(ndtri(LEVEL)) / HALF  # of a two-sided 95 % limit; less for Student's t
_CHANCE = 0.0027  # of a note on the distance from Monte Carlo, for right scores: 3 standard errors for one integral
_FALSE = np.zeros(1, bool)
_UNWEIGHTED = "importance weights are not supported: give samples of the density whose scores these are"
_INSTEAD: dict[str, str] = dict.fromkeys(("weights", "weight", "log_weights"), _UNWEIGHTED)


@dataclass(frozen=True, eq=False)
class IntegralResult:
    """The result of ``integrate``.

    Attributes:
        value: the integrals, ``(T,)``.
        standard_error: ``(T,)``; NaN where the method has none. With ``auto`` or ``folds``, it is estimated from
            held-out values. For kernel methods by name, it combines those of the fitted process and the jackknife, for
            independent samples. All include what regions without samples may hold (see ``polynomial``) and what the
            scores' error may be (see ``exact_scores``).
        half_width: ``(T,)``, half of the 95 % interval, with the quantile of Student's ``t`` where the error is
            estimated from few terms: about 1.96 standard errors or more; less where they are mostly a possible error of
            the scores.
        method: the integrator; for ``auto`` the one that it chose, or ``auto`` if it chose several.
        notes: to read before you trust the result; also issued as warnings, but for common ones: duplicate samples, a
            possible jump of the integrand, and ``exact_scores``.
        table: a row for each integral: ``task, method, value, standard_error, half_width, low, high`` (95 %), the
            Monte Carlo estimate ``monte_carlo`` and ``monte_carlo_se``, and ``gain``, the ratio of the squared standard
            errors. Errors are NaN where all values are equal up to rounding.
        condition: condition number of the linear system that was solved.
        info: learnt parameters: ``lengthscale``, ``nugget``, ``B``, ..., without the axis of repetitions.

    >>> import lowvar, numpy as np
    >>> x = np.random.default_rng(0).normal(size=50)
    >>> result = lowvar.integrate(x, -x, np.sin(x) + x**2, exact_scores=True)  # the score of N(0, 1) is -x
    >>> result.value.round(3), bool(result.table["gain"][0] > 10)  # the variance of the plain mean is larger
    (array([1.]), True)
    """

    value: np.ndarray
    standard_error: np.ndarray
    half_width: np.ndarray
    method: str
    notes: tuple[str, ...]
    condition: float
    info: dict[str, np.ndarray] = field(repr=False)
    _fitted: Any = field(repr=False, default=None)
    _dims: tuple[int, ...] = field(repr=False, default=())
    _columns: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @cached_property
    def table(self) -> Any:
        """The integrals' rows, see above."""
        import pandas as pd  # where it is read: it takes longer to load than a small call

        return pd.DataFrame(self._columns)

    def fitted(self, points: Any, scores: Any, task: int = 0) -> np.ndarray:
        """The fitted function of a task at other points.

        Args:
            points: ``(n, d)``.
            scores: scores of the task's target at ``points``, ``(n, d)``.
            task: index of the integral.

        Raises:
            UserError: the method fits no function, this is a pickled copy, which has none, or the shapes do not match
                the samples'.
        """
        if self._fitted is None:
            raise UserError(f"{self.method} fits no function")
        rows = [np.atleast_2d(np.asarray(array, float).T).T for array in (points, scores)]
        if rows[0].shape != rows[1].shape:
            raise UserError(f"scores: their shape is {rows[1].shape}, but points have {rows[0].shape}; they must agree")
        if not 0 <= task < len(self.value):
            raise UserError(f"task {task}: it must be between 0 and {len(self.value) - 1}")
        if rows[0].shape[1] != self._dims[task]:
            raise UserError(
                f"points: they have {rows[0].shape[1]} coordinates, but the samples have {self._dims[task]}"
            )
        return self._fitted(task, rows[0][None], rows[1][None])[0]

    def __getstate__(self) -> dict[str, Any]:
        """Without the fitted function, a closure over the samples."""
        return {**self.__dict__, "_fitted": self._fitted and _not_kept}

    def __repr__(self) -> str:
        shown = self.table.to_string(index=False, float_format=lambda x: f"{x:.6g}")
        lines = [f"integrals by {self.method} (95 % intervals)", shown, *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)


def integrate(
    samples: Any,
    scores: Any = None,
    values: Any = None,
    method: str | Callable[..., Integrator] = "auto",
    *,
    chain: bool | None = None,
    folds: int | None = None,
    names: Any = None,
    seed: int = 0,
    exact_scores: bool | None = None,
    polynomial: bool = False,
    **options: Any,
) -> IntegralResult:
    """Expectations of functions, with control variates constructed from scores.

    Args:
        samples: points ``(m, d)``, or ``(m,)`` in one dimension, unconstrained coordinates: NumPy, JAX or PyTorch. For
            several integrals over different points or densities, a list of such arrays, one for each, of one dimension
            ``d``. Or draws by site: NumPyro's ``MCMC``, ArviZ's ``DataTree`` or ``InferenceData`` (its posterior,
            without warm-up), or a dict.
        scores: gradients of the log density at the samples, in the same shapes. The density need not be normalised, and
            must be that of the samples' own coordinates (with the Jacobian of any transformation). For draws by site,
            the model: a ``pymc.Model``, BridgeStan's ``StanModel``, or a NumPyro model with its data
            (``functools.partial(model, **data)``). None is needed by an ``MCMC``, which has its own, nor where the
            sampler stored the gradients, see ``lowvar.scores``: these are given scores, see ``exact_scores``. A dict
            of unconstrained samples takes a dict of scores with the same names.
        values: values of the integrand ``(m,)``; of ``T`` integrands over the same samples ``(m, T)``; or a list as
            above. For draws by site also names of sites, whose means are wanted; a function of the dict of sites, each
            ``(m, ...)``; a dict of arrays; by default all sites.
        method: a name of ``lowvar list integrators``; or a factory ``(**options) -> Integrator`` of your own, see
            docs/adding-an-integrator.md, or ``"module:function"``. ``auto`` cross-fits polynomials and kernels, chooses
            for each integral by the residuals of held-out samples, and returns Monte Carlo where no method beats it or
            the scores fail their test. Numbers of single precision, also if converted to double, are judged as such:
            residuals of a few roundings count as none, and no error below the rounding of the values is stated. This is
            read from the bits of each integral's own values and of its samples and scores. With thousands of samples,
            most of the time of ``auto`` goes into sparse kernels and polynomials of high order: ``kernels=False``
            leaves out the former, ``zero_variance`` with ``folds=5`` also the choice.
        chain: whether the samples are successive states of a Markov chain: standard errors, and the check of the
            scores, then use effective sample sizes, and folds are blocks. Independent chains may be concatenated, or be
            the first axis: samples ``(chains, draws, d)``, values ``(chains, draws)`` or ``(chains, draws, T)``. By
            default true for draws by site with an axis of chains, else false.
            Standard errors of kernel methods by name, without ``folds``, still assume independent samples.
        folds: number of folds for cross-fitting: each fold's residuals are averaged under a fit to the other folds.
            Unbiased for independent samples, with a standard error from held-out values. ``auto`` has 5 folds; other
            methods, by default, fit and average at the same samples.
        names: a name for each integral, for the table; those of the columns, if ``values`` is a data frame.
        seed: seed of randomised methods (``neural``, ``paper_*``).
        exact_scores: whether the scores are known to be those of the samples' density, as those that lowvar derives
            from a model are (then the default). Scores that are given as arrays are only tested, and samples detect an
            error of the scores up to Monte Carlo's error: by default no smaller error is then stated, though the
            estimate is as good. A note says how large the error would be with ``exact_scores=True``. Exact ones
            are doubted by chance in 0.1 % of samples, others in 1 %.
        polynomial: whether all integrands are known to be polynomials of the samples' coordinates, as moments are. An
            integrand that a polynomial predicts at all samples may still differ where none fell. Unless you know
            better, errors include a bend there (a cap, a loss that turns linear), and a note says that a jump is not.
        options: options of the method, see its docstring.

    Returns:
        Values, standard errors, and notes on how far to trust them.

    Raises:
        UserError: inconsistent shapes, values that are not finite, fewer than 3 samples, an unknown method or
            option, or a system that would not fit in memory.

    Warns:
        UserWarning: each note, for example on scores that seem to belong to another density.

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

    INTEGRAL.entry(method)
    if method == "auto" and (other := [name for name in options if name != "kernels"]):
        raise UserError(
            f"{other[0]}: {_INSTEAD.get(other[0], 'auto takes kernels alone; name a method with method=...')}"
        )
    INTEGRAL.check_options(method, options, instead=_INSTEAD)
    for name, flag in {"chain": chain, "exact_scores": exact_scores, "polynomial": polynomial}.items():
        if not isinstance(flag, (bool, np.bool_)) and (flag is not None or name == "polynomial"):
            raise UserError(f"{name} {flag!r}: it must be True or False")
    if (seed := whole("seed", seed, 0)) >= 2**62:
        raise UserError(f"seed {seed}: it must be less than 2**62")
    notes, derived = [], False
    if is_by_site(samples):
        from lowvar.integrals.sites import arrays

        (samples, scores, values, chain, names, derived), notes = arrays(samples, scores, values, chain, names)
        on_axis = bool(chain)
    else:
        refuse_models(scores, values)
        on_axis = all(np.ndim(one) == 3 for one in (samples if isinstance(samples, (list, tuple)) else [samples]))
    labelled = labels(samples, scores, values)
    exact = bool(derived if exact_scores is None else exact_scores)
    data, doubts = checked_samples(samples, scores, values, chain=bool(chain), exact=exact)
    notes += doubts
    names = _names(labelled if names is None else names, data.tasks)
    seeds = np.array([seed])
    plain = make("monte_carlo", {}).integrate(data, seeds)
    size = np.array([np.abs(values).max() for values in data.values])
    constant = np.array([np.ptp(values) for values in data.values]) <= UNITS * np.finfo(float).eps * size
    if constant.all():
        method, result = "monte_carlo", plain
    else:
        result, more = _run(
            method, options, folds, data, seeds, {"polynomial": bool(polynomial), "exact_scores": exact}
        )
        notes += more or _repeated(data, method)
        method = label(method)
    notes += result.untried
    raised = {name: sentence for name, sentence in FLAGS.items() if bool(result.flags.get(name, _FALSE)[0])}
    if on_axis:  # which says where a chain ends: chains that have not mixed have a note of their own
        raised.pop("chains_mixed", None)
    if raised.pop("scores_doubted", None):
        notes = _with_consequence(notes)
    methods = result.info["choice"][0] if method == "auto" else np.repeat(method, data.tasks)
    if method == "auto":
        method = methods[0] if (methods == methods[0]).all() else "auto"
        plain = replace(
            plain, standard_error=result.info["monte_carlo_error"], half_width=result.info["monte_carlo_half"]
        )
    elif methods[0] != "monte_carlo":
        from lowvar.integrals.cross_fitting import with_unseen

        result = with_unseen(result, data, bool(polynomial))
        raised |= {"may_jump": FLAGS["may_jump"]} if result.flags["may_jump"][0] else {}
    quiet = [raised.pop("may_jump")] if "may_jump" in raised else []
    if "few_carriers" not in raised:
        notes += _heavy_tailed(data, result, plain, names)
    notes += [*raised.values(), *_far_off(result, plain, names)]
    if not exact:
        result, quiet = _no_surer_than_the_scores(result, plain, methods != "monte_carlo", names)
    for t in np.flatnonzero(constant):
        notes.append(
            f"integral {names[t]}: the values are equal at all samples, up to rounding, so the error is unknown"
        )
    value = result.value[0]
    error, half = (
        np.where(constant | ~np.isfinite(value), np.nan, np.maximum(of[0], data.rounding[0] * size))
        for of in (result.standard_error, result.half)
    )
    plain = replace(plain, standard_error=np.where(constant, np.nan, plain.standard_error))
    if not np.isfinite(value).all():
        other = "" if method == "auto" else "; use method='auto'"
        notes.append(f"{method} gave no finite value: its options do not suit these samples{other}")
    for note in notes:
        if not note.endswith(_COPIES):  # noted in the result, but too common for a warning
            warnings.warn(note, stacklevel=2)
    return IntegralResult(
        value, error, half, str(method), (*notes, *quiet), float(result.condition[0]),
        {name: np.asarray(array)[0] for name, array in result.info.items()}, result.fitted,
        tuple(points.shape[2] for points in data.points), _columns(names, methods, value, error, half, plain),
    )  # fmt: skip


def _not_kept(*_):
    raise UserError("fitted: a copy by pickle or copy has no fitted function; use the result itself")


def _run(
    method: str | Callable[..., Integrator], options, folds, data: Samples, seeds, known: dict[str, bool]
) -> tuple[Integrals, list[str]]:
    """The method on the samples, without duplicate points where it interpolates."""
    if isinstance(folds, int) and folds > min(data.sizes):
        raise UserError(f"folds {folds}: there are only {min(data.sizes)} samples; use 5 or 10 folds")
    if method == "auto":
        given = known | options | ({} if folds is None else {"folds": folds})
        return make(method, given).integrate(data, seeds), []
    integrator = make(method, options)
    if folds is not None:
        from lowvar.integrals.cross_fitting import cross_fitted

        return cross_fitted(integrator, folds).integrate(data, seeds), []
    if not integrator.properties.interpolates:
        return integrator.integrate(data, seeds), []
    used, copies = without_copies(data)
    return integrator.integrate(used, seeds), [f"{copies} {_COPIES}"] if copies else []


def _repeated(data: Samples, method: str | Callable[..., Integrator]) -> list[str]:
    """A note if independent samples are often equal."""
    if data.chain:
        return []
    sets = [points[0] for points in data.points[: 1 if data.shared else None]]
    grids = [on_grid(points) for points in sets]
    copies = [len(x) - len(np.unique(first_copies(x))) for x, grid in zip(sets, grids, strict=True) if not grid]
    often = [number for number, m in zip(copies, data.sizes, strict=False) if number > OFTEN * m]
    if not often:
        if method == "auto" or not any(grids):  # `auto` has a flag for it
            return []
        return [
            "many samples are equal, and they lie on a grid: they look discrete or rounded, and scores do not exist "
            "for discrete variables; or they were drawn by weights, which makes standard errors too small"
        ]
    return [
        f"{max(often)} samples repeat others, which makes standard errors of independent samples too small: set "
        "chain=True for states of a Markov chain; for samples drawn by weights, give those before the draw"
    ]


def _with_consequence(notes: list[str]) -> list[str]:
    """Adds the consequence to the first note of a failed test of the scores."""
    about = [note.startswith("scores") for note in notes]
    if not any(about):
        return [*notes, FLAGS["scores_doubted"]]
    return [f"{note}: Monte Carlo's estimate was returned" if a else note for note, a in zip(notes, about, strict=True)]


def _far_off(result: Integrals, plain: Integrals, names: list[str]) -> list[str]:
    """A note if an estimate differs from the Monte Carlo estimate by more than chance explains."""
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(result.value[0] - plain.value[0]) / plain.standard_error[0]
    if not (apart > -ndtri(_CHANCE / (2 * len(apart)))).any():  # Bonferroni
        return []
    t = int(np.nanargmax(apart))
    return [
        f"integral {names[t]} is {apart[t]:.1f} standard errors of Monte Carlo away from the mean of its values: the "
        "scores may belong to another density, or a few samples may dominate the integral"
    ]


def _heavy_tailed(data: Samples, result: Integrals, plain: Integrals, names: list[str]) -> list[str]:
    """A note if values have so heavy a tail that their standard error is unreliable, and no control variate helps."""
    left = result.standard_error[0] > GAIN * plain.standard_error[0]
    each = zip(data.values, plain.info["effective"][0], left, strict=True)
    shapes = [heavy_tail(values[0], worth, int(left.sum())) if of_values else 0.0 for values, worth, of_values in each]
    if not max(shapes):
        return []
    t = int(np.argmax(shapes))
    return [
        f"integral {names[t]}: the values have a heavy tail, of Pareto shape {shapes[t]:.2f} (from 0.5 on their "
        "variance is infinite), and more samples may move the estimate by more than its standard error"
    ]


def _no_surer_than_the_scores(
    result: Integrals, plain: Integrals, corrected: np.ndarray, names: list[str]
) -> tuple[Integrals, list[str]]:
    """Errors that an undetected error of the scores may make, and a note.

    A wrong score shifts an estimate by the mean of its control variate. The samples know this mean as well as they know
    the integral without scores: it is the difference to Monte Carlo's estimate, up to Monte Carlo's error. So an
    interval of at least Monte Carlo's width, and of the difference with Monte Carlo's one-sided 95 % limit, covers
    whatever the shift. The squared difference exceeds the squared shift by the two variances' difference on average.

    Args:
        result: the estimates.
        plain: Monte Carlo's.
        corrected: the integrals whose estimates use scores, ``(T,)``.
        names: of the integrals.
    """
    error, own, apart = plain.standard_error, result.standard_error, np.abs(result.value - plain.value)
    most = np.sqrt(np.fmax(error**2, apart**2 - error**2 + 2 * own**2))
    half = np.fmax(plain.half, apart + _ONE_SIDED * plain.half)
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(corrected, most / own, 0.0)[0]
    if not (times > 1).any():
        return result, []
    worst = int(np.nanargmax(times))
    note = (
        "scores: samples can test them only up to the error of Monte Carlo, so no smaller error is stated; if you know "
        "them to be right (by automatic differentiation of the density that was sampled, say), set exact_scores=True: "
        f"the value stays, and the standard error of {names[worst]} is then {own[0, worst]:.2g}, not "
        f"{most[0, worst]:.2g}, and its gain {(error[0, worst] / own[0, worst]) ** 2:.2g}"
    )
    stated, width = (
        np.where(corrected, np.fmax(own, wide), own)
        for own, wide in ((result.standard_error, most), (result.half, half))
    )
    return replace(result, standard_error=stated, half_width=width), [note]


def _names(names, tasks):
    if names is None:
        return [f"f{t}" for t in range(tasks)] if tasks > 1 else ["f"]
    try:
        names = [names] if isinstance(names, str) else list(names)
    except TypeError as error:
        raise UserError(f"names {names!r}: it must be a list with a name for each integral") from error
    if len(names) != tasks:
        raise UserError(f"names: there are {len(names)} for {tasks} integrals; give one for each")
    return names


def _columns(names, methods, value, error, half, plain) -> dict[str, Any]:
    monte_carlo, monte_carlo_se = plain.value[0], plain.standard_error[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = (monte_carlo_se / error) ** 2
    return {
        "task": names,
        "method": methods,
        "value": value,
        "standard_error": error,
        "half_width": half,
        "low": value - half,
        "high": value + half,
        "monte_carlo": monte_carlo,
        "monte_carlo_se": monte_carlo_se,
        "gain": gain,
    }
