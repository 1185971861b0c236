"""Rates of convergence: errors against generations, and slopes of their logarithms.

The error of Lyu and Tsang's Theorems 4 to 6 is ``(1/T) sum_t E f(mu_t) - f*``, the gap at the mean, averaged over all
generations so far.
"""

import numpy as np

from lowvar.core.intervals import jackknife, mean_interval
from lowvar_studies.reports.declarations import KEYS, RUN, Table, columns
from lowvar_studies.reports.search.gathering import optima

ERRORS = ("average", "last")


def fits(experiment) -> bool:
    """Whether an experiment fits rates."""
    return experiment.rates is not None


def errors(traces, optima) -> dict:
    """Gaps at the mean of every run, by problem, method and backend: ``(generations (G,), {error: (runs, G)})``.

    Gaps between two measured generations are interpolated linearly for the average; a diverged run has infinite gaps.
    """
    found = {}
    for key, group in traces.groupby(KEYS, sort=False):
        if (optimum := optima[key[0]]) is None:
            continue
        lost = (group["status"] != "ok") | ~np.isfinite(group["f"])
        wide = group.assign(gap=np.where(lost, np.inf, group["f"] - optimum)).pivot(
            index="repetition", columns="iteration", values="gap"
        )
        at, gap = wide.columns.to_numpy(float), np.maximum(wide.to_numpy(float), 0.0)
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(np.diff(at)[None, :] * (gap[:, 1:] + gap[:, :-1]) / 2, axis=1)
            found[key] = at[1:], {"average": sums / at[None, 1:], "last": gap[:, 1:]}
    return found


def slope(at, error) -> float:
    """The least-squares slope of the log of the mean error over runs ``(runs, G)`` against log ``at``; NaN if none."""
    mean = error.mean(axis=0)
    if len(at) < 2 or not (np.isfinite(mean) & (mean > 0)).all():
        return np.nan
    return float(np.polyfit(np.log(at), np.log(mean), 1)[0])


def interval(at, error) -> tuple[float, float, float]:
    """``slope`` and its 95 % interval, by the jackknife over runs."""
    return jackknife(lambda left_out: slope(at, np.delete(error, left_out, axis=0)), len(error))


def _regret(gathered):
    import pandas as pd

    out = []
    for key, (at, found) in gathered.once(_errors).items():
        for of in ERRORS:
            with np.errstate(invalid="ignore"):
                rows = [mean_interval(each) for each in found[of].T]
            out.append(
                pd.DataFrame(rows, columns=["gap_mean", "gap_low", "gap_high"]).assign(
                    **dict(zip(KEYS, key, strict=True)), of=of, iteration=at.astype(int),
                    repetitions=len(found[of]), fitted=at >= gathered.experiment.rates.first,
                )
            )  # fmt: skip
    return pd.concat(out, ignore_index=True) if out else []


def _errors(gathered):
    return errors(gathered.traces, optima(gathered))


def _rates(gathered):
    first, out = gathered.experiment.rates.first, []
    for key, (at, found) in gathered.once(_errors).items():
        used = at >= first
        if used.sum() < 2:
            continue
        at = at[used]
        bound = slope(at, (np.log(at) / at)[None, :])
        for of in ERRORS:
            middle, low, high = interval(at, found[of][:, used])
            out.append(
                dict(zip(KEYS, key, strict=True)) | {
                    "of": of, "first": int(at[0]), "last": int(at[-1]), "repetitions": len(found[of]),
                    "slope": middle, "slope_low": low, "slope_high": high,
                    "excess": middle - bound, "excess_low": low - bound, "excess_high": high - bound,
                }
            )  # fmt: skip
    return out


_OF = "of | string | | `average`: of the gaps at all generations so far; `last`: of the gap at this generation"
REGRET = Table(
    "regret",
    "Errors of Lyu and Tsang's Theorems 4 to 6: a row for each problem with known optimum, method, backend, kind of "
    "error and measured generation. The average interpolates between measured generations.",
    columns(RUN, _OF, """
    iteration | int64 | generations | generations done, T
    gap_mean.. | float64 | f's | the error, mean over repetitions
    repetitions | int64 | | repetitions in the row
    fitted | bool | | whether slopes are fitted to this generation
    """),
    _regret,
    when=fits,
)  # fmt: skip
RATES = Table(
    "rates",
    "Rates of convergence: slopes of the log of the mean error over repetitions against the log of the generations, "
    "with jackknife intervals over repetitions. A row for each problem with known optimum, method, backend and kind of "
    "error. NaN if a mean error is zero or infinite.",
    columns(RUN, _OF, """
    first | int64 | generations | first generation of the fit
    last | int64 | generations | last generation of the fit
    repetitions | int64 | | repetitions in the fit
    slope.. | float64 | | the slope
    excess.. | float64 | | the slope less that of `log(T) / T` at the same generations T
    """),
    _rates,
    when=fits,
)  # fmt: skip
TABLES = (REGRET, RATES)
