"""What figures of integrals draw is what their tables say: errors, quartiles, parts, fits, times."""

import numpy as np
import pandas as pd
import pytest
import synthetic_integrals as S
from test_figure_files import _whole

from lowvar.errors import UserError
from lowvar.studies import drawing as figures
from lowvar.studies.drawing import style


def line(ax, label):
    (found,) = [line for line in ax.lines if line.get_label() == label]
    return found


def labels(ax):
    return {line.get_label() for line in ax.lines}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def segments(ax, label):
    (found,) = [c for c in ax.collections if c.get_label() == label]
    return np.array([segment[:, 1] for segment in found.get_segments()])


def part(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table


def test_errors_are_of_the_last_task_with_intervals_and_published_numbers():
    table = S.published(S.small("errors"))
    (ax,) = figures.errors(table).axes
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_title(loc="left")) == ("log", "log", "borehole: f_H")
    rows = part(table, task="f_H", method="paper_vv")
    np.testing.assert_array_equal(line(ax, "paper_vv").get_xdata(), rows["m"])
    np.testing.assert_array_equal(line(ax, "paper_vv").get_ydata(), rows["mae"])
    np.testing.assert_allclose(segments(ax, "paper_vv: 95 %"), rows[["mae_low", "mae_high"]])
    open_ = line(ax, "paper_vv: published")
    np.testing.assert_array_equal(open_.get_ydata(), rows["published"])
    assert open_.get_markerfacecolor() == "none"
    assert np.isnan(line(ax, "vector_valued: published").get_ydata()).all()
    np.testing.assert_array_equal(
        line(figures.errors(table, task="f_L").axes[0], "paper_vv").get_ydata(), part(table, task="f_L", method="paper_vv")["mae"]
    )  # fmt: skip
    with pytest.raises(UserError, match=r"unknown task 'f_M'"):
        figures.errors(table, task="f_M")
    with pytest.raises(UserError, match="unknown axis"):
        figures.errors(table, x="n")


def test_errors_of_unlike_numbers_of_points_and_of_vague_truths():
    table = S.errors(S.unbalanced(), error=0.02)
    (ax,) = figures.errors(table).axes
    assert ax.get_xlabel() == "points of all tasks"
    assert list(line(ax, "vector_valued").get_xdata()) == [40, 60, 80]
    assert set(figures.DATA["errors"](table)["axis"]) == {"points"}
    assert line(ax, "truth").get_ydata()[0] == 0.04
    assert list(line(figures.errors(table, x="m").axes[0], "vector_valued").get_xdata()) != [40, 60, 80]
    assert "truth" not in labels(figures.errors(S.small("errors")).axes[0])


def test_errors_of_one_size_stand_side_by_side_and_failures_are_named():
    traces = S.lotka()
    lost = (traces["problem"] == "lotka_volterra_2") & (traces["method"] == "paper_vv")
    traces.loc[lost, ["value", "status"]] = [np.nan, "failed"]
    first, second, _ = figures.errors(S.errors(traces)).axes
    places = [line(second, method).get_xdata()[0] for method in S.LOTKA]
    assert len(set(places)) == len(places)
    assert "failed: paper: vv, est. B" in texts(first)
    assert "paper_vv" not in labels(first)
    table = S.errors(S.lotka(6))
    assert texts(figures.errors(table.assign(mae=np.inf)).axes[0]) == ["all methods failed"]
    assert texts(figures.errors(table.assign(mae=0.0)).axes[0]) == ["no error that is not zero"]


def test_boxes_are_quantiles_without_sign_where_methods_differ_much():
    table = S.small("boxes")
    axes = figures.boxes(table).axes
    assert [ax.get_title(loc="left") for ax in axes][1] == "borehole: f_H, m = 20"
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
    (ax,) = figures.boxes(table).axes
    error = part(table, task="f_H", method="monte_carlo")["error"]
    assert (ax.get_xscale(), ax.get_xlabel()) == ("linear", "estimate − truth")
    assert line(ax, "monte_carlo: mean").get_xdata()[0] == pytest.approx(error.mean())
    assert texts(ax) == ["2 failed"]
    with pytest.raises(UserError, match="no rows of sizes 7; there are 10"):
        figures.boxes(table, sizes="7")
    with pytest.raises(UserError, match="unknown quantity"):
        figures.boxes(table, of="bias")


def test_boxes_of_sums_over_tasks():
    table = S.estimates(S.lotka())
    axes = figures.boxes(table, of="absolute").axes
    here = part(table, problem="lotka_volterra_5", method="paper_cf")
    sums = here["error"].abs().groupby(here["repetition"]).sum()
    assert line(axes[1], "paper_cf: mean").get_xdata()[0] == pytest.approx(sums.mean())
    squares = figures.DATA["boxes"](table.assign(derived=table["task"] == "s1"), of="squared")
    here = part(table, problem="lotka_volterra_2", method="paper_cf", task="s0")
    np.testing.assert_allclose(
        part(squares, problem="lotka_volterra_2", method="paper_cf")["drawn"], here["error"] ** 2
    )
    exact = part(table, problem="lotka_volterra_2").assign(error=0.0, method="convex")
    assert "exact" in texts(figures.boxes(pd.concat([table, exact]), of="absolute").axes[0])


