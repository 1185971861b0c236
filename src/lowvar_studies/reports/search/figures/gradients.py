"""Effect of noise schemes on the variance of search gradients, and the variance of odd and even parts."""

from __future__ import annotations

from functools import partial

import numpy as np

from lowvar.core import drawing
from lowvar.core.drawing import INK, SMALL, Axes, Picture
from lowvar.errors import check_known
from lowvar_studies.reports.declarations import Figure, Frame
from lowvar_studies.reports.drawing import charts
from lowvar_studies.reports.drawing.rows import part, problems
from lowvar_studies.reports.drawing.style import SCHEMES, Estimator
from lowvar_studies.reports.search.gathering import DECOMPOSITION

_BLOCKS = {"mu": "mean", "sigma": "scale"}
_SPREADS = 3  # most standard deviations shown, as columns of panels
_PARTS = {"odd": "#332288", "even": "#DDCC77"}


def select(decomposition: Frame, baseline: str | None = None) -> Frame:
    """The rows of one baseline (``mean`` if available, else the first) and of at most three standard deviations."""
    known = list(decomposition["baseline"].drop_duplicates())
    chosen = baseline or ("mean" if "mean" in known else known[0])
    check_known("baseline", chosen, known, where="decomposition table")
    rows = decomposition[decomposition["baseline"] == chosen]
    spreads = np.unique(rows["sigma"].to_numpy(float))
    if len(spreads) > _SPREADS:
        spreads = spreads[np.round(np.linspace(0, len(spreads) - 1, _SPREADS)).astype(int)]
    return rows[rows["sigma"].isin(spreads)].reset_index(drop=True)


def draw(rows: Frame) -> Picture:
    """A row of panels for each problem: ratios by scheme at each sigma; at the right, shares of odd and even parts."""
    names = problems(rows)
    spreads = np.unique(rows["sigma"].to_numpy(float))
    looks = {name: look for name, look in SCHEMES.items() if name in set(rows["scheme"]) - {"iid"}}
    fig = drawing.figure(2.05 * len(names) + 0.3)
    widths = [*([1.0] * len(spreads)), 0.75]
    axes = fig.subplots(len(names), len(widths), squeeze=False, gridspec_kw={"width_ratios": widths})
    for name, line in zip(names, axes, strict=True):
        problem = rows[rows["problem"] == name]
        totals = problem[problem["source"] == "total"]
        ends = _ends(totals[totals["scheme"].isin(list(looks))])
        for rank, (spread, ax) in enumerate(zip(spreads, line, strict=False)):
            title = f"$\\sigma$ = {spread:g}"
            ax.set_title(f"{name}\n{title}" if rank == 0 else title)
            _ratios(ax, totals[np.isclose(totals["sigma"], spread)], looks, ends)
            if rank:
                ax.tick_params(labelleft=False)
        line[0].set_ylabel("variance / iid")
        line[-1].set_title("iid: parts of f")
        _composition(line[-1], problem, spreads)
    for ax in axes[-1, :-1]:
        ax.set_xlabel("points / dimension")
    axes[-1, -1].set_xlabel("share (%)")
    keys, plain = charts.entries(looks), Estimator("", INK, "o")
    keys.append(drawing.entry("gradient of the mean", **_kind(plain, "mu")))
    keys.append(drawing.entry("of the scale", **_kind(plain, "sigma")))
    keys += charts.keys({}, interval="bars")
    keys += [drawing.patch(f"variance from f's {kind} part", color=colour) for kind, colour in _PARTS.items()]
    drawing.legend(fig, keys)
    return fig


def _kind(look: Estimator, block: str) -> dict:
    style = {"color": look.colour, "marker": look.marker, "ms": 6, "lw": 1.6}
    return style if block == "mu" else style | {"mfc": "white", "ls": (0, (3, 2)), "lw": 1.2, "mew": 1.3}


