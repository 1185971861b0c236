"""What figures of integrals draw is what their tables say: errors, quartiles, parts, fits, times."""

import numpy as np
import pandas as pd
import pytest
import synthetic_integrals as S
from drawn import figures_of, labels, line, segments, texts, titles

from lowvar.core import drawing
from lowvar.errors import UserError
from lowvar_studies.reports.drawing.rows import part

draw, shown = figures_of("integral")


def test_errors_are_of_the_last_task_with_intervals():
    table = S.small("errors")
    (ax,) = draw("errors", table).axes
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_title(loc="left")) == ("log", "log", "borehole: f_H")
    rows = part(table, task="f_H", method="paper_vv")
    np.testing.assert_array_equal(line(ax, "paper_vv").get_xdata(), rows["m"])
    np.testing.assert_array_equal(line(ax, "paper_vv").get_ydata(), rows["mae"])
    np.testing.assert_allclose(segments(ax, "paper_vv: 95 %"), rows[["mae_low", "mae_high"]])


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
