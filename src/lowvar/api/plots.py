"""The picture of a fit: its ELBO along the steps."""

from __future__ import annotations

import os

import numpy as np

from lowvar.studies.drawing import panels
from lowvar.studies.drawing.panels import Axes, Picture
from lowvar.studies.drawing.save import save
from lowvar.studies.drawing.style import BAND, styled

_COLOUR = "#0072B2"
_END = 0.1  # the second panel begins at this share of the steps
_ROOM = 0.08  # of the height, above and below the second panel's values


@styled
def elbo_figure(fit, stem: str | os.PathLike | None = None) -> Picture:
    """The ELBO of a ``Fit`` with its standard error; see ``Fit.plot``."""
    import matplotlib.pyplot  # noqa: F401  # notebooks show figures once it is imported

    rows = fit.elbo[np.isfinite(fit.elbo["elbo"])].reset_index(drop=True)
    last = int(rows["iteration"].iloc[-1])
    late = rows[rows["iteration"] >= _END * last]
    both = 0 < late["iteration"].iloc[0] < last
    fig = panels.figure(2.9)
    axes = panels.cells(fig, 2 if both else 1, 2)
    _lines(axes[0], rows, "all steps" if both else "")
    if last > 10:
        axes[0].set_xscale("symlog", linthresh=1, linscale=0.4)
        _decades(axes[0], last)
    for ax in axes:
        ax.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes[0].set_ylabel("ELBO (nats)")
    if both:
        _lines(axes[1], late, f"from step {int(late['iteration'].iloc[0]):,}")
        low = (late["elbo"] - late["elbo_se"].fillna(0)).min()
        high = (late["elbo"] + late["elbo_se"].fillna(0)).max()
        room = _ROOM * (high - low) or 1.0
        axes[1].set_ylim(low - room, high + room)
    axes[-1].legend(loc="lower right")
    if stem is not None:
        save(fig, stem, rows)
    return fig


def _lines(ax: Axes, rows, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    steps, elbo, error = (rows[name].to_numpy(float) for name in ("iteration", "elbo", "elbo_se"))
    ax.fill_between(steps, elbo - error, elbo + error, color=_COLOUR, alpha=BAND, lw=0, label="± standard error")
    ax.plot(steps, elbo, color=_COLOUR, marker="o", ms=3, lw=1.4, label="ELBO")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=3))
    ax.yaxis.set_major_locator(MaxNLocator(6, min_n_ticks=3))
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    ax.set_xlabel("step")
    ax.set_title(title, fontsize="medium")
    ax.grid(True)


def _decades(ax: Axes, last: int) -> None:
    """Ticks at 0 and at powers of ten, at most six."""
    from matplotlib.ticker import FixedLocator, NullLocator

    powers = np.arange(0, np.floor(np.log10(last)) + 1)
    powers = powers[:: int(np.ceil(len(powers) / 5))]
    ax.xaxis.set_major_locator(FixedLocator([0, *10**powers]))
    ax.xaxis.set_minor_locator(NullLocator())
