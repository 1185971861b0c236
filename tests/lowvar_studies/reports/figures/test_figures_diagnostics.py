"""What figures of gradients along runs draw is what their tables say, and the two errors are told apart."""

import numpy as np
import pytest
import synthetic_diagnostics as S
from drawn import line, of, texts, titles

from lowvar.errors import UserError
from lowvar_studies.reports.drawing import style
from lowvar_studies.reports.drawing.rows import part

draw, shown = of("variational")


def test_true_and_conditional_part_for_mlmc_alone():
    table = S.small("variance")
    fig = draw("variance", table)
    data = shown("variance", table)
    assert data["best"].all()
    for name, ax in zip(("hlr", "blr"), fig.axes, strict=True):
        assert ax.get_yscale() == "log"
        for method in S.PAPER:
            true, conditional = line(ax, f"{method}, squared_error"), line(ax, f"{method}, variance")
            rows = part(data, problem=name, method=method, quantity="squared_error")
            np.testing.assert_array_equal(true.get_xdata(), rows["iteration"])
            np.testing.assert_array_equal(true.get_ydata(), rows["mean"])
            assert true.get_linestyle() == "-"
            assert conditional.get_linestyle() != "-"
            assert true.get_color() == conditional.get_color() == style.ESTIMATORS[method].colour
            apart = (true.get_ydata() / conditional.get_ydata())[1:]
            assert apart.min() > 1e4 if method == "mlmc" else np.allclose(apart, 1, atol=0.3)


@pytest.mark.long
def test_many_methods_have_a_panel_for_each_error():
    _, _, found = S.tables(S.traces(("blr",), S.ALL, repetitions=2))
    left, right = draw("variance", found).axes
    assert (left.get_title(loc="left"), right.get_title(loc="left")) == (
        "blr: true squared error", "blr: conditional variance")  # fmt: skip
    assert left.get_ylim() == right.get_ylim()
    assert len(left.lines) == len(right.lines) == len(S.ALL)


def test_ratios_are_the_papers():
    table = S.small("snr")
    ax = draw("snr", table).axes[0]
    rows = part(shown("snr", table), problem="hlr", method="mc", quantity="snr_true")
    np.testing.assert_array_equal(line(ax, "mc, snr_true").get_ydata(), rows["mean"])
    assert "nats" in ax.get_ylabel()


def test_particles_fall_to_one():
    ax = draw("particles", S.small("particles")).axes[1]
    assert line(ax, "mlmc, particles").get_ydata()[-1] == 1
    assert set(line(ax, "mc, particles").get_ydata()) == {100}
    assert {"1", "10", "100"} <= {tick.get_text() for tick in ax.get_yticklabels()}


def test_lost_methods_are_drawn_as_far_as_they_went_and_named():
    _, _, found = S.tables(S.traces(("hlr", "blr"), lost={("hlr", "mlmc")}))
    for name in ("variance", "particles", "test"):
        ax = draw(name, found).axes[0]
        assert "diverged: MLMC" in texts(ax)
        assert "diverged: MLMC" not in texts(draw(name, found).axes[1])
    assert line(ax, "mlmc").get_xdata()[-1] == 64


def test_test_log_likelihood_at_the_best_step_or_at_each():
    table = S.small("test")
    best = draw("test", table)
    assert titles(best.axes) == ["hlr", "blr"]
    rows = part(table, problem="blr", method="rqmc", quantity="test_log_likelihood", best=True)
    np.testing.assert_array_equal(line(best.axes[1], "rqmc").get_ydata(), rows["mean"])
    assert "per row" in best.axes[0].get_ylabel()
    each = draw("rates", part(table, problem="blr"))
    assert titles(each.axes) == ["blr, step size 0.01", "blr, step size 0.001"]
    assert set(shown("rates", table)["problem"]) == {"hlr"}


def test_cost_is_cumulative_and_bends():
    table = S.small("cost")
    ax = draw("cost", table).axes[0]
    rows = part(shown("cost", table), problem="hlr", method="mlmc")
    assert list(rows["epoch"]) == [0, *S.STOPS[2:]]  # one line for all step sizes, after the warm-up
    np.testing.assert_array_equal(line(ax, "mlmc").get_ydata(), rows["seconds"].iloc[1:])
    assert line(ax, "mlmc").get_ydata()[-1] < line(ax, "mc").get_ydata()[-1]
    with pytest.raises(UserError, match="no times"):
        draw("cost", table.assign(seconds=np.nan))


