"""What figures of searches draw is what their tables say: medians, quartiles, budgets, shares, exponents."""

import numpy as np
import pytest
import synthetic_search as S
from drawn import figures_of, labels, line, texts

from lowvar.errors import UserError
from lowvar_studies.reports.drawing.rows import part

draw, shown = figures_of("search")


def test_curves_lines_ends_and_target():
    table = S.small("curves")
    left, right = draw("curves", table).axes
    rows = part(table, problem="rastrigin10", method="pycma")
    np.testing.assert_array_equal(line(right, "pycma").get_xdata(), rows["evaluations"])
    np.testing.assert_array_equal(line(right, "pycma").get_ydata(), rows["f_median"])
    assert line(right, "pycma: end").get_markerfacecolor() == "none"  # the budget was spent
    assert line(left, "fast_ingo: end").get_markerfacecolor() != "none"  # all had met the target
    assert line(left, "reinforce_gd: end").get_marker() == "x"
    assert "diverged: REINFORCE GD" in texts(left)
    assert "target" in labels(left)
    assert "target" not in labels(right)  # far above it
    assert 2e-11 <= line(left, "fast_ingo").get_ydata().min() <= 1e-10  # what lies lower is not drawn lower


def test_curves_of_policies_are_returns_and_of_discrete_problems_reach_zero():
    table = S.policies()
    ax = draw("curves", table).axes[0]
    assert ax.get_yscale() == "linear"
    np.testing.assert_array_equal(line(ax, "es").get_ydata(), -part(table, problem="swimmer", method="es")["f_median"])
    assert "return" in ax.get_ylabel()
    ax = draw("curves", S.discrete()).axes[0]
    lowest = line(ax, "pymoo_ga").get_ydata().min()
    assert dict(zip(ax.get_yticks(), [t.get_text() for t in ax.get_yticklabels()], strict=True))[lowest] == "0"


def test_effort_marks_what_was_not_met_at_its_budget():
    table = S.small("effort")
    left, right = draw("effort", table).axes
    row = part(shown("effort", table), problem="ellipsoid", method="fast_ingo").iloc[0]
    assert line(left, "fast_ingo").get_xdata()[0] == row["evaluations_median"]
    assert list(line(left, "fast_ingo: 95 %").get_xdata()) == [row["evaluations_low"], row["evaluations_high"]]
    assert line(right, "fast_ingo: not within").get_xdata()[0] == 1.4e6
    assert texts(left) == ["6/6", "0/6", "0/6", "6/6"]
    assert [t.get_text() for t in left.get_yticklabels()] == ["Fast-INGO", "IGO", "REINFORCE GD", "pycma"]
    with pytest.raises(UserError, match="no target 3"):
        draw("effort", table, target=3.0)


def test_scaling_exponents():
    table = S.small("scaling")
    (ax,) = draw("scaling", table).axes
    data = part(shown("scaling", table), method="fast_ingo")
    assert list(data["dim"]) == [10, 100, 1000]
    assert set(data["function"]) == {"ellipsoid"}
    assert data["exponent"].iloc[0] == pytest.approx(1.0, abs=0.02)
    assert f"$d^{{\\,{data['exponent'].iloc[0]:.2f}}}$" in texts(ax)
    assert list(line(ax, "ingo: not within").get_xdata()) == [1000]
    with pytest.raises(UserError, match="no function in several dimensions"):
        draw("scaling", S.small("effort"))


def test_rates_have_fitted_exponents_and_the_rate_of_the_theorems():
    table = S.regret()
    axes = draw("rates", table).axes
    assert len(axes) == 4
    rows = part(shown("rates", table), problem="sphere", of="last", method="ingo_zeroth_order")
    assert rows["slope"].iloc[0] == pytest.approx(-1.75)
    np.testing.assert_array_equal(line(axes[1], "ingo_zeroth_order").get_ydata(), rows["gap_mean"])
    assert "$T^{\\,-1.75}$" in texts(axes[1])
    bound = line(axes[0], "log T / T")
    at = bound.get_xdata()
    assert at.min() >= 1000
    np.testing.assert_allclose(bound.get_ydata() * at / np.log(at), bound.get_ydata()[0] * at[0] / np.log(at[0]))


def test_gradients_ratios_and_composition():
    table = S.small("gradients")
    axes = draw("gradients", table, baseline="none").axes
    assert len(axes) == 2 * 3
    rows = part(table, problem="ellipsoid", sigma=0.1, baseline="none", scheme="rqmc", block="mu", source="total")
    np.testing.assert_array_equal(line(axes[0], "rqmc, mu").get_ydata(), rows["to_iid"])
    bars = np.array([bar.get_width() for bar in axes[2].patches]).reshape(4, 2)
    np.testing.assert_allclose(bars.sum(axis=1), 100)
    assert bars[0, 0] > 80  # the mean's gradient is odd, the scale's is even
    assert bars[1, 0] < 30
    assert set(shown("gradients", table)["baseline"]) == {"mean"}
    with pytest.raises(UserError, match="unknown baseline"):
        draw("gradients", table, baseline="f")
