"""What figures of ELBOs share: which quantity a panel shows, its axis, and why it is empty."""

from __future__ import annotations

import math

import numpy as np

from lowvar.studies.base import Frame
from lowvar.studies.drawing.panels import Axes

CONVERGENCE = ("problem", "method", "backend", "step_size", "gap_mean", "gap_low", "gap_high", "elbo_mean", "elbo_low",
               "elbo_high", "repetitions", "diverged")  # fmt: skip  # what its figures read
_REACH = 1e3  # the largest distance to the best that is shown, over the smallest


def quantity(rows: Frame) -> str:
    """What a panel of a convergence table shows: ``"gap"`` where the optimum is known, else ``"elbo"``."""
    return "elbo" if rows["gap_mean"].isna().all() and np.isfinite(rows["elbo_mean"]).any() else "gap"


def elbo_axis(ax: Axes, drawn: Frame) -> float:
    """Scales an axis of ELBOs: logarithmic in the distance to a little above the best, with ELBOs at its ticks.

    How little: a tenth of naive's distance to the best, by their best means (of the worst method's, where naive is the
    best or is not there), or the half width of the best one's interval, so that no line leaves the panel because it is
    the best itself. A thousand times that is shown.

    Args:
        ax: the panel.
        drawn: finite rows of a convergence table.

    Returns:
        The lowest ELBO that is shown.
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
    """Round ELBOs at about geometric distances below ``ceiling``, five or so."""
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
    """Which rows belong to a line that ends without a mean, because repetitions diverged."""
    lines = [rows[name] for name in ("problem", "method", "backend", "step_size")]
    known = np.isfinite(rows["gap_mean"]) | np.isfinite(rows.get("elbo_mean", np.nan))
    dead = (rows["diverged"] > 0) & ~known
    return dead.groupby(lines, dropna=False).transform("any")


def why_empty(rows: Frame) -> str:
    """The reason why rows of a convergence table leave nothing to draw."""
    if not len(rows):
        return "no runs"
    if lost(rows).all():
        whole = (rows["diverged"] >= rows["repetitions"])[rows["diverged"] > 0].all()
        return "all runs diverged" if whole else "some runs diverged\nat every step size"
    return "nothing finite to draw"
