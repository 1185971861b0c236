"""What figures of gradients along runs draw is what their tables say, and the two errors are told apart."""

import numpy as np
import pytest
import synthetic_diagnostics as S
from drawn import figures_of, line, texts, titles

from lowvar.errors import UserError
from lowvar_studies.reports.drawing import style
from lowvar_studies.reports.drawing.rows import part

draw, shown = figures_of("variational")


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


def test_lost_methods_are_drawn_as_far_as_they_went_and_named():
    _, _, found = S.tables(S.traces(("hlr", "blr"), lost={("hlr", "mlmc")}))
    for name in ("variance", "particles", "test"):
        ax = draw(name, found).axes[0]
        assert "diverged: MLMC" in texts(ax)
        assert "diverged: MLMC" not in texts(draw(name, found).axes[1])
    assert line(ax, "mlmc").get_xdata()[-1] == 64


def test_cost_is_cumulative_and_bends():
    table = S.small("cost")
    ax = draw("cost", table).axes[0]
    rows = part(shown("cost", table), problem="hlr", method="mlmc")
    assert list(rows["epoch"]) == [0, *S.STOPS[2:]]  # one line for all step sizes, after the warm-up
    np.testing.assert_array_equal(line(ax, "mlmc").get_ydata(), rows["seconds"].iloc[1:])
    assert line(ax, "mlmc").get_ydata()[-1] < line(ax, "mc").get_ydata()[-1]
    with pytest.raises(UserError, match="no times"):
        draw("cost", table.assign(seconds=np.nan))


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


def test_tables_without_a_measurement_say_which():
    table = S.small("variance")
    with pytest.raises(UserError, match="squared_error and variance were not measured"):
        draw("variance", table[table["quantity"] == "particles"])
    with pytest.raises(UserError, match="test_log_likelihood were not measured"):
        draw("test", table[table["quantity"] == "particles"])
