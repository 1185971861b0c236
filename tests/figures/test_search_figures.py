"""What figures of searches draw is what their tables say: medians, quartiles, budgets, shares, exponents."""

import numpy as np
import pytest
import synthetic_search as S

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


def part(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table


def test_curves_lines_ends_and_target():
    table = S.small("curves")
    left, right = figures.curves(table).axes
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
    np.testing.assert_array_equal(
        line(figures.curves(table, of="best").axes[1], "pycma").get_ydata(), rows["best_median"]
    )


def test_curves_of_policies_are_returns_and_of_discrete_problems_reach_zero():
    table = S.policies()
    ax = figures.curves(table).axes[0]
    assert ax.get_yscale() == "linear"
    np.testing.assert_array_equal(line(ax, "es").get_ydata(), -part(table, problem="swimmer", method="es")["f_median"])
    assert "return" in ax.get_ylabel()
    ax = figures.curves(S.discrete()).axes[0]
    lowest = line(ax, "pymoo_ga").get_ydata().min()
    assert dict(zip(ax.get_yticks(), [t.get_text() for t in ax.get_yticklabels()], strict=True))[lowest] == "0"


def test_seconds_are_of_one_run():
    table = S.small("search_seconds")
    ax = figures.search_seconds(table).axes[0]
    rows = part(table, problem="ellipsoid", method="pycma")
    np.testing.assert_array_equal(line(ax, "pycma").get_xdata(), rows["seconds"])


def test_second_backend_is_drawn_when_asked():
    traces, hits = S.made_up(("levy",), ("fast_ingo",), runs=3, backends=("torch", "jax"))
    table = S.curves(traces, hits)
    assert set(figures.DATA["curves"](table)["backend"]) == {"jax"}
    assert set(figures.DATA["curves"](table, backend="torch")["backend"]) == {"torch"}
    with pytest.raises(UserError, match="no rows of backend 'mxnet'"):
        figures.curves(table, backend="mxnet")
    with pytest.raises(UserError, match="unknown quantity"):
        figures.curves(table, of="median")


def test_profiles_pool_first():
    table = S.small("profiles")
    axes = figures.profiles(table).axes
    assert [ax.get_title(loc="left") for ax in axes] == ["all problems", "ellipsoid", "rastrigin10"]
    rows = part(table, problem="all", method="fast_ingo", of="mean")
    np.testing.assert_allclose(line(axes[0], "fast_ingo").get_ydata(), 100 * rows["share"])
    assert line(axes[0], "fast_ingo: end").get_xdata()[0] == rows["budget_per_dim"].max()


def test_effort_marks_what_was_not_met_at_its_budget():
    table = S.small("effort")
    left, right = figures.effort(table).axes
    row = part(figures.DATA["effort"](table), problem="ellipsoid", method="fast_ingo").iloc[0]
    assert line(left, "fast_ingo").get_xdata()[0] == row["evaluations_median"]
    assert list(line(left, "fast_ingo: 95 %").get_xdata()) == [row["evaluations_low"], row["evaluations_high"]]
    assert line(right, "fast_ingo: not within").get_xdata()[0] == 1.4e6
    assert texts(left) == ["6/6", "0/6", "0/6", "6/6"]
    assert [t.get_text() for t in left.get_yticklabels()] == ["Fast-INGO", "IGO", "REINFORCE GD", "pycma"]
    with pytest.raises(UserError, match="no target 3 of mean"):
        figures.effort(table, target=3.0)


def test_scaling_exponents():
    table = S.small("scaling")
    (ax,) = figures.scaling(table).axes
    data = part(figures.DATA["scaling"](table), method="fast_ingo")
    assert list(data["dim"]) == [10, 100, 1000]
    assert set(data["function"]) == {"ellipsoid"}
    assert data["exponent"].iloc[0] == pytest.approx(1.0, abs=0.02)
    assert f"$d^{{\\,{data['exponent'].iloc[0]:.2f}}}$" in texts(ax)
    assert list(line(ax, "ingo: not within").get_xdata()) == [1000]
    with pytest.raises(UserError, match="no function in several dimensions"):
        figures.scaling(S.small("effort"))


def test_gradients_ratios_and_composition():
    table = S.small("gradients")
    axes = figures.gradients(table, baseline="none").axes
    assert len(axes) == 2 * 3
    rows = part(table, problem="ellipsoid", sigma=0.1, baseline="none", scheme="rqmc", block="mu", source="total")
    np.testing.assert_array_equal(line(axes[0], "rqmc, mu").get_ydata(), rows["to_iid"])
    bars = np.array([bar.get_width() for bar in axes[2].patches]).reshape(4, 2)
    np.testing.assert_allclose(bars.sum(axis=1), 100)
    assert bars[0, 0] > 80  # the mean's gradient is odd, the scale's is even
    assert bars[1, 0] < 30
    assert set(figures.DATA["gradients"](table)["baseline"]) == {"mean"}
    with pytest.raises(UserError, match="unknown baseline"):
        figures.gradients(table, baseline="f")


def test_searchers_look_different():
    names = [*style.SEARCHERS, *(f"es_1e-{k}" for k in range(5)), "mine", "hers"]
    looks = style.searchers(names)
    one_domain = [name for name in names if name not in ("ingo_binary", "ingo_categorical")]
    assert len({(looks[name].colour, looks[name].marker) for name in one_domain}) == len(one_domain)
    assert looks["es_1e-2"].label == "ES 1e-2"
    assert style.searchers(["fast_ingo_adaptive_2"])["fast_ingo_adaptive_2"].label == "Fast-INGO, adaptive 2"
