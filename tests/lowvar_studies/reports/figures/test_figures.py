"""What figures draw is what their tables say: lines, bars, intervals, and the notes on methods that are not drawn."""

import dataclasses
import functools
import itertools
import re

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import FIGURES, draw, labels, line, segments, texts, titles
from matplotlib.text import Text

from lowvar.core import drawing
from lowvar.errors import UserError
from lowvar_studies.reports.drawing import charts, style
from lowvar_studies.reports.drawing.rows import part

AUSTRALIAN = {"problem": "australian", "method": "cv"}
LINES = [  # family, figure, panel, label of the line, its rows, their columns along and up, those of its interval
    ("variational", "along", 2, "joint", {"problem": "australian", "block": "all", "method": "joint", "source": "total"},
     "iteration", "variance", ("low", "high")),
    ("variational", "along", 0, "subsampling", {"problem": "sonar", "block": "all", "method": "naive", "source": "subsampling"},
     "iteration", "variance", None),
    ("variational", "split_along", 1, "naive, interaction", {"problem": "australian", "method": "naive", "source": "interaction"},
     "iteration", "variance", None),
    *(("variational", name, 1, "cv, jax", AUSTRALIAN, along, "gap_mean", ("gap_low", "gap_high"))
      for name, along in (("convergence", "passes"), ("iterations", "iteration"), ("seconds", "seconds"))),
    *(("variational", "variance", 1, f"mlmc, {quantity}", {"problem": "blr", "method": "mlmc", "quantity": quantity},
       "iteration", "mean", None) for quantity in ("squared_error", "variance")),
    ("variational", "snr", 0, "mc, snr_true", {"problem": "hlr", "method": "mc", "quantity": "snr_true"}, "iteration", "mean", None),
    ("variational", "particles", 1, "mlmc", {"problem": "blr", "method": "mlmc"}, "iteration", "mean", None),
    ("variational", "test", 1, "rqmc", {"problem": "blr", "method": "rqmc", "best": True}, "iteration", "mean", None),
    ("variational", "sizes", 0, "rqmc", {"method": "rqmc"}, "100 fraction", "mean", ("low", "high")),
    ("search", "curves", 1, "pycma", {"problem": "rastrigin10", "method": "pycma"}, "evaluations", "f_median", None),
    ("search", "seconds", 0, "pycma", {"problem": "ellipsoid", "method": "pycma"}, "seconds", None, None),
    ("search", "profiles", 0, "fast_ingo", {"problem": "all", "method": "fast_ingo"}, None, "100 share", None),
    ("search", "gradients", 0, "rqmc, mu", {"problem": "ellipsoid", "sigma": 0.1, "scheme": "rqmc", "block": "mu", "source": "total"},
     None, "to_iid", None),
    ("integral", "errors", 0, "paper_vv", {"method": "paper_vv"}, "m", "mae", ("mae_low", "mae_high")),
    ("integral", "coverage", 0, "control_functional", {"method": "control_functional"}, None, "coverage",
     ("coverage_low", "coverage_high")),
    ("integral", "fits", 1, "vector_valued", {"task": "f_H", "method": "vector_valued", "kind": "curve"}, "x", "fitted", None),
    ("integral", "fits", 0, "sample", {"task": "f_L", "method": "vector_valued", "kind": "point"}, "x", None, None),
    ("integral", "power_scores", 0, "3", {"target": 3}, None, "score", None),
    ("integral", "predictive", 0, "mean", {"series": "hare"}, "time", "mean", None),
    ("integral", "epochs", 1, "paper_vv", {"problem": "step, squared exponential", "method": "paper_vv"}, "100 part", "mae", None),
    ("integral", "seconds", 0, "control_functional", {"method": "control_functional"}, "points", "seconds_per_repetition", None),
    ("integral", "seconds", 1, "control_functional", {"method": "control_functional"}, "seconds_per_repetition", "mae",
     ("mae_low", "mae_high")),
]  # fmt: skip


@functools.cache
def small(family, name):
    """A figure of its small table."""
    return draw(family, name, synthetic.TABLES[family, name]())


def column(rows, name):
    """``100 share`` is the column in percent."""
    factor, _, name = name.rpartition(" ")
    return float(factor or 1) * rows[name].to_numpy(float)