def _ends(rows: Frame) -> tuple[float, float]:
    values = rows[["to_iid", "to_iid_low", "to_iid_high"]].to_numpy(float)
    values = values[np.isfinite(values) & (values > 0)]
    middle = rows["to_iid"].to_numpy(float)
    middle = middle[np.isfinite(middle) & (middle > 0)]
    if not len(middle):
        return 0.5, 2.0
    low, high = max(values.min(), middle.min() / 3), min(values.max(), middle.max() * 3)
    low, high = min(low, 0.8), max(high, 1.25)
    room = max(1.15, (high / low) ** 0.06)  # a marker's height
    return low / room, high * room


def _ratios(ax: Axes, rows: Frame, looks: dict, ends: tuple[float, float]) -> None:
    ax.set_yscale("log")
    ax.set_ylim(*ends)
    ax.grid()
    ax.axhline(1.0, color=INK, lw=1.1, ls=(0, (1, 2)), zorder=1, label="iid")
    if not len(rows):
        drawing.say(ax, "not measured")
        return
    ratio = rows["population"] / rows["dim"]
    ax.set_xscale("log")
    places = np.unique(ratio.to_numpy(float))
    if len(places) == 1:
        charts.one_tick(ax, places[0], "all at {:.3g}")
    ax.set_xlim(places[0] / 1.5, places[-1] * 1.5)
    count, rank = 2 * len(looks), 0
    for scheme in looks:
        for block in _BLOCKS:
            shift = 1.05 ** (rank - (count - 1) / 2)  # so that markers do not overlap
            rank += 1
            line = part(rows, scheme=scheme, block=block)
            line = line.assign(place=ratio.loc[line.index] * shift, low=line["to_iid_low"].clip(lower=ends[0]))[
                np.isfinite(line["to_iid"])
            ]
            charts.draw(ax, line, looks, "place", "to_iid", "low", "to_iid_high", mark="bars", hue="scheme",
                        name=f"{{}}, {block}", style=partial(_kind, block=block))  # fmt: skip


def _composition(ax: Axes, rows: Frame, spreads: np.ndarray) -> None:
    ax.set_xlim(0, 100)
    ax.set_xticks([0, 50, 100])
    places, words = [], []
    iid = rows[rows["scheme"] == "iid"]
    iid = iid[iid["population"] == iid["population"].max()]
    y = 0.0
    for spread in spreads:
        for block, word in _BLOCKS.items():
            cell = iid[(iid["block"] == block) & np.isclose(iid["sigma"], spread)].set_index("source")["variance"]
            parts = {kind: max(float(cell.get(kind, 0.0)), 0.0) for kind in _PARTS}
            total = sum(parts.values())
            start = 0.0
            for kind, colour in _PARTS.items():
                width = 100 * parts[kind] / total if total > 0 else 0.0
                ax.barh(y, width, 0.8, left=start, color=colour, lw=0).set_label(f"{spread:g}, {block}, {kind}")
                start += width
            places.append(y)
            words.append(f"{spread:g}, {word}")
            y += 1.0
        y += 0.4
    ax.set_yticks(places, words, fontsize=SMALL)
    ax.yaxis.tick_right()
    ax.set_ylim(y - 0.8, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


GRADIENTS = Figure(
    "gradients", DECOMPOSITION, select, draw,
    caption="Variance of the search gradient by noise scheme, divided by that of as many iid points, against points "
    "per dimension: filled markers for the mean, open ones for the scale; bars are 95 % intervals. Right: shares of "
    "the variance with iid points from the odd and the even part of f around the mean mu of the search, "
    "(f(mu + x) - f(mu - x)) / 2 and (f(mu + x) + f(mu - x)) / 2. Antithetic points remove the part of the variance "
    "that comes from the even part in the gradient of the mean, and from the odd part in that of the scale. Schemes at "
    "their only number of points are drawn side by side.",
    answer="variance of the search gradient by noise scheme, relative to iid points.",
)  # fmt: skip
