"""Tables behind illustrations: fitted functions, Stein kernels, errors by epoch, power posteriors, predictions."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lowvar.core.intervals import mean_interval
from lowvar.errors import UserError
from lowvar_studies.reports.declarations import Table, columns
from lowvar_studies.reports.integral.gathering import problems, samples

_GRID = 241  # points of a curve
_TASKS = ((0.0, 1.0), (0.0, 1.25))  # mean and variance of the targets of the paper's Figure 3
_B = ((1.0, 0.1), (0.1, 1.0))


def fits(experiment, built: Mapping[str, Any], drawn: Mapping[str, Any]):
    """The integrands of one-dimensional problems and the functions that methods fit to them, from the first repetition.

    Args:
        experiment: its ``illustrate.fits`` names problems and methods.
        built: the problems by name.
        drawn: their samples by name, as ``integral.samples.read`` gives them.

    Returns:
        Rows of kind ``curve`` (on a grid) and ``point`` (the samples of the last size).

    Raises:
        UserError: a problem has more than one dimension.
    """
    import pandas as pd

    from lowvar.integrals.base import make

    out = []
    for name, methods in experiment.illustrate.fits.items():
        problem = built[name]
        if problem.dim != 1:
            raise UserError(f"illustrate.fits: {name!r} has {problem.dim} dimensions; the figure needs one")
        sizes = experiment.run(name, methods[0], "torch").sizes[-1]
        sizes = (sizes,) * len(problem.tasks) if isinstance(sizes, int) else sizes
        draws = drawn[name].samples.first(sizes).repetition(slice(0, 1))
        for method in methods:
            spec = experiment.methods_on(name)[method]
            integrals = make(spec.integrator, spec.options).integrate(draws, np.array([1]))
            for t, task in enumerate(problem.tasks):
                x = draws.points[t][0][:, 0]
                edge = 0.15 * np.ptp(x)
                grid = np.linspace(x.min() - edge, x.max() + edge, _GRID)
                for kind, at in (("curve", grid), ("point", x)):
                    at_points = at[:, None]
                    score = problem.score(problem.target[t], at_points)
                    fit = integrals.fitted
                    fitted = None if fit is None else fit(t, at_points[None], score[None])[0]
                    out.append(
                        pd.DataFrame(
                            {"problem": name, "task": task, "method": method, "kind": kind, "x": at,
                             "f": problem.value(t, at_points), "fitted": np.nan if fitted is None else fitted,
                             "density": _density(problem, t, at)}
                        )
                    )  # fmt: skip
    return pd.concat(out, ignore_index=True)


def _asked(what):
    """The condition that an experiment has the illustration ``what``."""
    return lambda experiment: bool(getattr(experiment.illustrate, what))


FITS = Table(
    "fits",
    "With `illustrate.fits`: integrands of one-dimensional problems and the functions that methods fit to them, from "
    "the first repetition at the last of the sizes.",
    columns("""
    problem | string | | the experiment's name for the problem
    task | string | | the problem's name for the integral
    method | string | | the experiment's name for the method
    kind | string | | `curve` (on a grid) or `point` (a sample)
    x | float64 | x's | point
    f | float64 | f's | the integrand
    fitted | float64 | f's | the fitted function, including its constant; NaN if the method fits none
    density | float64 | | of the target, relative to the largest in these rows
    """),
    lambda gathered: fits(gathered.experiment, gathered.once(problems), gathered.once(samples)),
    when=_asked("fits"),
)  # fmt: skip


def stein_kernels(points: int = 61, reach: float = 3.0):
    """``1' K0(x, y) 1`` of three matrix-valued Stein kernels on a grid.

    References:
        Sun, Barp and Briol, Appendix E.1, Figure 3.
    """
    import pandas as pd

    from lowvar.integrals.kernels import kernel, separable_stein

    grid = np.linspace(-reach, reach, points)
    x = grid[:, None]
    scores = np.stack([-(x - mean) / variance for mean, variance in _TASKS], axis=1)  # (n, T, 1)
    relation = np.asarray(_B, float)
    kinds = {
        "squared exponential": kernel("squared_exponential", ard=False),
        "polynomial, degree 1": kernel("polynomial", degree=1),
        "polynomial, degree 2": kernel("polynomial", degree=2),
    }
    out = []
    for label, chosen in kinds.items():
        values = separable_stein(chosen, chosen.defaults(1), relation, x, x, scores, scores).sum((-2, -1))
        at, other = np.meshgrid(grid, grid, indexing="ij")
        out.append(pd.DataFrame({"kernel": label, "x": at.ravel(), "y": other.ravel(), "value": values.ravel()}))
    return pd.concat(out, ignore_index=True)


KERNELS = Table(
    "kernels",
    "With `illustrate.stein_kernels`: the sum of all entries of three matrix-valued Stein kernels, for targets `N(0, "
    "1)` and `N(0, 1.25)` and `B = [[1, 0.1], [0.1, 1]]`.",
    columns("""
    kernel | string | | the base kernel
    x | float64 | x's | first argument
    y | float64 | x's | second argument
    value | float64 | | `1' K0(x, y) 1`
    """),
    lambda gathered: stein_kernels(),
    when=_asked("stein_kernels"),
)  # fmt: skip


def epochs(asked: Mapping[str, tuple[str, ...]], truth, last: Mapping[str, str], params: Iterable):
    """Mean absolute error of stochastic methods by epoch, with 95 % intervals over repetitions.

    Args:
        asked: problem -> methods with the option ``record``.
        truth: the table ``truth``.
        last: the last task of each problem, whose estimates are recorded.
        params: ``(problem, method, backend, arrays)`` of every run.
    """
    import pandas as pd

    out = []
    for problem, method, _, arrays in params:
        if method not in asked.get(problem, ()):
            continue
        if "trace_epochs" not in arrays:
            raise UserError(f"illustrate.epochs: {method!r} recorded no epochs on {problem!r}: set its option record")
        exact = truth[(truth["problem"] == problem) & (truth["task"] == last[problem])]["truth"].iloc[0]
        traced = arrays["trace_epochs"][-1]  # of the largest size: (R, E) or (R, T, E)
        traced = traced[:, -1] if traced.ndim == 3 else traced
        error = np.abs(traced - exact)
        mean, low, high = np.array([mean_interval(column) for column in error.T]).T
        out.append(
            pd.DataFrame(
                {"problem": problem, "task": last[problem], "method": method,
                 "part": (1 + np.arange(traced.shape[1])) / traced.shape[1], "mae": mean, "low": low, "high": high}
            )
        )  # fmt: skip
    return pd.concat(out, ignore_index=True)


def _epochs(gathered):
    last = {name: one.tasks[-1] for name, one in gathered.once(samples).items()}
    return epochs(gathered.experiment.illustrate.epochs, gathered["truth"], last, gathered.params)


EPOCHS = Table(
    "epochs",
    "With `illustrate.epochs`: errors of stochastic methods along their epochs, for the last task at the last of the "
    "sizes.",
    columns("""
    problem | string | | the experiment's name for the problem
    task | string | | the problem's name for the integral
    method | string | | the experiment's name for the method
    part | float64 | | epochs done, as a fraction of the method's epochs
    mae | float64 | f's | mean absolute error over repetitions
    low | float64 | f's | lower end of its 95 % interval
    high | float64 | f's | upper end
    """),
    _epochs,
    when=_asked("epochs"),
)  # fmt: skip


def power_scores(problem, reach: tuple[float, float] = (0.5, 2.0)):
    """Scores of power posteriors along the ladder of temperatures; Sun, Barp and Briol, Figure 6."""
    import pandas as pd

    grid = np.linspace(*reach, _GRID)
    ladder = np.asarray(_fact(problem, "ladder", "power_scores"))
    return pd.concat(
        [
            pd.DataFrame({"target": k, "temperature": t, "x": grid, "score": problem.score(k, grid[:, None])[:, 0]})
            for k, t in enumerate(ladder)
        ],
        ignore_index=True,
    )


SCORES = Table(
    "scores",
    "With `illustrate.power_scores`: scores of power posteriors along the ladder of temperatures.",
    columns("""
    target | int64 | | position in the ladder, from 0
    temperature | float64 | | the inverse temperature `t` of `p(y | x)^t p(x)`
    x | float64 | x's | point
    score | float64 | 1 / x's | gradient of the log density
    """),
    lambda gathered: power_scores(gathered.once(problems)[gathered.experiment.illustrate.power_scores]),
    when=_asked("power_scores"),
)  # fmt: skip


def predictive(problem, draws, points: int = 201):
    """Posterior of observed series over time; Sun, Barp and Briol, Figures 2 (left), 7 and 8.

    Args:
        problem: its ``about`` has ``solve`` ``(points (n, d), times (s,)) -> (n, s, k)``, ``times``, ``observations
            (s, k)``, or ``(s,)`` of one series, ``series`` (names) and ``task_times``; and ``posterior``, a task under
            the posterior, if the first is not.
        draws: samples; those of the first repetition are used.
    """
    import pandas as pd

    about = {
        name: _fact(problem, name, "predictive") for name in ("times", "task_times", "solve", "observations", "series")
    }
    times = np.asarray(about["times"], float)
    asked = np.asarray(about["task_times"], float)
    grid = np.unique(np.concatenate([np.linspace(times[0], times[-1], points), times, asked]))
    paths = np.asarray(about["solve"](draws.points[problem.about.get("posterior", 0)][0], grid))
    seen = np.asarray(about["observations"]).reshape(len(times), -1)
    low, high = np.nanquantile(paths, [0.025, 0.975], axis=0)
    out = []
    for k, series in enumerate(about["series"]):
        observed = np.full(len(grid), np.nan)
        observed[np.searchsorted(grid, times)] = seen[:, k]
        out.append(
            pd.DataFrame({"series": series, "time": grid, "mean": np.nanmean(paths[:, :, k], axis=0),
                          "low": low[:, k], "high": high[:, k], "observed": observed,
                          "task": np.isin(grid, asked) & (k == 0)})
        )  # fmt: skip
    return pd.concat(out, ignore_index=True)


def _predictive(gathered):
    name = gathered.experiment.illustrate.predictive
    return predictive(gathered.once(problems)[name], gathered.once(samples)[name].samples)


PREDICTIVE = Table(
    "predictive",
    "With `illustrate.predictive`: series over time under the posterior, from the samples of the first repetition.",
    columns("""
    series | string | | name of the series, such as `hare` or `lynx`
    time | float64 | the data's | time
    mean | float64 | the data's | posterior mean
    low | float64 | the data's | 2.5 % quantile over the samples
    high | float64 | the data's | 97.5 % quantile
    observed | float64 | the data's | the observation; NaN if there is none
    task | bool | | whether the mean at this time is one of the problem's integrals
    """),
    _predictive,
    when=_asked("predictive"),
)  # fmt: skip
TABLES = (FITS, KERNELS, EPOCHS, SCORES, PREDICTIVE)


def _fact(problem, name, illustration):
    if name not in problem.about:
        raise UserError(f"illustrate.{illustration}: the problem {problem.name!r} has no {name}")
    return problem.about[name]


def _density(problem, t, x):
    """The density of the task's target, relative to its largest value at ``x``."""
    import jax

    log = np.asarray(jax.vmap(problem.log_densities[problem.target[t]])(x[:, None]))
    return np.exp(log - log.max())