def test_boxes_of_derived_quantities_are_values_around_the_truth():
    table = S.estimates(S.evidence()).assign(derived=True)
    axes = figures.boxes(table).axes
    assert [ax.get_title(loc="left") for ax in axes] == ["Monte Carlo", "control functional", "paper: CF", "paper: vv, est. B"]  # fmt: skip
    value = part(table, method="paper_cf", sizes="20")["value"]
    assert line(axes[2], "paper_cf, 20: mean").get_ydata()[0] == pytest.approx(value.mean())
    assert f"{value.std():.2g}" in texts(axes[2])
    assert line(axes[2], "truth").get_ydata()[0] == 72.8786
    assert axes[0].get_ylim() == axes[3].get_ylim()
    assert set(figures.DATA["boxes"](table)["of"]) == {"value"}


def test_split_shows_the_fewest_and_the_most_points():
    table = S.small("split")
    few, many = figures.split(table).axes
    assert [ax.get_title(loc="left") for ax in (few, many)] == ["borehole: f_H, m = 10", "borehole: f_H, m = 150"]
    row = part(table, task="f_H", sizes="150", method="paper_vv").iloc[0]
    assert line(many, "paper_vv: variance").get_xdata()[0] == row["variance"]
    assert list(line(many, "paper_vv: variance, 95 %").get_xdata()) == [row["variance_low"], row["variance_high"]]
    assert [ax.get_title(loc="left") for ax in figures.split(table, sizes=("20", "50")).axes] == ["borehole: f_H, m = 20", "borehole: f_H, m = 50"]  # fmt: skip
    assert many.get_xlim() == few.get_xlim()


def test_split_says_when_a_bias_cannot_be_told_from_none():
    table = S.small("split").assign(bias2=1e-3, bias2_low=5e-4, bias2_high=2e-3)
    none = table["method"] == "vector_valued"
    table.loc[none, ["bias2", "bias2_low", "bias2_high"]] = [-1e-9, 0.0, 3e-4]
    table.loc[table["method"] == "control_functional", ["mse", "bias2", "variance"]] = [np.inf, np.nan, np.nan]
    ax = figures.split(table, sizes="50").axes[0]
    assert line(ax, "paper_vv: bias2").get_xdata()[0] == 1e-3
    assert list(line(ax, "paper_vv: bias2, 95 %").get_xdata()) == [5e-4, 2e-3]
    assert "vector_valued: bias2" not in labels(ax)
    assert line(ax, "vector_valued: bias2, at most").get_xdata()[1] == 3e-4
    base, mine = (part(table, task="f_H", sizes="50", method=m).iloc[0]["mse"] for m in ("monte_carlo", "vector_valued"))  # fmt: skip
    words = texts(ax)
    assert (words[0], words[1]) == ("", "failed")
    assert words[2] == figures.panels.times(base / mine)


@pytest.mark.parametrize("runs", [1, 4])
def test_few_repetitions_have_points_and_no_verdicts(runs):
    traces = S.balanced(("monte_carlo", "paper_vv"), runs=runs)
    ax = figures.split(S.split(traces)).axes[0]
    assert texts(ax)[-2:] == ["", ""]
    assert ("one repetition, no variance" in texts(ax)) == (runs == 1)
    ax = figures.boxes(S.estimates(traces), sizes="10").axes[0]
    assert "paper_vv: median" not in labels(ax)
    assert len(line(ax, "paper_vv").get_xdata()) == runs
    assert len(figures.errors(S.errors(traces)).axes) == 1


def test_fits_curves_and_points():
    table = S.small("fits")
    left, right = figures.fits(table).axes
    rows = part(table, task="f_H", method="vector_valued", kind="curve")
    np.testing.assert_array_equal(line(right, "vector_valued").get_ydata(), rows["fitted"])
    np.testing.assert_array_equal(line(right, "f").get_ydata(), rows["f"])
    points = part(table, task="f_L", method="vector_valued", kind="point")
    np.testing.assert_array_equal(line(left, "sample").get_xdata(), points["x"])
    wild = table.assign(fitted=table["fitted"] * np.where(table["method"] == "paper_vv", 1e4, 1))
    assert figures.fits(wild, task="f_H").axes[0].get_ylim()[1] < 2  # a wild fit does not flatten the others
    assert len(figures.fits(table.drop(columns="density"), task="f_L").axes) == 1


def test_stein_kernels_are_paths_on_symmetric_scales(tmp_path):
    table = S.small("stein_kernels")
    fig = figures.stein_kernels(table)
    maps, bars = fig.axes[:3], fig.axes[3:]
    assert [ax.get_title(loc="left") for ax in maps] == ["squared exponential", "polynomial\ndegree 1", "polynomial\ndegree 2"]  # fmt: skip
    for bar in bars:
        low, middle, high = bar.get_xticks()
        assert (low, middle) == (-high, 0)
    svg = figures.picture("stein_kernels", table, tmp_path / "k")[0].read_text()
    assert "<image" not in svg
    zero = figures.stein_kernels(table.assign(value=0.0)).axes[0]
    assert texts(zero) == ["zero everywhere"]