@pytest.mark.parametrize(
    ("family", "name", "panel", "label", "where", "along", "up", "ends"), LINES, ids=lambda value: str(value)[:20]
)
def test_a_line_is_what_its_rows_say(family, name, panel, label, where, along, up, ends):
    axes, rows = small(family, name)
    rows, drawn = part(rows, **where), line(axes[panel], label)
    assert len(rows) > 1
    for values, wanted in ((drawn.get_xdata(), along), (drawn.get_ydata(), up)):
        if wanted is not None:
            np.testing.assert_allclose(values, column(rows, wanted), rtol=1e-12)
    if ends is not None:
        np.testing.assert_allclose(segments(axes[panel], f"{label}: 95 %"), rows[list(ends)], rtol=1e-12)


# variational ------------------------------------------------------------------------------------------------------


def test_shares_bars_are_the_shares_and_points_are_the_variances():
    axes, data = small("variational", "shares")
    assert set(data["end"]) == {True}
    assert set(data["block"]) == {"all"}
    for name, (left, right) in zip(("sonar", "australian"), np.reshape(axes, (2, 2)), strict=True):
        assert left.get_title(loc="left") == f"{name}, batches of 5"
        assert [t.get_text() for t in left.get_yticklabels()][3:] == ["joint (SAGA)", "joint (SVRG)"]
        widths = np.array([bar.get_width() for bar in left.patches]).reshape(5, 3)
        points = [one for one in right.lines if one.get_marker() in ("o", "D", "<")]
        assert len(points) == 5 * 4
        for row, method in enumerate(synthetic.METHODS):
            rows = part(data, problem=name, method=method).set_index("source")
            shares = rows.loc[list(synthetic.SOURCES), "share"].clip(lower=0)
            np.testing.assert_allclose(widths[row], 100 * shares / shares.sum())
            assert [one for one in points if one.get_marker() == "D"][row].get_xdata()[0] == rows.loc[
                "total", "variance"
            ]
    assert {"24× less", "≈ naive", "4.1e4"} <= set(texts(axes[1]))


def test_several_ways_of_drawing_noise_do_not_mix():
    one = synthetic.decomposition(epochs=(0, 64))
    both = pd.concat([one, one.assign(noise="rqmc", particles=8, variance=1.0)])
    for name in ("shares", "along", "split_along"):
        rows = FIGURES["variational", name].rows
        pd.testing.assert_frame_equal(rows(both), rows(one))


def test_schemes_draws_ratios_with_intervals():
    table = synthetic.schemes()
    axes, rows = draw("variational", "schemes", table)
    assert titles(axes) == [f"{name}, {count} particles" for name in ("sonar", "australian") for count in (8, 64)]
    for ax, count in zip(axes[:2], (8, 64), strict=True):
        (row,) = part(rows, problem="sonar", particles=count, noise="rqmc", method="joint").itertuples()
        assert line(ax, "joint: rqmc").get_xdata()[0] == row.to_iid
        assert list(line(ax, "joint: rqmc, 95 %").get_xdata()) == [row.to_iid_low, row.to_iid_high]
    with pytest.raises(UserError, match="only iid noise"):
        draw("variational", "schemes", table[table["noise"] == "iid"])


def test_step_sizes_at_which_runs_diverged_are_crosses_and_rings_in_a_strip():
    table = synthetic.convergence(("sonar",)).copy()
    some = (table["diverged"] > 0) & (table["diverged"] < table["repetitions"])
    table.loc[some, ["gap_mean", "elbo_mean"]] = [np.inf, -np.inf]
    (ax,), _ = draw("variational", "steps", table)
    last = table[(table["epoch"] == 128) & (table["gap_mean"] > 0) & np.isfinite(table["gap_mean"])]
    for method in synthetic.METHODS:
        rows = part(last, method=method).sort_values("step_size")
        np.testing.assert_array_equal(line(ax, f"{method}, jax").get_xdata(), rows["step_size"])
        np.testing.assert_array_equal(line(ax, f"{method}, jax").get_ydata(), rows["gap_mean"])
    for label, marker, places in (
        ("naive: all diverged", "x", [2.5e-3, 5e-3, 7.5e-3]),
        ("joint: some diverged", "o", [5e-3, 7.5e-3]),
    ):
        marks = line(ax, label)
        assert (marks.get_marker(), list(marks.get_xdata())) == (marker, places)
        assert 0.7 < marks.get_ydata()[0] < 1  # in the strip at the top, in parts of the panel
    assert not len(line(ax, "joint: all diverged").get_xdata())
    heights = ax.transAxes.inverted().transform(ax.transData.transform([(1e-3, at) for at in ax.get_yticks()]))[:, 1]
    words = [label.get_text() for label in ax.get_yticklabels()]
    assert words[-1] == "diverged"
    assert "diverged" not in words[:-1]
    assert max(heights[:-1]) < min(
        ax.get_ylim()[1], line(ax, "joint_svrg: some diverged").get_ydata()[0]
    )  # no number in it
    assert ax.transAxes.inverted().transform(ax.transData.transform((1e-3, last["gap_high"].max())))[1] < 0.83


