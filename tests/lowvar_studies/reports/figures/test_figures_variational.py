"""What is drawn is what the tables say: bars, lines, bands, floors, crosses, and what empty panels say."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import bars, figures_of, line, texts, titles

from lowvar.core import drawing
from lowvar.errors import UserError
from lowvar_studies.reports.drawing import style
from lowvar_studies.reports.drawing.rows import part

draw, shown = figures_of("variational")


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


def test_a_mean_that_some_diverged_runs_spoil_is_a_ring_in_the_strip():
    table = synthetic.convergence(("sonar",))
    some = (table["diverged"] > 0) & (table["diverged"] < table["repetitions"])
    table.loc[some, ["gap_mean", "elbo_mean"]] = [np.inf, -np.inf]
    (ax,) = draw("steps", table).axes
    assert list(line(ax, "joint: some diverged").get_xdata()) == [5e-3, 7.5e-3]
    assert line(ax, "joint: some diverged").get_marker() == "o"
    assert line(ax, "joint, jax").get_xdata().max() == 2.5e-3


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
