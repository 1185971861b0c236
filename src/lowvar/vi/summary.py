"""Tables of posterior draws in the form of ``arviz.summary``."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from lowvar.core.frames import ROUNDING, rounded_text
from lowvar.errors import UserError, check_known, chosen_names
from lowvar.vi.judgement import Optimum


def summary(
    draws: dict[str, np.ndarray], var_names: Any, hdi_prob: float, kind: str, sites: Any, optimum: Optimum | None,
    response: Mapping[str, tuple[float, float]], round_to: str | None,
):  # fmt: skip
    """See ``Fit.summary``.

    Args:
        draws: independent draws, ``{site: (S, ...)}``.
        var_names: see ``Fit.summary``.
        hdi_prob: see there.
        kind: see there.
        sites: the coordinates of the latent sites in the vectors of ``optimum``, slices by name.
        optimum: the distance from the best guide.
        response: standard deviations by linear response and their standard errors, by the label of an entry.
        round_to: see ``Fit.summary``.
    """
    import pandas as pd

    check_known("kind", kind, ("hdi", "eti"), where="summary")
    if not isinstance(hdi_prob, Real) or isinstance(hdi_prob, bool) or not 0 < hdi_prob < 1:  # type: ignore[operator]
        raise UserError(f"summary: hdi_prob = {hdi_prob!r}; it must lie between 0 and 1, such as 0.94")
    names = chosen_names("site", var_names, draws, where="summary: var_names")
    tail = 50 * (1 - hdi_prob)
    columns = ["mean", "sd", f"{kind}_{tail:.3g}%", f"{kind}_{100 - tail:.3g}%", "mcse_mean", "mcse_sd"]
    columns += ["opt_mean", "opt_sd", "lr_sd", "lr_sd_se"]
    rows, labels = [], []
    for name in names:
        values = np.asarray(draws[name], float)
        entries = [name + label(place) for place in np.ndindex(values.shape[1:])]
        labels += entries
        table = _moments_and_intervals(values.reshape(len(values), -1), hdi_prob, kind)
        left = np.full((2, 1), np.nan) if optimum is None or name not in sites else _left(optimum, sites[name])
        left = left if left.shape[1] == len(table) else left.max(1, keepdims=True)
        linear = np.reshape([response.get(entry, (np.nan, np.nan)) for entry in entries], (-1, 2))
        rows.append(np.column_stack([table, *(left * table[:, 1]), linear]))
    table = pd.DataFrame(np.concatenate(rows), index=pd.Index(labels, dtype=object), columns=columns)
    if round_to is None:
        return table
    check_known("way to round", round_to, ROUNDING, where="summary: round_to")
    errors = dict.fromkeys(columns[:4], "mcse_mean") | {"sd": "mcse_sd", "lr_sd": "lr_sd_se"}
    return rounded_text(table, errors)


def label(place: tuple[int, ...]) -> str:
    """``[i, j]`` of the entry ``(i, j)`` of an array; nothing for a number."""
    return f"[{', '.join(map(str, place))}]" if place else ""


def _left(optimum: Optimum, where: slice) -> np.ndarray:
    """The errors of means and standard deviations that the optimisation may have left, relative, ``(2, entries)``."""
    pairs = (optimum.mean, optimum.mean_se), (optimum.sd, optimum.sd_se)
    return np.stack([np.maximum(np.abs(off[where]), error[where]) for off, error in pairs])


@np.errstate(invalid="ignore", over="ignore")  # of draws that are not finite, as of improper posteriors
def _moments_and_intervals(values: np.ndarray, prob: float, kind: str) -> np.ndarray:
    """The columns for draws ``(S, entries)``: ``(entries, 6)``."""
    S = len(values)
    mean, sd = values.mean(axis=0), values.std(axis=0, ddof=1)
    if kind == "eti":
        low, high = np.quantile(values, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    else:
        from numpyro.diagnostics import hpdi  # loads slowly

        low, high = hpdi(values, prob)  # the shortest interval, of one mode, as ArviZ's
    squares = (values - mean) ** 2
    with np.errstate(divide="ignore"):  # delta method: Var of the sample variance, over 4 sd^2
        of_sd = np.where(sd == 0, 0.0, squares.std(axis=0, ddof=1) / np.sqrt(S) / (2 * sd))
    return np.stack([mean, sd, low, high, sd / np.sqrt(S), of_sd], axis=1)