def test_intervals_that_leave_the_panel_of_step_sizes_end_in_arrows_below_the_strip():
    table = synthetic.without_optimum(problems=("mine",)).copy()
    wide = (table["method"] == "cv") & (table["step_size"] == 1e-4)
    table.loc[wide, ["elbo_low", "elbo_high"]] = [-1e12, 1e12]
    (ax,), _ = draw("variational", "steps", table)
    (bar,) = [one for one in segments(ax, "cv, jax: 95 %") if one[1] - one[0] == np.ptp(segments(ax, "cv, jax: 95 %"))]
    low, high = ax.transAxes.inverted().transform(ax.transData.transform([(1e-4, end) for end in bar]))[:, 1]
    up, down = line(ax, "cv: beyond, high"), line(ax, "cv: beyond, low")
    assert (up.get_marker(), down.get_marker()) == (r"$\uparrow$", r"$\downarrow$")
    assert 1e-4 in up.get_xdata()
    assert 1e-4 in down.get_xdata()
    assert low == pytest.approx(0, abs=1e-6)
    assert high - 0.05 < up.get_ydata()[0] < high < line(ax, "naive: all diverged").get_ydata()[0]
    assert "interval beyond the panel" in [text.get_text() for text in legend([ax])[0]]


def test_a_panel_of_one_step_size_is_left_out_where_others_have_several():
    table = synthetic.convergence()
    one = (table["problem"] == "sonar") | (table["step_size"] == table["step_size"].max())
    assert titles(draw("variational", "steps", table[one])[0]) == ["sonar"]
    alone = table["step_size"] == table["step_size"].min()
    assert titles(draw("variational", "steps", table[alone])[0]) == ["sonar", "australian"]


def test_convergence_shows_the_elbo_where_no_optimum_is_known():
    """Equal distances to the best are equally long whatever they are above it, and the start is off the panel."""
    table = synthetic.without_optimum(problems=("mine",), optimum=-2e4)
    table.loc[table["epoch"] == 0, "elbo_mean"] = -1e102
    (ax,), rows = draw("variational", "convergence", synthetic.with_envelope(table))
    assert "(1000 nats)" in ax.get_ylabel()
    assert re.search("log.* distance to the best", ax.get_ylabel())  # such a scale is not to be guessed
    low, high = ax.get_ylim()
    top = table["elbo_mean"].max()
    assert -1e9 < low < top < high < top + 100
    for method in synthetic.METHODS:
        np.testing.assert_array_equal(line(ax, f"{method}, jax").get_ydata(), part(rows, method=method)["elbo_mean"])
    said = [float(text.get_text()) for text in ax.get_yticklabels()]
    np.testing.assert_allclose(1000 * np.array(said), ax.get_yticks())
    heights = ax.transAxes.inverted().transform(ax.transData.transform([(0, tick) for tick in ax.get_yticks()]))[:, 1]
    assert len(said) >= 3
    assert np.abs(np.diff(heights)).min() > 0.1


