"""What is drawn is what the tables say: bars, lines, bands, floors, crosses, and what empty panels say."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import bands, bars, line, of, segments, texts, titles
from matplotlib.collections import LineCollection

from lowvar.core import drawing
from lowvar.errors import UserError
from lowvar.vi.plots import SOURCES
from lowvar_studies.reports.drawing import style
from lowvar_studies.reports.drawing.rows import part
from lowvar_studies.reports.variational.figures.convergence import AXES

draw, shown = of("variational")


def test_shares_bars_are_the_shares_and_points_are_the_variances():
    table = synthetic.decomposition()
    fig = draw("shares", table)
    assert len(fig.axes) == 4
    data = shown("shares", table)
    assert set(data["end"]) == {True}
    assert set(data["block"]) == {"all"}
    for name, (left, right) in zip(("sonar", "australian"), np.reshape(fig.axes, (2, 2)), strict=True):
        assert left.get_title(loc="left") == f"{name}, batches of 5"
        assert [t.get_text() for t in left.get_yticklabels()][3:] == ["joint (SAGA)", "joint (SVRG)"]
        assert len(left.patches) == 5 * 3
        widths = np.array([bar.get_width() for bar in left.patches]).reshape(5, 3)
        np.testing.assert_allclose(widths.sum(axis=1), 100)
        points = [ln for ln in right.lines if ln.get_marker() in ("o", "D", "<")]
        assert len(points) == 5 * 4
        for row, method in enumerate(synthetic.METHODS):
            rows = part(data, problem=name, method=method).set_index("source")
            shares = rows.loc[list(synthetic.SOURCES), "share"].clip(lower=0)
            np.testing.assert_allclose(widths[row], 100 * shares / shares.sum())
            total = [ln for ln in points if ln.get_marker() == "D"][row]
            assert total.get_xdata()[0] == rows.loc["total", "variance"]
            assert total.get_color() == drawing.INK
    assert "24× less" in texts(fig.axes[1])
    assert "≈ naive" in texts(fig.axes[1])
    assert "4.1e4" in texts(fig.axes[1])


def test_shares_whiskers_end_at_the_intervals():
    data = shown("shares", synthetic.decomposition(("sonar",)))
    left = draw("shares", data).axes[0]
    whiskers = [ln.get_xdata() for ln in left.lines if ln.get_marker() == "|"]
    assert len(whiskers) == 15
    rows = part(data, method="naive").set_index("source")
    np.testing.assert_allclose(whiskers[0], 100 * rows.loc["subsampling", ["share_low", "share_high"]].to_numpy(float))
    start = rows.loc["subsampling", "share"]
    ends = start + rows.loc["monte_carlo", ["share_low", "share_high"]].to_numpy(float)
    np.testing.assert_allclose(whiskers[1], 100 * ends)
    ends = 1 - rows.loc["interaction", ["share_high", "share_low"]].to_numpy(float)
    np.testing.assert_allclose(whiskers[2], 100 * ends)


def test_negative_component_has_no_bar_and_is_marked_off_the_axis():
    table = synthetic.decomposition(("sonar",), ("naive", "joint_svrg"))
    fig = draw("shares", table)
    assert fig.axes[0].patches[5].get_width() == 0
    marks = [ln for ln in fig.axes[1].lines if ln.get_marker() == "<"]
    assert [mark.get_color() for mark in marks] == [SOURCES["interaction"].colour]
    assert "too small for the axis" in [t.get_text() for t in fig.legends[0].get_texts()]


def test_along_lines_bands_and_dotted_floors():
    table = synthetic.decomposition()
    fig = draw("along", table)
    assert len(fig.axes) == 4
    data = shown("along", table)
    for ax, (name, block) in zip(
        fig.axes, [(p, b) for p in ("sonar", "australian") for b in ("all", "mu")], strict=True
    ):
        assert ax.get_yscale() == "log"
        here = part(data, problem=name, block=block)
        assert set(bars(ax)) == {f"{method}: 95 %" for method in synthetic.METHODS}
        for method in synthetic.METHODS:
            rows = part(here, method=method, source="total")
            np.testing.assert_array_equal(line(ax, method).get_xdata(), rows["iteration"])
            np.testing.assert_array_equal(line(ax, method).get_ydata(), rows["variance"])
            assert line(ax, method).get_color() == style.ESTIMATORS[method].colour
            np.testing.assert_array_equal(segments(ax, f"{method}: 95 %"), rows[["low", "high"]])
        for source in ("subsampling", "monte_carlo"):
            floor = line(ax, source)
            np.testing.assert_array_equal(floor.get_ydata(), part(here, method="naive", source=source)["variance"])
            assert floor.get_linestyle() not in ("-", "None")
            assert floor.get_marker() in ("", "None")
        assert ax.get_xlim()[0] < 0 < ax.get_xlim()[1]  # iteration 0 is on the axis
        assert ax.get_xscale() == "symlog"
        assert {"$V_n$", r"$V_\varepsilon$"} <= set(texts(ax))


def test_along_one_moment_still_shows_floors_and_intervals():
    fig = draw("along", part(synthetic.decomposition(("sonar",), moments=(3,)), block="all"))
    (ax,) = fig.axes
    assert len(set(line(ax, "subsampling").get_ydata())) == 1
    assert np.ptp(line(ax, "subsampling").get_xdata()) > 0
    assert len([c for c in ax.collections if isinstance(c, LineCollection)]) == 5


@pytest.mark.parametrize(("x", "column"), [("passes", "passes"), ("iteration", "iteration"), ("seconds", "seconds")])
def test_convergence_draws_the_envelope_with_intervals(x, column):
    table = synthetic.convergence(backends=("jax", "torch"))
    fig = draw("convergence", table, x=x)
    data = shown("convergence", table, x=x)
    assert data["envelope"].all()
    for name, ax in zip(("sonar", "australian"), fig.axes, strict=True):
        assert ax.get_yscale() == "log"
        assert len(bars(ax)) == 10  # of so many lines, bands would hide each other
        assert not bands(ax)
        for method in synthetic.METHODS:
            rows = part(data, problem=name, method=method, backend="jax")
            assert rows["step_size"].nunique() > 1  # which step is best changes along the run
            full, open_ = line(ax, f"{method}, jax"), line(ax, f"{method}, torch")
            np.testing.assert_array_equal(full.get_xdata(), rows[column])
            np.testing.assert_array_equal(full.get_ydata(), rows["gap_mean"])
            assert full.get_linestyle() == "-"
            assert open_.get_linestyle() != "-"
            assert open_.get_markerfacecolor() == "none"
            assert open_.get_markersize() > full.get_markersize()
    runs = data["repetitions"].iloc[0] * table["step_size"].nunique()
    expected = f"seconds, amortised over\n{runs} vectorised runs" if x == "seconds" else AXES[x]
    assert fig.axes[0].get_xlabel() == expected


def test_intervals_of_few_lines_are_bands_and_of_many_stand_side_by_side():
    few, many = (draw("convergence", synthetic.convergence(methods=synthetic.METHODS[:n])).axes[0] for n in (3, 4))
    assert (len(bands(few)), len(bars(few)), len(bands(many)), len(bars(many))) == (3, 0, 0, 4)
    places = {tuple(bar.get_transform().transform((1.0, 1.0))) for bar in bars(many).values()}
    assert len({round(x, 3) for x, _ in places}) == 4


def test_convergence_names_the_methods_that_diverged():
    ax = draw("convergence", synthetic.some_diverged(("naive", "cv"), problems=("sonar",))).axes[0]
    assert "diverged: naive, cv" in texts(ax)
    assert len(bars(ax)) == 3


def test_steps_ends_intervals_and_crosses():
    table = synthetic.convergence(("sonar",))
    (ax,) = draw("steps", table).axes
    last = table[(table["epoch"] == 128) & (table["gap_mean"] > 0)]
    for method in synthetic.METHODS:
        rows = part(last, method=method).sort_values("step_size")
        np.testing.assert_array_equal(line(ax, f"{method}, jax").get_xdata(), rows["step_size"])
        np.testing.assert_array_equal(line(ax, f"{method}, jax").get_ydata(), rows["gap_mean"])
    crosses = line(ax, "naive: all diverged")
    assert list(crosses.get_xdata()) == [2.5e-3, 5e-3, 7.5e-3]
    assert crosses.get_marker() == "x"
    assert 0.9 < crosses.get_ydata()[0] < 1  # in the strip at the top, in parts of the panel
    assert [ln for ln in ax.lines if ln.get_label() == "joint: all diverged"] == []
    top = max(rows["gap_high"].max() for _, rows in last.groupby("method"))
    assert ax.transAxes.inverted().transform(ax.transData.transform((1e-3, top)))[1] < 0.83


def test_steps_shows_the_elbo_where_no_optimum_is_known():
    table = synthetic.without_optimum(problems=("mine",))
    (ax,) = draw("steps", table).axes
    assert ax.get_ylabel() == "ELBO (nats)"
    assert ax.get_ylim()[1] > table.loc[table["epoch"] == 128, "elbo_mean"].max()
    last = table[(table["epoch"] == 128) & table["elbo_mean"].notna()]
    rows = part(last, method="joint").sort_values("step_size")
    np.testing.assert_array_equal(line(ax, "joint, jax").get_ydata(), rows["elbo_mean"])


def test_convergence_shows_the_elbo_where_no_optimum_is_known():
    """Equal distances to the best are equally long whatever they are above it, and the start is off the panel."""
    table = synthetic.without_optimum(problems=("mine",), optimum=-2e4)
    table.loc[table["epoch"] == 0, "elbo_mean"] = -1e102
    table = synthetic.with_envelope(table)
    (ax,) = draw("convergence", table).axes
    assert ax.get_ylabel() == "ELBO (1000 nats)"
    low, high = ax.get_ylim()
    assert -1e9 < low < high
    top = table["elbo_mean"].max()
    assert top < high < top + 100
    for method in synthetic.METHODS:
        rows = part(shown("convergence", table), method=method)
        np.testing.assert_array_equal(line(ax, f"{method}, jax").get_ydata(), rows["elbo_mean"])
    said = [float(text.get_text()) for text in ax.get_yticklabels()]
    np.testing.assert_allclose(1000 * np.array(said), ax.get_yticks())
    assert len(said) >= 3
    heights = ax.transAxes.inverted().transform(ax.transData.transform([(0, tick) for tick in ax.get_yticks()]))[:, 1]
    assert np.abs(np.diff(heights)).min() > 0.1


def test_convergence_names_what_lies_below_the_panel():
    table = synthetic.without_optimum(problems=("mine",))
    far = table["method"] == "cv"
    table.loc[far, ["elbo_mean", "elbo_low", "elbo_high"]] -= 1e9
    assert "below: cv" in texts(draw("convergence", table).axes[0])


def test_a_line_that_ends_nowhere_is_drawn_as_far_as_it_goes():
    table = synthetic.convergence(problems=("sonar",))
    late = (table["epoch"] > 8) & (table["method"] == "cv")
    table.loc[late, [name for name in table if name.startswith(("gap_", "elbo_"))]] = np.nan
    table.loc[late, "diverged"] = 1
    ax = draw("convergence", synthetic.with_envelope(table)).axes[0]
    assert "diverged: cv" in texts(ax)
    assert len(line(ax, "cv, jax").get_xdata()) == 5


def test_split_along_draws_naive_by_source_and_joint():
    table = synthetic.decomposition()
    fig = draw("split_along", table)
    data = shown("split_along", table)
    assert set(data["method"]) == {"naive", "joint"}
    for name, ax in zip(("sonar", "australian"), fig.axes, strict=True):
        here = part(data, problem=name)
        for method, source in (("naive", "total"), ("joint", "total"), *(("naive", one) for one in synthetic.SOURCES)):
            rows = part(here, method=method, source=source)
            np.testing.assert_array_equal(line(ax, f"{method}, {source}").get_ydata(), rows["variance"])
    assert set(shown("split_along", synthetic.decomposition(methods=("naive", "cv", "stl")))["method"]) == {
        "naive",
        "cv",
    }
    with pytest.raises(UserError, match="no method 'naive'"):
        draw("split_along", synthetic.decomposition(methods=("cv", "joint")))


def test_several_ways_of_drawing_noise_do_not_mix():
    one = synthetic.decomposition()
    both = pd.concat([one.assign(noise="iid", particles=1), one.assign(noise="rqmc", particles=8, variance=1.0)])
    for name in ("shares", "along", "split_along"):
        found = shown(name, both).drop(columns=["noise", "particles"])
        pd.testing.assert_frame_equal(found, shown(name, one))


def test_schemes_draws_ratios_with_intervals():
    table = synthetic.schemes()
    fig = draw("schemes", table)
    assert titles(fig.axes) == [f"{name}, {count} particles" for name in ("sonar", "australian") for count in (8, 64)]
    for ax, count in zip(fig.axes[:2], (8, 64), strict=True):
        for eps in ("antithetic", "rqmc"):
            (row,) = part(
                table, problem="sonar", particles=count, noise=eps, method="joint", source="total"
            ).itertuples()
            dot = line(ax, f"joint: {eps}")
            assert dot.get_xdata()[0] == row.to_iid
            assert list(line(ax, f"joint: {eps}, 95 %").get_xdata()) == [row.to_iid_low, row.to_iid_high]
            assert dot.get_color() == style.SCHEMES[eps].colour
    with pytest.raises(UserError, match="only iid noise"):
        draw("schemes", table[table["noise"] == "iid"])


@pytest.mark.parametrize("name", ["convergence", "steps"])
def test_panel_without_a_line_says_why(name):
    fig = draw(name, synthetic.all_diverged())
    assert [texts(ax) for ax in fig.axes] == [["all runs diverged"]] * 2


def test_nan_variances_are_said_and_nan_intervals_are_left_out():
    table = synthetic.decomposition()
    bad = table["problem"] == "sonar"
    numbers = ["variance", "low", "high", "share", "share_low", "share_high"]
    table.loc[bad, numbers] = np.nan
    table.loc[~bad, ["low", "high", "share_low", "share_high"]] = np.nan
    fig = draw("shares", table)
    assert texts(fig.axes[0]) == ["no finite variance"] * 5
    assert texts(fig.axes[1]) == ["no finite variance"]
    assert len(fig.axes[2].patches) == 15
    assert not [ln for ln in fig.axes[2].lines if ln.get_marker() == "|"]
    fig = draw("along", table)
    assert texts(fig.axes[0]) == ["no finite variance"]
    assert line(fig.axes[2], "joint").get_ydata().min() > 0


def test_a_mean_that_some_diverged_runs_spoil_is_a_ring_in_the_strip():
    table = synthetic.convergence(("sonar",))
    some = (table["diverged"] > 0) & (table["diverged"] < table["repetitions"])
    table.loc[some, ["gap_mean", "elbo_mean"]] = [np.inf, -np.inf]
    (ax,) = draw("steps", table).axes
    assert list(line(ax, "joint: some diverged").get_xdata()) == [5e-3, 7.5e-3]
    assert line(ax, "joint: some diverged").get_marker() == "o"
    assert line(ax, "joint, jax").get_xdata().max() == 2.5e-3


def test_wide_intervals_do_not_hide_the_means():
    table = synthetic.convergence(("sonar",))
    table = table.assign(gap_low=table["gap_mean"] / 1e9, gap_high=table["gap_mean"] * 1e9)
    for ax in (*draw("convergence", table).axes, *draw("steps", table).axes):
        low, high = ax.get_ylim()
        assert high / low < 1e10
        assert low < min(ln.get_ydata().min() for ln in ax.lines if ln.get_label() == "joint, jax")


def test_the_first_recorded_time_is_left_out_unless_fewer_than_two_would_stay():
    table = synthetic.convergence()
    recorded = table[(table["seconds"] > 0) & (table["epoch"] > 0)]
    runs = ["problem", "method", "backend"]
    first = recorded.groupby(runs)["epoch"].min()
    for name in ("seconds", "cost"):
        saved = shown(name, table)
        later = saved[saved["epoch"] > 0]
        assert (later.groupby(runs)["epoch"].min() > first.reindex(later.groupby(runs).groups.keys())).all()
        assert set(later["seconds"]) <= set(recorded["seconds"])  # no time changes
        two = sorted(table["epoch"].unique())[:3]
        assert set(shown(name, table[table["epoch"].isin(two)])["epoch"]) == set(two)


def test_methods_with_one_step_size_are_side_by_side():
    table = synthetic.convergence(("sonar",))
    table = table[table["step_size"] == table.loc[table["gap_mean"].idxmin(), "step_size"]]
    (ax,) = draw("steps", table).axes
    places = [float(line.get_xdata()[0]) for line in ax.lines if line.get_label().endswith(", jax")]
    size = float(table["step_size"].iloc[0])
    assert len(set(places)) == len(places) == table["method"].nunique() > 1
    assert size / 2 < min(places) < size < max(places) < 2 * size
