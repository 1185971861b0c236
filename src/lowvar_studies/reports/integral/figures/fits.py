"""One-dimensional integrands and the functions that methods fit to them."""

from __future__ import annotations

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, Axes, Picture, styled
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import panels
from lowvar_studies.reports.drawing.rows import by_method, part, whole
from lowvar_studies.reports.drawing.style import Estimator, integrators
from lowvar_studies.reports.integral.figures.common import title

_INTEGRAND = "#B5B5B5"
_DENSITY = "#EFEFEF"


@styled
def draw(rows: Frame) -> Picture:
    """A panel for each problem and task."""
    groups = list(rows[["problem", "task"]].drop_duplicates().itertuples(index=False, name=None))
    looks = integrators(rows.loc[(rows["kind"] == "curve") & rows["fitted"].notna(), "method"])
    fig, axes = panels.grid(len(groups), "x", "f and fits", height=2.9)
    for (name, which), ax in zip(groups, axes, strict=True):
        ax.set_title(title(name, which))
        _panel(ax, part(rows, problem=name, task=which), looks)
    keys = [drawing.entry("integrand f", color=_INTEGRAND, lw=5)]
    keys += [drawing.entry(look.label, **_line(look)) for look in looks.values()]
    keys.append(drawing.entry("sample", ls="", marker="o", ms=4, color=INK))
    if "density" in rows and rows["density"].notna().any():
        keys.append(drawing.patch("density of the target", color=_DENSITY))
    drawing.legend(fig, keys)
    return fig


def _line(look: Estimator) -> dict:
    return {"color": look.colour, "lw": look.width, "ls": look.dash}


def _panel(ax: Axes, rows: Frame, looks: dict) -> None:
    curves, points = rows[rows["kind"] == "curve"], rows[rows["kind"] == "point"].drop_duplicates("x")
    ax.grid()
    f = curves.drop_duplicates("x").sort_values("x")
    if len(f):
        ax.plot(f["x"], f["f"], color=_INTEGRAND, lw=5, label="f", zorder=1.5, solid_capstyle="butt")
    for method, line in by_method(curves, looks, "x"):
        ax.plot(line["x"], line["fitted"], **_line(looks[method]), label=method)
    ax.plot(
        points["x"], points["f"], ls="", marker="o", ms=3.6, color=INK, mec="white", mew=0.3, label="sample", zorder=4
    )
    low, high = _span(rows)
    room = 0.06 * (high - low)
    ax.set_ylim(low - room, high + room)
    if "density" in f and f["density"].notna().any():
        height = f["density"] / f["density"].max() * 0.3 * (high - low + 2 * room)
        ax.fill_between(f["x"], low - room, low - room + height, color=_DENSITY, lw=0, zorder=0.5, label="density")


def _span(rows: Frame) -> tuple[float, float]:
    """The range of the integrand and the fits, with at most half the integrand's range beyond it on either side."""
    f = rows["f"].to_numpy(float)
    f = f[np.isfinite(f)]
    low, high = (float(f.min()), float(f.max())) if len(f) else (0.0, 1.0)
    wide = max(high - low, 1e-12)
    fitted = rows["fitted"].to_numpy(float)
    fitted = fitted[np.isfinite(fitted)]
    if len(fitted):
        low, high = max(min(low, fitted.min()), low - 0.5 * wide), min(max(high, fitted.max()), high + 0.5 * wide)
    return low, high


FITS = Figure(
    "fits", "fits", whole("fits", "problem", "task", "method", "x", "f", "fitted", "kind"), draw,
    caption="Integrands, the functions that methods fitted to them in the first repetition, and the sample points. The "
    "integral of a fitted function is known; that of its difference to the integrand, weighted by the density of the "
    "points (shaded), remains to be estimated.",
    answer="integrands, and the functions that methods of integration fit to them.",
)  # fmt: skip