def test_diverged_methods_are_drawn_as_far_as_they_went_and_named():
    table = synthetic.convergence(("sonar",)).copy()
    late = (table["epoch"] > 0) & table["method"].isin(["naive", "cv"])
    table.loc[late, ["gap_mean", "elbo_mean"]] = np.nan
    table.loc[late, "diverged"] = 10
    assert "diverged: naive, cv" in texts(draw("variational", "convergence", synthetic.with_envelope(table))[0][0])
    table = synthetic.diagnostics().copy()
    table.loc[
        (table["problem"] == "hlr") & (table["method"] == "mlmc") & (table["epoch"] > 64), ["mean", "diverged"]
    ] = [np.nan, 4]
    for name in ("variance", "particles", "test"):
        axes, _ = draw("variational", name, table)
        assert ["diverged: MLMC" in "\n".join(texts(ax)).splitlines() for ax in axes] == [True, False]
    assert line(axes[0], "mlmc").get_xdata()[-1] == 64


def test_the_first_recorded_time_is_left_out_unless_fewer_than_two_would_stay():
    table = synthetic.convergence(name="seconds")
    for name in ("seconds", "cost"):
        for epochs, left in ((None, {0, *(2**k for k in range(1, 8))}), ((0, 1, 2), {0, 1, 2})):
            _, rows = draw("variational", name, table if epochs is None else table[table["epoch"].isin(epochs)])
            assert set(rows["epoch"]) == left
            assert set(rows["seconds"]) <= set(table["seconds"])  # no time changes
    with pytest.raises(UserError, match="no times"):
        draw("variational", "cost", table.assign(seconds=np.nan))


def test_the_true_error_is_solid_and_the_conditional_variance_is_not():
    axes, _ = small("variational", "variance")
    true, conditional = line(axes[0], "mlmc, squared_error"), line(axes[0], "mlmc, variance")
    assert (axes[0].get_yscale(), true.get_linestyle()) == ("log", "-")
    assert conditional.get_linestyle() != "-"
    assert true.get_color() == conditional.get_color() == style.ESTIMATORS["mlmc"].colour
    with pytest.raises(UserError, match="squared_error and variance were not measured"):
        draw("variational", "variance", part(synthetic.diagnostics(), quantity="particles"))


def test_intervals_of_the_true_error_are_those_of_its_logarithm():
    """A t-interval that reaches 0 would hide all other lines on a logarithmic axis."""
    table = synthetic.diagnostics(methods=("mc", "rqmc", "mlmc", "storm")).copy()
    wide = (table["quantity"] == "squared_error") & (table["method"] == "mlmc")
    table.loc[wide, "low"], table.loc[wide, "high"] = 1e-3 * table["mean"], 2.2 * table["mean"]
    axes, rows = draw("variational", "variance", table)
    own = part(rows, problem="hlr", method="mlmc", quantity="squared_error")
    bars = segments(axes[0], "mlmc, squared_error: 95 %")
    np.testing.assert_allclose(bars, np.outer(own["mean"], np.exp([-1.2, 1.2])))
    conditional = part(rows, problem="hlr", method="mlmc", quantity="variance")
    assert set(segments(axes[0], "mlmc, variance: 95 %")[:, 0]) <= set(conditional["low"])
    keys = {text.get_text(): key for text, key in zip(*legend(axes), strict=True)}
    colours = {style.ESTIMATORS[name].colour for name in ("mc", "rqmc", "mlmc", "storm")}
    assert not {keys["true squared error"].get_color(), keys["conditional variance"].get_color()} & colours


def legend(axes):
    """The texts and the handles of the legend of a figure."""
    return axes[0].figure.legends[0].get_texts(), axes[0].figure.legends[0].legend_handles


def test_labels_in_notes_are_whole_and_cannot_be_mistaken():
    ax = charts.grid(2)[1][0]
    looks = style.searchers([f"reinforce_gd_raw_{name}" for name in ("1e_2", "1e_4", "bounded_1e_6")] + ["ingo"])
    charts.notes(ax, {"diverged": charts.labels(looks, looks), "below": []})
    (text,) = texts(ax)
    assert " ".join(text.split()) == "diverged: INGO; REINFORCE GD, raw values 1e-2, 1e-4, bounded 1e-6"
    assert max(map(len, text.splitlines())) <= 38
    both = style.searchers(["es", "es_1", "es_2"])
    assert charts.labels(both, both) == ["ES", "ES 1", "ES 2"]
    assert charts.labels(both, ["es_1", "es_2"]) == ["ES 1, 2"]