def test_power_scores_follow_the_ladder():
    table = S.small("power_scores")
    ax, bar = figures.power_scores(table).axes
    drawn = [ln for ln in ax.lines if ln.get_label().isdigit()]
    np.testing.assert_array_equal(drawn[3].get_ydata(), part(table, target=3)["score"])
    assert len({ln.get_color() if isinstance(ln.get_color(), str) else tuple(ln.get_color()) for ln in drawn}) == 7
    names = [t.get_text() for t in bar.get_yticklabels()]
    assert (names[0], names[-1]) == ("0 (prior)", "1 (posterior)")


def test_predictive_means_bands_observations_and_tasks():
    table = S.small("predictive")
    hare, lynx = figures.predictive(table).axes
    rows = part(table, series="hare").sort_values("time")
    np.testing.assert_array_equal(line(hare, "mean").get_ydata(), rows["mean"])
    assert len(line(hare, "observed").get_xdata()) == 21
    np.testing.assert_allclose(line(hare, "tasks").get_xdata(), 1912 + 0.2 * np.arange(10))
    assert "tasks" not in labels(lynx)
    plain = figures.predictive(table.drop(columns="task"))
    assert "times of the integrals" not in [t.get_text() for t in plain.legends[0].get_texts()]


def test_epochs_and_methods_without_them():
    table = S.small("epochs")
    left, _ = figures.epochs(table).axes
    rows = part(table, problem="step, squared exponential", method="paper_vv")
    np.testing.assert_array_equal(line(left, "paper_vv").get_ydata(), rows["mae"])
    level = line(left, "vector_valued")
    assert list(level.get_ydata()) == [0.0211, 0.0211]
    assert level.get_xdata()[-1] == 400
    parts = table.assign(part=table["epoch"] / 400).drop(columns="epoch")
    ax = figures.epochs(parts).axes[0]
    assert (ax.get_xlabel(), line(ax, "paper_vv").get_xdata()[-1]) == ("part of all epochs (%)", 100)


def test_seconds_by_points_and_what_they_buy():
    table = S.small("integral_seconds")
    left, right = figures.integral_seconds(table).axes
    rows = part(table, method="control_functional")
    np.testing.assert_array_equal(line(left, "control_functional").get_xdata(), rows["points"])
    np.testing.assert_array_equal(line(left, "control_functional").get_ydata(), rows["seconds_per_repetition"])
    np.testing.assert_array_equal(line(right, "control_functional").get_xdata(), rows["seconds_per_repetition"])
    np.testing.assert_array_equal(line(right, "control_functional").get_ydata(), rows["mae"])
    np.testing.assert_allclose(segments(right, "control_functional: 95 %"), rows[["mae_low", "mae_high"]])


def test_a_method_on_two_backends_is_drawn_on_its_first():
    table = S.small("errors")
    both = pd.concat([table, table.assign(backend="jax", mae=9.0)])
    assert set(figures.DATA["errors"](both)["backend"]) == {"torch"}


def test_integrators_look_different():
    names = [*style.INTEGRATORS, *(f"paper_vv_{k}" for k in range(4)), "control_functional_polynomial", "mine", "hers"]
    looks = style.integrators(names)
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(names)
    assert looks["paper_vv_fixed"].label == "paper: vv, fixed B"  # a method of its own, not a variant of paper_vv
    assert looks["control_functional_polynomial"].label == "control functional polynomial"
    assert all(look.dash != "-" for name, look in looks.items() if name.startswith("paper"))


@pytest.mark.parametrize("name", ["boxes", "stein_kernels"])
def test_same_input_gives_the_same_bytes_and_the_csv_is_what_was_drawn(name, tmp_path):
    table = S.small(name)
    table = part(table, sizes="10") if "sizes" in table else table
    first = figures.picture(name, table, tmp_path / "a")
    second = figures.picture(name, table.copy(), tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    pd.testing.assert_frame_equal(pd.read_csv(first[2], dtype={"sizes": str}), figures.DATA[name](table), check_dtype=False)  # fmt: skip


def test_figures_are_whole_with_all_methods():
    traces = pd.concat([S.balanced(runs=6), S.unbalanced()])
    table = S.errors(traces)
    _whole(figures.errors(S.published(table)), 0.25)
    _whole(figures.integral_seconds(S.seconds(table)), 0.25)
    _whole(figures.boxes(S.estimates(traces), sizes=("10", "40/20")), 0.2)
    evidence = S.evidence(8)
    _whole(figures.split(S.split(evidence)), 0.2)
    _whole(figures.boxes(S.estimates(evidence), of="value"), 0.15)
    _whole(figures.fits(S.fits(("step", "south"))), 0.25)
    _whole(figures.epochs(S.epochs()), 0.25)
    _whole(figures.predictive(S.predictive()), 0.5)
