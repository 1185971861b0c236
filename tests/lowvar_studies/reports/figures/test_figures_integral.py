"""What figures of integrals draw is what their tables say: errors, quartiles, parts, fits, times."""

import numpy as np
import pandas as pd
import pytest
import synthetic_integrals as S
from drawn import bands, labels, line, of, segments, texts, titles

from lowvar.core import drawing
from lowvar.errors import UserError
from lowvar_studies.reports.drawing.rows import part

draw, shown = of("integral")


def test_errors_are_of_the_last_task_with_intervals_and_published_numbers():
    table = S.published(S.small("errors"))
    (ax,) = draw("errors", table).axes
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_title(loc="left")) == ("log", "log", "borehole: f_H")
    rows = part(table, task="f_H", method="paper_vv")
    np.testing.assert_array_equal(line(ax, "paper_vv").get_xdata(), rows["m"])
    np.testing.assert_array_equal(line(ax, "paper_vv").get_ydata(), rows["mae"])
    np.testing.assert_allclose(segments(ax, "paper_vv: 95 %"), rows[["mae_low", "mae_high"]])
    open_ = line(ax, "paper_vv: published")
    np.testing.assert_array_equal(open_.get_ydata(), rows["published"])
    assert open_.get_markerfacecolor() == "none"
    assert np.isnan(line(ax, "vector_valued: published").get_ydata()).all()


def test_errors_of_unlike_numbers_of_points_and_of_vague_truths():
    table = S.errors(S.unbalanced(), error=0.02)
    (ax,) = draw("errors", table).axes
    assert ax.get_xlabel() == "points of all tasks"
    assert list(line(ax, "vector_valued").get_xdata()) == [40, 60, 80]
    assert set(shown("errors", table)["axis"]) == {"points"}
    assert line(ax, "truth").get_ydata()[0] == 0.04
    assert "truth" not in labels(draw("errors", S.small("errors")).axes[0])


def test_errors_of_one_size_stand_side_by_side_and_failures_are_named():
    traces = S.lotka()
    lost = (traces["problem"] == "lotka_volterra_2") & (traces["method"] == "paper_vv")
    traces.loc[lost, ["value", "status"]] = [np.nan, "failed"]
    first, second, _ = draw("errors", S.errors(traces)).axes
    places = [line(second, method).get_xdata()[0] for method in S.LOTKA]
    assert len(set(places)) == len(places)
    assert "failed: paper: vv, est. B" in texts(first)
    assert "paper_vv" not in labels(first)
    table = S.errors(S.lotka(6))
    assert texts(draw("errors", table.assign(mae=np.inf)).axes[0]) == ["all methods failed"]
    assert texts(draw("errors", table.assign(mae=0.0)).axes[0]) == ["all errors are zero"]