def test_sensitivity_maps_the_distance_to_the_best():
    table = synthetic.sensitivity()
    axes, _ = draw("variational", "sensitivity", table)
    panels = [ax for ax in axes if "β" in ax.get_title(loc="left")]
    assert titles(panels[:2]) == ["hlr: β = 0.1", "β = 0.4"]
    assert titles(ax for ax in panels[:4] if "0" in texts(ax)) == ["β = 0.7"]
    assert len([one for one in panels[3].lines if one.get_label() == "diverged"]) == 5
    assert all(float(text or 0) < 99.5 for ax in panels[:4] for text in texts(ax))  # no room: the colour says it
    both = pd.concat([table.assign(estimator="mlmc"), table.assign(estimator="naive")], ignore_index=True)
    axes, _ = draw("variational", "sensitivity", both)
    first = [" ".join(text.split()) for text in titles(axes) if text.endswith("β = 0.1") and "," in text]
    assert first == [f"{name}, {one}: β = 0.1" for name in ("hlr", "blr") for one in ("mlmc", "naive")]
    named = both.assign(method=np.where(both["estimator"] == "naive", "mc_", "mlmc_") + both["r"].astype(str))
    axes, _ = draw("variational", "sensitivity", named)
    assert {"hlr, mc: β = 0.1", "hlr, mlmc: β = 0.1"} <= {" ".join(text.split()) for text in titles(axes)}
    wide = draw("variational", "sensitivity", part(table, problem="hlr", beta=0.4))[0][0]
    assert max(float(text) for text in texts(wide)) > 100


# search -----------------------------------------------------------------------------------------------------------


def test_curves_end_as_their_runs_did():
    (left, right), _ = small("search", "curves")
    assert line(right, "pycma: end").get_markerfacecolor() == "none"  # the budget was spent
    assert line(left, "fast_ingo: end").get_markerfacecolor() != "none"  # all had met the target
    assert line(left, "reinforce_gd: end").get_marker() == "x"
    assert "diverged: REINFORCE GD" in texts(left)
    assert "target" in labels(left)
    assert "target" not in labels(right)  # far above it
    assert 2e-11 <= line(left, "fast_ingo").get_ydata().min() <= 1e-10  # what lies lower is not drawn lower


def test_curves_of_policies_are_returns_and_of_discrete_problems_reach_zero():
    axes, rows = draw("search", "curves", synthetic.returns())
    np.testing.assert_array_equal(
        line(axes[0], "es").get_ydata(), -part(rows, problem="swimmer", method="es")["f_median"]
    )
    assert axes[0].get_yscale() == "linear"
    assert "return" in axes[0].get_ylabel()
    ax = draw("search", "curves", synthetic.discrete())[0][0]
    lowest = line(ax, "pymoo_ga").get_ydata().min()
    assert dict(zip(ax.get_yticks(), [t.get_text() for t in ax.get_yticklabels()], strict=True))[lowest] == "0"


def test_curves_of_discrete_searches_are_of_modes_and_of_a_genetic_algorithms_best_point():
    label = draw("search", "curves", synthetic.discrete())[0][0].get_ylabel()
    assert "mode or best point" in label
    assert "mean" not in label
    assert "f(mean)" in small("search", "curves")[0][0].get_ylabel()


def test_effort_marks_what_was_not_met_at_its_budget():
    table = synthetic.targets()
    (left, right), rows = draw("search", "effort", table)
    row = part(rows, problem="ellipsoid", method="fast_ingo").iloc[0]
    assert line(left, "fast_ingo").get_xdata()[0] == row["evaluations_median"]
    assert list(line(left, "fast_ingo: 95 %").get_xdata()) == [row["evaluations_low"], row["evaluations_high"]]
    assert line(right, "fast_ingo: not within").get_xdata()[0] == 1.4e6
    assert texts(left) == ["6/6", "0/6", "0/6", "6/6"]
    assert [t.get_text() for t in left.get_yticklabels()] == ["Fast-INGO", "IGO", "REINFORCE GD", "pycma"]
    with pytest.raises(UserError, match="no target 3"):
        draw("search", "effort", table, target=3.0)