def test_sizes_has_intervals_at_each_fraction():
    table = S.small("sizes")
    (ax,) = draw("sizes", table).axes
    data = shown("sizes", table)
    rows = part(data, method="rqmc")
    np.testing.assert_allclose(line(ax, "rqmc").get_xdata(), 100 * rows["fraction"])  # the middle one of three
    np.testing.assert_array_equal(line(ax, "rqmc").get_ydata(), rows["mean"])
    (bars,) = [one for one in ax.collections if one.get_label() == "rqmc: 95 %"]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_array_equal(ends, rows[["low", "high"]].to_numpy())
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["10", "20", "40", "60", "80", "100"]


def test_sensitivity_maps_the_distance_to_the_best():
    table = S.small("sensitivity")
    fig = draw("sensitivity", table)
    panels = [ax for ax in fig.axes if "β" in ax.get_title(loc="left")]
    assert titles(panels[:2]) == ["hlr: β = 0.1", "β = 0.4"]
    zeros = titles(ax for ax in panels[:4] if "0" in texts(ax))
    best = part(table, problem="hlr", below=0.0)
    assert zeros == [f"β = {best['beta'].iloc[0]:g}"]
    lost = [one for one in panels[3].lines if one.get_label() == "diverged"]
    assert len(lost) == np.isinf(part(table, problem="hlr", beta=1.0)["below"]).sum() == 5
    for ax in panels[:4]:
        assert not {"144", "105"} & set(texts(ax))  # no room: the colour says it
    wide = draw("sensitivity", part(table, problem="hlr", beta=0.4)).axes[0]
    assert max(float(text) for text in texts(wide)) > 100


@pytest.mark.long
def test_sensitivity_of_problems_with_different_decays(tmp_path):
    table = S.small("sensitivity")
    table = table[(table["problem"] == "hlr") | (table["beta"] < 0.5)]
    fig = draw("sensitivity", table)
    fig.savefig(tmp_path / "sensitivity.png")
    said = [title for title in titles(fig.axes) if "β" in title]
    assert said == ["hlr: β = 0.1", "β = 0.4", "β = 0.7", "β = 1", "blr: β = 0.1", "β = 0.4"]
    assert "ELBO below the best (nats)" in [ax.get_ylabel() for ax in fig.axes]


@pytest.mark.parametrize("methods", [("mc",), pytest.param(S.PAPER, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("error")
def test_steps_of_a_single_step_size_is_a_point_with_its_interval(methods, tmp_path):
    table, _, _ = S.tables(S.traces(("blr",), methods, steps=(0.01,)))
    fig = draw("steps", table)
    fig.savefig(tmp_path / "steps.png")
    (ax,) = fig.axes
    low, high = ax.get_xlim()
    assert low < 0.01 < high < 0.1
    ticks = ["0.005", "0.01", "0.02"] if len(methods) == 1 else ["all at 0.01"]  # side by side, on no scale
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ticks
    last = table[table["iteration"] == table["iteration"].max()].set_index("method")
    for method in methods:
        assert list(line(ax, f"{method}, jax").get_ydata()) == [last.loc[method, "elbo_mean"]]
        (bar,) = [one for one in ax.collections if one.get_label() == f"{method}, jax: 95 %"]
        ends = bar.get_segments()[0][:, 1]
        assert list(ends) == [last.loc[method, "elbo_low"], last.loc[method, "elbo_high"]]
        if len(methods) == 1:
            assert ax.get_ylim()[0] < min(ends) < max(ends) < ax.get_ylim()[1]


@pytest.mark.filterwarnings("error")
def test_steps_of_a_single_gap(tmp_path):
    traces = S.traces(("blr",), ("mc",), steps=(0.01,))
    fig = draw("steps", S.C.convergence(traces, {"blr": -50.0}, {"blr": 455}))
    fig.savefig(tmp_path / "steps.png")
    low, high = fig.axes[0].get_xlim()
    assert low < 0.01 < high < 0.1


def test_tables_without_a_measurement_say_which():
    table = S.small("variance")
    with pytest.raises(UserError, match="squared_error and variance were not measured"):
        draw("variance", table[table["quantity"] == "particles"])
    with pytest.raises(UserError, match="test_log_likelihood were not measured"):
        draw("test", table[table["quantity"] == "particles"])