def test_boxes_are_quantiles_without_sign_where_methods_differ_much():
    table = S.small("boxes")
    axes = draw("boxes", table).axes
    assert titles(axes)[1] == "borehole: f_H, m = 20"
    ax = axes[1]
    assert (ax.get_xscale(), axes[3].get_xlabel()) == ("log", "|estimate − truth|")
    error = part(table, task="f_H", sizes="20", method="vector_valued")["error"].to_numpy()
    low, first, middle, third, high = np.quantile(np.abs(error), [0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(line(ax, "vector_valued: 5 % to 95 %").get_xdata(), [low, high])
    np.testing.assert_allclose(line(ax, "vector_valued: median").get_xdata(), middle)
    corners = next(p for p in ax.patches if p.get_label() == "vector_valued: quartiles").get_xy()[:, 0]
    np.testing.assert_allclose([corners.min(), corners.max()], [first, third])
    np.testing.assert_allclose(line(ax, "vector_valued: mean").get_xdata(), abs(error.mean()))  # not the mean size
    assert len(line(ax, "vector_valued").get_xdata()) == 12  # every one, as they are few
    assert [t.get_text() for t in ax.get_yticklabels()] == [""] * 4
    assert [t.get_text() for t in axes[0].get_yticklabels()][2] == "vector-valued"


def test_boxes_of_like_methods_have_a_sign():
    table = part(S.small("boxes"), sizes="10")
    table = table[table["method"].isin(["monte_carlo", "paper_vv"])].copy()
    lost = table[(table["method"] == "paper_vv") & (table["task"] == "f_H")].index[:2]
    table.loc[lost, ["error", "status"]] = [np.nan, "failed"]
    (ax,) = draw("boxes", table).axes
    error = part(table, task="f_H", method="monte_carlo")["error"]
    assert (ax.get_xscale(), ax.get_xlabel()) == ("linear", "estimate − truth")
    assert line(ax, "monte_carlo: mean").get_xdata()[0] == pytest.approx(error.mean())
    assert texts(ax) == ["2 failed"]
    with pytest.raises(UserError, match="unknown quantity"):
        draw("boxes", table, of="bias")


def test_boxes_of_sums_over_tasks():
    table = S.estimates(S.lotka())
    axes = draw("boxes", table, of="absolute").axes
    here = part(table, problem="lotka_volterra_5", method="paper_cf")
    sums = here["error"].abs().groupby(here["repetition"]).sum()
    assert line(axes[1], "paper_cf: mean").get_xdata()[0] == pytest.approx(sums.mean())
    squares = shown("boxes", table.assign(derived=table["task"] == "s1"), of="squared")
    here = part(table, problem="lotka_volterra_2", method="paper_cf", task="s0")
    np.testing.assert_allclose(
        part(squares, problem="lotka_volterra_2", method="paper_cf")["drawn"], here["error"] ** 2
    )
    exact = part(table, problem="lotka_volterra_2").assign(error=0.0, method="convex")
    assert "exact" in texts(draw("boxes", pd.concat([table, exact]), of="absolute").axes[0])


def test_boxes_of_derived_quantities_are_values_around_the_truth():
    table = S.estimates(S.evidence()).assign(derived=True)
    axes = draw("boxes", table).axes
    assert titles(axes) == ["Monte Carlo", "control functional", "paper: CF", "paper: vv, est. B"]  # fmt: skip
    value = part(table, method="paper_cf", sizes="20")["value"]
    assert line(axes[2], "paper_cf, 20: mean").get_ydata()[0] == pytest.approx(value.mean())
    assert f"{value.std():.2g}" in texts(axes[2])
    assert line(axes[2], "truth").get_ydata()[0] == 72.8786
    assert axes[0].get_ylim() == axes[3].get_ylim()
    assert set(shown("boxes", table)["of"]) == {"value"}


def test_split_shows_the_fewest_and_the_most_points():
    table = S.small("split")
    few, many = draw("split", table).axes
    assert titles((few, many)) == ["borehole: f_H, m = 10", "borehole: f_H, m = 150"]
    row = part(table, task="f_H", sizes="150", method="paper_vv").iloc[0]
    assert line(many, "paper_vv: variance").get_xdata()[0] == row["variance"]
    assert list(line(many, "paper_vv: variance, 95 %").get_xdata()) == [row["variance_low"], row["variance_high"]]
    assert many.get_xlim() == few.get_xlim()


def test_split_says_when_a_bias_cannot_be_told_from_none():
    table = S.small("split").assign(bias2=1e-3, bias2_low=5e-4, bias2_high=2e-3)
    none = table["method"] == "vector_valued"
    table.loc[none, ["bias2", "bias2_low", "bias2_high"]] = [-1e-9, 0.0, 3e-4]
    table.loc[table["method"] == "control_functional", ["mse", "bias2", "variance"]] = [np.inf, np.nan, np.nan]
    table = table[table["sizes"] == "50"]
    ax = draw("split", table).axes[0]
    assert line(ax, "paper_vv: bias2").get_xdata()[0] == 1e-3
    assert list(line(ax, "paper_vv: bias2, 95 %").get_xdata()) == [5e-4, 2e-3]
    assert "vector_valued: bias2" not in labels(ax)
    assert line(ax, "vector_valued: bias2, at most").get_xdata()[1] == 3e-4
    base, mine = (part(table, task="f_H", sizes="50", method=m).iloc[0]["mse"] for m in ("monte_carlo", "vector_valued"))  # fmt: skip
    words = texts(ax)
    assert (words[0], words[1]) == ("", "failed")
    assert words[2] == drawing.times(base / mine)


@pytest.mark.parametrize("runs", [1, 4])
def test_few_repetitions_have_points_and_no_verdicts(runs):
    traces = S.balanced(("monte_carlo", "paper_vv"), runs=runs)
    ax = draw("split", S.split(traces)).axes[0]
    assert texts(ax)[-2:] == ["", ""]
    assert ("one repetition, no variance" in texts(ax)) == (runs == 1)
    ax = draw("boxes", S.estimates(traces[traces["sizes"] == "10"])).axes[0]
    assert "paper_vv: median" not in labels(ax)
    assert len(line(ax, "paper_vv").get_xdata()) == runs
    assert len(draw("errors", S.errors(traces)).axes) == 1


def test_fits_curves_and_points():
    table = S.small("fits")
    left, right = draw("fits", table).axes
    rows = part(table, task="f_H", method="vector_valued", kind="curve")
    np.testing.assert_array_equal(line(right, "vector_valued").get_ydata(), rows["fitted"])
    np.testing.assert_array_equal(line(right, "f").get_ydata(), rows["f"])
    points = part(table, task="f_L", method="vector_valued", kind="point")
    np.testing.assert_array_equal(line(left, "sample").get_xdata(), points["x"])
    wild = table.assign(fitted=table["fitted"] * np.where(table["method"] == "paper_vv", 1e4, 1))
    assert draw("fits", wild).axes[1].get_ylim()[1] < 2  # a wild fit does not flatten the others
    assert "density" in bands(left)
    assert "density" not in bands(draw("fits", table.drop(columns="density")).axes[0])


def test_stein_kernels_have_symmetric_scales():
    table = S.small("stein_kernels")
    fig = draw("stein_kernels", table)
    maps, bars = fig.axes[:3], fig.axes[3:]
    assert titles(maps) == ["squared exponential", "polynomial\ndegree 1", "polynomial\ndegree 2"]  # fmt: skip
    for bar in bars:
        low, middle, high = bar.get_xticks()
        assert (low, middle) == (-high, 0)
    zero = draw("stein_kernels", table.assign(value=0.0)).axes[0]
    assert texts(zero) == ["zero everywhere"]


def test_power_scores_follow_the_ladder():
    table = S.small("power_scores")
    ax, bar = draw("power_scores", table).axes
    drawn = [ln for ln in ax.lines if ln.get_label().isdigit()]
    np.testing.assert_array_equal(drawn[3].get_ydata(), part(table, target=3)["score"])
    assert len({ln.get_color() if isinstance(ln.get_color(), str) else tuple(ln.get_color()) for ln in drawn}) == 7
    names = [t.get_text() for t in bar.get_yticklabels()]
    assert (names[0], names[-1]) == ("0 (prior)", "1 (posterior)")


def test_predictive_means_bands_observations_and_tasks():
    table = S.small("predictive")
    hare, lynx = draw("predictive", table).axes
    rows = part(table, series="hare").sort_values("time")
    np.testing.assert_array_equal(line(hare, "mean").get_ydata(), rows["mean"])
    assert len(line(hare, "observed").get_xdata()) == 21
    np.testing.assert_allclose(line(hare, "tasks").get_xdata(), 1912 + 0.2 * np.arange(10))
    assert "tasks" not in labels(lynx)
    plain = draw("predictive", table.drop(columns="task"))
    assert "times of the integrals" not in [t.get_text() for t in plain.legends[0].get_texts()]


def test_epochs_and_methods_without_them():
    table = S.small("epochs")
    left, _ = draw("epochs", table).axes
    rows = part(table, problem="step, squared exponential", method="paper_vv")
    np.testing.assert_array_equal(line(left, "paper_vv").get_ydata(), rows["mae"])
    level = line(left, "vector_valued")
    assert list(level.get_ydata()) == [0.0211, 0.0211]
    assert level.get_xdata()[-1] == 400
    parts = table.assign(part=table["epoch"] / 400).drop(columns="epoch")
    ax = draw("epochs", parts).axes[0]
    assert (ax.get_xlabel(), line(ax, "paper_vv").get_xdata()[-1]) == ("share of all epochs (%)", 100)


def test_seconds_by_points_and_what_they_buy():
    table = S.small("seconds")
    left, right = draw("seconds", table).axes
    rows = part(table, method="control_functional")
    np.testing.assert_array_equal(line(left, "control_functional").get_xdata(), rows["points"])
    np.testing.assert_array_equal(line(left, "control_functional").get_ydata(), rows["seconds_per_repetition"])
    np.testing.assert_array_equal(line(right, "control_functional").get_xdata(), rows["seconds_per_repetition"])
    np.testing.assert_array_equal(line(right, "control_functional").get_ydata(), rows["mae"])
    np.testing.assert_allclose(segments(right, "control_functional: 95 %"), rows[["mae_low", "mae_high"]])