def test_exponents_of_the_dimension_and_of_rates():
    (ax,), rows = small("search", "scaling")
    assert part(rows, method="fast_ingo")["exponent"].iloc[0] == pytest.approx(1.0, abs=0.02)
    assert "$d^{\\,1.00}$" in texts(ax)
    assert list(line(ax, "ingo: not within").get_xdata()) == [1000]
    with pytest.raises(UserError, match="no function in several dimensions"):
        draw("search", "scaling", synthetic.targets())
    axes, rows = small("search", "rates")
    rows = part(rows, problem="sphere", of="last", method="ingo_zeroth_order")
    assert rows["slope"].iloc[0] == pytest.approx(-1.75)
    np.testing.assert_array_equal(line(axes[1], "ingo_zeroth_order").get_ydata(), rows["gap_mean"])
    assert "$T^{\\,-1.75}$" in texts(axes[1])
    bound = line(axes[0], "log T / T")
    at = bound.get_xdata()
    np.testing.assert_allclose(bound.get_ydata() * at / np.log(at), bound.get_ydata()[0] * at[0] / np.log(at[0]))


def test_gradients_show_one_baseline_and_the_parts_of_f():
    axes, rows = small("search", "gradients")
    assert set(rows["baseline"]) == {"mean"}
    bars = np.array([bar.get_width() for bar in axes[2].patches]).reshape(4, 2)
    np.testing.assert_allclose(bars, [[90, 10], [15, 85]] * 2)
    with pytest.raises(UserError, match="unknown baseline"):
        draw("search", "gradients", synthetic.gradients(), baseline="f")


# integral ---------------------------------------------------------------------------------------------------------


def test_boxes_are_quantiles_without_sign_where_methods_differ_much():
    axes, rows = small("integral", "boxes")
    ax = axes[1]
    assert titles(axes)[1] == "borehole: f_H, m = 20"
    assert (ax.get_xscale(), axes[3].get_xlabel()) == ("log", "|estimate − truth|")
    error = part(rows, sizes="20", method="vector_valued")["error"].to_numpy()
    low, first, middle, third, high = np.quantile(np.abs(error), [0.05, 0.25, 0.5, 0.75, 0.95])
    np.testing.assert_allclose(line(ax, "vector_valued: 5 % to 95 %").get_xdata(), [low, high])
    np.testing.assert_allclose(line(ax, "vector_valued: median").get_xdata(), middle)
    corners = next(p for p in ax.patches if p.get_label() == "vector_valued: quartiles").get_xy()[:, 0]
    np.testing.assert_allclose([corners.min(), corners.max()], [first, third])
    np.testing.assert_allclose(line(ax, "vector_valued: mean").get_xdata(), abs(error.mean()))  # not the mean size
    assert len(line(ax, "vector_valued").get_xdata()) == 12  # every one, as they are few


def test_boxes_of_like_methods_have_a_sign():
    table = part(synthetic.estimates(("monte_carlo", "paper_vv")), sizes="10")
    lost = table[(table["method"] == "paper_vv") & (table["task"] == "f_H")].index[:2]
    table.loc[lost, ["error", "status"]] = [np.nan, "failed"]
    (ax,), _ = draw("integral", "boxes", table)
    error = part(table, task="f_H", method="monte_carlo")["error"]
    assert (ax.get_xscale(), ax.get_xlabel()) == ("linear", "estimate − truth")
    assert line(ax, "monte_carlo: mean").get_xdata()[0] == pytest.approx(error.mean())
    assert texts(ax) == ["2 failed"]
    with pytest.raises(UserError, match="unknown quantity"):
        draw("integral", "boxes", table, of="bias")


def test_boxes_of_sums_over_tasks():
    table = part(synthetic.estimates(problems=("two", "five"), tasks=("s0", "s1")), sizes="10")
    axes, _ = draw("integral", "boxes", table, of="absolute")
    here = part(table, problem="five", method="paper_vv")
    sums = here["error"].abs().groupby(here["repetition"]).sum()
    assert line(axes[1], "paper_vv: mean").get_xdata()[0] == pytest.approx(sums.mean())
    assert axes[0].get_xlim() == axes[1].get_xlim()  # sums compare by eye
    _, squares = draw("integral", "boxes", table.assign(derived=table["task"] == "s1"), of="squared")
    here = part(table, problem="two", method="paper_vv", task="s0")
    np.testing.assert_allclose(part(squares, problem="two", method="paper_vv")["drawn"], here["error"] ** 2)
    exact = part(table, problem="two").assign(error=0.0, method="convex")
    assert "exact" in texts(draw("integral", "boxes", pd.concat([table, exact]), of="absolute")[0][0])


