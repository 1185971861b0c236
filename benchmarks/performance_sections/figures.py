"""Growth curves: one line for each tool, with the peer's, in the style of all figures of the project."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lowvar.core import drawing
from lowvar.core.drawing import styled
from lowvar.studies.drawing import lines, panels, ticks
from lowvar.studies.drawing.style import Estimator

from .common import FIGURES

PEER = Estimator("NumPyro SVI", "#767676", "s", 1.8, (0, (4, 1.5)))
INDEXED = Estimator("NumPyro SVI, rows by index", "#56B4E9", "^", 1.8, (0, (2, 1)))
NAIVE = Estimator("lowvar, naive", "#000000", "o", 2.2)
DEFAULT = Estimator("lowvar, default", "#D55E00", "D", 2.2)


@dataclass(frozen=True)
class Line:
    """A line: ``x``, the middles ``y``, and bars from ``low`` to ``high``."""

    look: Estimator
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Panel:
    """A panel with logarithmic axes."""

    title: str
    x: str
    y: str
    lines: list[Line]


def rows(shown: list[Panel]) -> pd.DataFrame:
    """What a figure shows."""
    return pd.DataFrame(
        [
            {"panel": panel.title, "line": line.look.label, "x": x, "y": y, "low": low, "high": high}
            for panel in shown
            for line in panel.lines
            for x, y, low, high in zip(line.x, line.y, line.low, line.high, strict=True)
        ]
    )


def apart(values: list[float]) -> list[float]:
    """The values on a logarithmic axis that are a sixth of it or more from the one before; the first and others."""
    least = (values[-1] / values[0]) ** (1 / 6.5)
    chosen = values[:1]
    for value in values[1:]:
        if value >= least * chosen[-1]:
            chosen.append(value)
    return chosen


@styled
def picture(shown: list[Panel]):
    """The figure: panels side by side, a legend of all lines above."""
    fig, axes = panels.grid(len(shown), height=3.0)
    looks = {}
    for panel, ax in zip(shown, axes, strict=True):
        ax.set_title(panel.title)
        ax.set(xscale="log", yscale="log", xlabel=panel.x, ylabel=panel.y)
        ax.grid()
        for line in panel.lines:
            looks[line.look.label] = line.look
            lines.bars(ax, line.x, line.low, line.high, line.look, line.look.label)
            ax.plot(line.x, line.y, **lines.kind(line.look))
        at = apart(sorted({x for line in panel.lines for x in line.x}))
        ax.set_xticks(at, [ticks.word(x) for x in at])
        ax.minorticks_off()
        low, high = (f(y for line in panel.lines for y in (*line.low, *line.high)) for f in (min, max))
        ax.set_ylim(low / 1.3, high * 1.3)
    drawing.legend(fig, [drawing.entry(look.label, **lines.kind(look)) for look in looks.values()])
    ticks.enough(fig)
    return fig


def draw(stem: str, shown: list[Panel]) -> list[Path]:
    """Writes ``docs/figures/STEM.svg`` and ``STEM.csv``, the numbers in it."""
    with tempfile.TemporaryDirectory() as folder:
        made = drawing.save(picture(shown), Path(folder) / stem, rows(shown))
        return [Path(shutil.copy(path, FIGURES / path.name)) for path in made if path.suffix != ".png"]


def csv(shown: list[Panel]) -> str:
    """The numbers of a figure, as its file has them."""
    return rows(shown).to_csv(index=False, lineterminator="\n")
