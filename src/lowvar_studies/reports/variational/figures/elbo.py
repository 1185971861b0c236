"""Shared code of figures of ELBOs: the quantity of a panel, its axis, and the reason why it is empty."""

from __future__ import annotations

import math

import numpy as np

from lowvar.core.drawing import Axes
from lowvar_studies.reports.declarations import Frame

CONVERGENCE = ("problem", "method", "backend", "step_size", "gap_mean", "gap_low", "gap_high", "elbo_mean", "elbo_low",
               "elbo_high", "repetitions", "diverged")  # fmt: skip  # columns that the figures read
_REACH = 1e3  # largest over smallest shown distance to the best


def quantity(rows: Frame) -> str:
    """The quantity of a panel of the table ``convergence``: ``"gap"`` if the optimum is known, else ``"elbo"``."""
    return "elbo" if rows["gap_mean"].isna().all() and np.isfinite(rows["elbo_mean"]).any() else "gap"


def elbo_axis(ax: Axes, drawn: Frame) -> float:
    """Makes an axis of ELBOs logarithmic in the distance to a ceiling slightly above the best, with ELBOs at its ticks.

    The ceiling is above the best mean by a tenth of naive's distance to it (of the worst method's, if naive is the best
    or missing), or by the half width of the best method's interval if that is larger, so that the best line stays in
    the panel. The axis shows distances up to a thousand times that.

    Args:
        ax: the panel.
        drawn: finite rows of the table ``convergence``.

    Returns:
        The lowest ELBO that the axis shows.
    """
    best = drawn.groupby("method")["elbo_mean"].max()
    top, values = float(best.max()), drawn["elbo_mean"].to_numpy(float)
    apart = top - best.get("naive", top)
    apart = apart if apart > 0 else (top - best.min()) or (top - values.min()) / 10 or 1e-3 * abs(top) or 1.0
    room = np.nan_to_num(float(drawn.loc[drawn["elbo_mean"].idxmax(), "elbo_high"]) - top)
    least = max(0.1 * apart, min(1.1 * room, apart))
    ceiling = top + least
    lowest = max(values.min(), ceiling - _REACH * least)

    def forward(elbo):
        return -np.log10(np.maximum(ceiling - np.asarray(elbo, float), 1e-6 * least))

    ax.set_yscale("function", functions=(forward, lambda height: ceiling - 10.0 ** -np.asarray(height, float)))
    farthest = (ceiling - lowest) * 1.15
    ax.set_ylim(ceiling - farthest, ceiling - 0.4 * least)
    size = max(abs(top), abs(lowest))
    power = 0 if size < 1e4 else 3 * int(math.log10(size) // 3)
    ticks = _elbo_ticks(ceiling, least, farthest)
    ax.set_yticks(ticks, [f"{tick / 10**power:.10g}" for tick in ticks])
    ax.minorticks_off()
    unit = {0: "nats", 3: "1000 nats", 6: "million nats"}.get(power, f"$10^{{{power}}}$ nats")
    ax.set_ylabel(f"ELBO ({unit})")
    return ceiling - farthest


def _elbo_ticks(ceiling: float, least: float, most: float) -> list[float]:
    """About five round ELBOs at roughly geometric distances below ``ceiling``."""
    decades = math.log10(most / least)
    ticks: list[float] = []
    for part in np.linspace(0.02, 0.97, 5):
        distance = least * 10 ** (part * decades)
        unit = 10.0 ** math.floor(math.log10(distance / 2))
        tick = round((ceiling - distance) / unit) * unit
        if 0.4 * least < ceiling - tick < most and (not ticks or ceiling - tick > 1.4 * (ceiling - ticks[-1])):
            ticks.append(tick)
    return ticks


def lost(rows: Frame) -> Frame:
    """Mask of the rows whose step size has no mean because repetitions diverged."""
    lines = [rows[name] for name in ("problem", "method", "backend", "step_size")]
    finite = np.isfinite(rows["gap_mean"]) | np.isfinite(rows.get("elbo_mean", np.nan))
    diverged = (rows["diverged"] > 0) & ~finite
    return diverged.groupby(lines, dropna=False).transform("any")


def why_empty(rows: Frame) -> str:
    """The reason why rows of the table ``convergence`` give nothing to draw."""
    if not len(rows):
        return "no runs"
    if lost(rows).all():
        complete = (rows["diverged"] >= rows["repetitions"])[rows["diverged"] > 0].all()
        return "all runs diverged" if complete else "some runs diverged\nat every step size"
    return "nothing finite to draw"