def derived(problems):
    """Estimates of a derived quantity by methods with a large and a small spread."""
    table = synthetic.estimates(("monte_carlo", "vector_valued", "neural"), problems, ("log_evidence",))
    return table.assign(derived=True)


def test_boxes_of_values_in_a_row_have_one_scale_and_are_whole():
    table = pd.concat([derived(("twice",)), derived(("once",)).assign(truth=10.0)])
    axes, rows = draw("integral", "boxes", table)
    assert titles(axes) == [f"{name}\n{words}" for name in ("twice", "once")
                            for words in ("Monte Carlo", "vector-valued", "neural")]  # fmt: skip
    for ax in axes:
        name, method = ax.get_title(loc="left").splitlines()
        low, high = ax.get_ylim()
        own = rows[rows["problem"] == name]["drawn"]
        assert low < own.min() < own.max() < high, method
        left = next(other for other in axes if other.get_subplotspec().rowspan == ax.get_subplotspec().rowspan)
        assert left.get_ylim() == (low, high)
        assert left.get_ylabel() == "log evidence"


def test_problems_that_differ_in_their_number_of_points_alone_share_a_panel():
    table = synthetic.errors(("monte_carlo", "paper_vv"))
    apart = table.assign(problem=table["problem"] + "_" + table["sizes"])
    axes, rows = draw("integral", "errors", apart)
    assert titles(axes) == ["borehole: f_H"]
    assert list(line(axes[0], "paper_vv").get_xdata()) == sorted(set(rows["m"]))
    same = apart.assign(sizes="20", m=20, points=40).drop_duplicates(["problem", "task", "method"])
    assert len(draw("integral", "errors", same)[0]) == apart["problem"].nunique()


def test_times_of_a_single_number_of_points_have_no_panel():
    table = synthetic.TABLES["integral", "seconds"]()
    axes, _ = draw("integral", "seconds", table[table["sizes"] == "10"])
    assert titles(axes) == ["borehole: f_H"]
    assert [ax.get_ylabel() for ax in axes] == ["mean absolute error"]
    assert len(small("integral", "seconds")[0]) == 2


def test_titles_that_are_too_long_are_broken_and_labels_that_would_touch_left_out():
    table = synthetic.split().assign(bias2_high=lambda frame: 1e-9 * frame["bias2"], bias2=0.0, bias2_low=0.0)
    table = pd.concat([table, table.assign(problem="gain")])
    titled = {"borehole": "draws of the published code, as in the appendix", "gain": "short"}
    figure, _ = dataclasses.replace(FIGURES["integral", "split"], titles=titled).render(table)
    figure.draw_without_rendering()
    for ax in figure.axes:
        title = next(one for one in ax.findobj(Text) if one.get_text() == ax.get_title(loc="left"))
        box, beside = title.get_window_extent(), [other.get_window_extent() for other in figure.axes if other is not ax]
        ends = [
            other.x0 for other in beside if other.x0 > box.x0 and other.y0 < ax.get_window_extent().y1 < other.y1 + 1
        ]
        assert box.x1 < min([*ends, figure.bbox.width])
        assert "m = " in title.get_text()
        labels = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(labels))


def test_an_arrow_of_a_bias_below_the_axis_is_in_the_panel():
    table = part(synthetic.estimates(("monte_carlo", "vector_valued")), sizes="10")
    near = (table["method"] == "monte_carlo") & (table["task"] == "f_H")
    table.loc[near, "error"] -= table.loc[near, "error"].mean() * (1 - 1e-9)
    (ax,), _ = draw("integral", "boxes", table)
    arrow = line(ax, "monte_carlo: mean")
    assert arrow.get_marker() == "<"
    assert arrow.get_xdata()[0] > ax.get_xlim()[0]
    assert arrow.get_clip_on()


def test_units_of_the_hares():
    axes, _ = small("integral", "predictive")
    assert [ax.get_ylabel() for ax in axes] == ["thousands of pelts"] * 2
    assert axes[-1].get_xlabel() == "year"


def test_bands_of_many_methods_of_one_problem_have_a_panel_each():
    table = synthetic.epochs()
    one = table[table["problem"] == table["problem"].iloc[0]]
    many = pd.concat([one[one["method"] == "paper_vv"].assign(method=f"paper_vv_{n}") for n in "abcd"])
    axes, rows = draw("integral", "epochs", many)
    assert titles(axes) == [look.label for look in style.integrators(many["method"]).values()]
    for ax, method in zip(axes, "abcd", strict=True):
        own = line(ax, f"paper_vv_{method}")
        assert own.get_ydata() == pytest.approx(part(rows, method=f"paper_vv_{method}")["mae"])
        assert len(ax.lines) == 4
        assert [other.get_color() == own.get_color() for other in ax.lines].count(True) == 1
        assert ax.get_ylim() == axes[0].get_ylim()


def test_a_line_that_hides_another_is_dashed_and_the_panel_says_so():
    table = synthetic.TABLES["search", "curves"]()
    problem = table["problem"].iloc[0]
    one = table[(table["problem"] == problem) & (table["method"] == "igo")]
    shift = one.assign(method="es", **{name: one[name] * 1e3 for name in ("f_median", "f_low", "f_high")})
    axes, _ = draw("search", "curves", pd.concat([one.assign(method="ingo"), one.assign(method="ingo_step"), shift]))
    assert "INGO under INGOstep" in texts(axes[0])
    assert [line(axes[0], name).get_linestyle() for name in ("ingo", "ingo_step", "es")] == ["-", "--", "-"]


def test_panels_of_names_with_numbers_ascend_and_have_an_experiments_titles():
    table = part(synthetic.estimates(problems=("hares_10", "hares_2", "borehole")), sizes="10")
    titled = dataclasses.replace(FIGURES["integral", "boxes"], titles={"hares_2": "Table 3, T = 2"})
    figure, _ = titled.render(table)
    assert titles(figure.axes) == [f"{name}: f_H" for name in ("Table 3, T = 2", "hares_10", "borehole")]


def test_coverage_has_the_promised_share_and_names_methods_without_intervals():
    (ax,), _ = small("integral", "coverage")
    assert set(line(ax, "promised").get_ydata()) == {0.95}
    assert texts(ax) == ["without intervals: paper: vv, est. B"]
    assert {"monte_carlo", "vector_valued"} < labels(ax)
    assert "paper_vv" not in labels(ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["10", "20", "50", "150"]
    first, second = (line(ax, name).get_xdata() for name in ("monte_carlo", "control_functional"))
    np.testing.assert_array_equal(np.round((first + second) / 2), range(4))  # side by side at their size
    assert (second > first).all()
    with pytest.raises(UserError, match="coverage"):
        draw("integral", "coverage", synthetic.coverage().drop(columns="coverage"))


def test_split_says_when_a_bias_cannot_be_told_from_none():
    table = synthetic.split().assign(bias2=1e-3, bias2_low=5e-4, bias2_high=2e-3)
    table.loc[table["method"] == "vector_valued", ["bias2", "bias2_low", "bias2_high"]] = [-1e-9, 0.0, 3e-4]
    table.loc[table["method"] == "control_functional", ["mse", "bias2", "variance"]] = [np.inf, np.nan, np.nan]
    (ax,), rows = draw("integral", "split", table[table["sizes"] == "50"])
    assert line(ax, "paper_vv: bias2").get_xdata()[0] == 1e-3
    assert list(line(ax, "paper_vv: bias2, 95 %").get_xdata()) == [5e-4, 2e-3]
    assert "vector_valued: bias2" not in labels(ax)
    assert line(ax, "vector_valued: bias2, at most").get_xdata()[1] == 3e-4
    base, mine = (part(rows, method=method)["mse"].iloc[0] for method in ("monte_carlo", "vector_valued"))
    assert texts(ax)[:3] == ["", "failed", drawing.times(base / mine)]


def test_stein_kernels_have_symmetric_scales():
    axes, _ = small("integral", "stein_kernels")
    assert titles(axes[:2]) == ["squared exponential", "polynomial\ndegree 1"]
    for bar in axes[2:]:
        low, middle, high = bar.get_xticks()
        assert (low, middle) == (-high, 0)
    assert texts(draw("integral", "stein_kernels", synthetic.kernels().assign(value=0.0))[0][0]) == ["zero everywhere"]
