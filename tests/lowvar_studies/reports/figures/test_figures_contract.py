"""What every figure promises: it draws the rows that it saves and nothing else, the same every time, whole and labelled."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import drawn
import numpy as np
import pandas as pd
import pytest
import synthetic
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from lowvar.core import drawing
from lowvar.errors import UserError
from lowvar_studies.reports.drawing import charts, rows, style
from lowvar_studies.reports.variational.figures import SHARES

SIX = ("sonar", "australian", "breast cancer", "mnist", "tennis", "movielens")
EIGHT = (*synthetic.METHODS, "full_batch", "mine", "her_own")
TEN = ("fast_ingo", "fast_ingo_adaptive", "ingo", "ingo_step", "igo", "es", "reinforce_gd", "pycma", "sep_cmaes", "evosax_snes")  # fmt: skip
SEVEN = (*synthetic.MAE, "zero_variance", "paper_cf", "paper_vv_fixed")
UNITS = {"nats", "seconds", "(s)", "data rows", "%", "points", "epoch", "iteration", "generations", "evaluations", "passes", "step",
         "dimension", "gap", "error", "truth", "iid", "time", "f and fits", "score", "value", "pelts", "year", "x", "y", "α"}  # fmt: skip
TEXT = dict.fromkeys(("sizes", "kernel"), str)
# one each with bars, with lines and bands, with steps, with boxes; `make test-long` has all
SHORT = ("shares", "convergence", "curves", "boxes")
LONG = pytest.mark.long


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, marks=() if one[1] in SHORT else LONG, id="-".join(one)) for one in drawn.FIGURES],
)
def pictured(request, tmp_path_factory):
    """A figure, its table, and what is drawn and saved of it, but for the png, once for all tests of it."""
    figure, table = drawn.FIGURES[request.param], synthetic.TABLES[request.param]()
    fig, shown = figure.render(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(drawing._METADATA, "png")
        return figure, table, fig, drawing.save(fig, tmp_path_factory.mktemp("pictured") / "picture", shown)


def test_every_figure_of_a_family_is_tested():
    assert set(synthetic.TABLES) == set(drawn.FIGURES)


@pytest.mark.long
def test_drawn_from_the_saved_rows_the_picture_is_the_same(pictured, tmp_path, monkeypatch):
    """To the byte: a figure draws the rows that it saves and nothing else, the same every time."""
    figure, table, _, first = pictured
    saved = pd.read_csv(first[-1], dtype=TEXT)
    pd.testing.assert_frame_equal(saved, figure.rows(table), check_dtype=False)
    again = replace(figure, select=lambda rows: rows, source=replace(figure.source, columns=()))
    monkeypatch.delitem(drawing._METADATA, "png")
    for path in again.picture(saved, tmp_path / "picture"):
        assert path.read_bytes() == first[0].with_name(path.name).read_bytes()
    svg = first[0].read_text()
    assert "<dc:date>" not in svg
    assert "<image" not in svg  # all of it is vector


def test_axes_are_labelled_and_nothing_is_cut_off_or_covered(pictured):
    figure, _, fig, _ = pictured
    said = [label for ax in fig.axes for label in (ax.get_xlabel(), ax.get_ylabel()) if label]
    assert said
    for label in said:
        assert any(unit in label for unit in UNITS), label
    whole(fig, 0.01 if figure.name in ("sensitivity", "power_scores", "stein_kernels") else 0.1)  # of narrow bars


def test_axes_with_numbers_have_three_labelled_ticks(pictured):
    fig = pictured[2]
    numeric = [(axis, words) for axis, words in drawn.ticks(fig) if words and None not in map(number, words)]
    assert numeric
    for axis, words in numeric:
        assert enough(words), (axis.axes.get_title(loc="left"), axis.axis_name, words)


@pytest.mark.parametrize(
    "ends",
    [
        *((30, 400), (2e-4, 9e-4), (99.9, 100.1)),
        *(pytest.param(ends, marks=LONG) for ends in ((0.9, 1.1), (1.1, 1.9), (3e4, 2e6))),
    ],
)
def test_an_axis_of_any_range_gets_ticks_that_do_not_touch(ends):
    fig, axes = charts.grid(2, "x", "y")
    for ax, scale in zip(axes, ("linear", "log"), strict=True):
        ax.set(xscale=scale, yscale=scale, xlim=ends, ylim=ends)
    charts.round_ticks(fig)
    whole(fig, 0.25)
    for axis, words in drawn.ticks(fig):
        assert enough(words)
        if axis.get_scale() == "log":
            assert [number(text) for text in words] == pytest.approx(list(axis.get_majorticklocs()), rel=1e-6)


def enough(words):
    """Whether labels of ticks tell the scale: three, or two powers of ten, where others would be too long."""
    powers = {f"{number(text):e}" for text in words}
    return len(powers) >= 3 or (len(powers) == 2 and all(text.startswith("1.000000e") for text in powers))


def number(text):
    """The number that a tick shows; None for words."""
    found = re.fullmatch(r"\$(?:(.+)\\times )?10\^\{(-?\d+)\}\$", text)
    plain = text.replace("\N{MINUS SIGN}", "-")
    try:
        return float(f"{found[1] or 1}e{found[2]}") if found else float(plain)
    except ValueError:
        return None


def test_missing_columns_empty_tables_and_unknown_options_are_the_users_error():
    table = synthetic.decomposition()
    with pytest.raises(UserError, match="lacks the column 'variance'"):
        SHARES.rows(table.drop(columns="variance"))
    with pytest.raises(UserError, match="no rows"):
        SHARES.rows(table.iloc[:0])
    with pytest.raises(UserError, match="unknown option 'colour'"):
        SHARES.rows(table, colour="red")


@pytest.mark.long
@pytest.mark.parametrize(("family", "name"), drawn.FIGURES)
@pytest.mark.filterwarnings("ignore:.*empty slice", "ignore:.*All-NaN")
def test_a_table_of_nan_is_an_empty_panel_that_says_why(family, name):
    table = synthetic.TABLES[family, name]().copy()
    results = ("mean", "low", "high", "mae", "gap", "elbo", "variance", "share", "coverage", "to_iid", "f_", "best_", "below",
               "error", "value", "mse", "bias2", "evaluations_", "seconds", "fitted")  # fmt: skip
    for column in table.select_dtypes("floating"):
        if column.startswith(results) and column not in ("evaluations_per_dim",):
            table[column] = np.nan
    if "status" in table:
        table["status"] = "diverged"
    if name == "cost":
        with pytest.raises(UserError, match="no times"):
            drawn.FIGURES[family, name].render(table)
        return
    fig, _ = drawn.FIGURES[family, name].render(table)
    words = [text for ax in fig.axes for text in drawn.texts(ax)]
    quiet = (
        "profiles",
        "groups",
        "scaling",
        "schemes",
        "gradients",
        "fits",
        "power_scores",
        "predictive",
        "sensitivity",
    )
    assert words or name in quiet  # those have gaps and crosses in place of words


def test_the_first_backend_of_a_method_is_drawn():
    table = pd.DataFrame({"problem": "p", "method": list("aabb"), "backend": ["torch", "jax", "torch", "other"]})
    assert list(rows.one_backend(table)["backend"]) == ["jax", "torch"]


@pytest.mark.long
def test_same_bytes_in_another_process_and_style_and_nothing_is_imported_before_it_is_drawn(tmp_path):
    table = synthetic.decomposition(("sonar",), ("naive", "joint"), (0, 64))
    paths = SHARES.picture(table, tmp_path / "a.b")
    assert [path.name for path in paths] == ["a.b.svg", "a.b.png", "a.b.csv"]
    with Image.open(paths[1]) as image:
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    first = [path.read_bytes() for path in paths]
    table.to_parquet(tmp_path / "t.parquet")
    code = "import sys; from lowvar_studies.jobs.load import FAMILIES;"
    code += "assert not {'matplotlib', 'jax', 'torch', 'pandas'} & set(sys.modules);"
    code += "import matplotlib, pandas; matplotlib.rcParams['font.size'] = 30;"
    code += "FAMILIES['variational'].figures['shares'].picture(pandas.read_parquet(sys.argv[1]), sys.argv[2]);"
    code += "assert 'matplotlib.pyplot' not in sys.modules and matplotlib.rcParams['font.size'] == 30"
    subprocess.run([sys.executable, "-c", code, tmp_path / "t.parquet", tmp_path / "c"], check=True, timeout=60)
    assert [(tmp_path / f"c.{ending}").read_bytes() for ending in ("svg", "png", "csv")] == first


MANY = {  # a table of many methods for a figure, and how much of the page is left for each panel's data
    ("variational", "shares"): (lambda: synthetic.decomposition(SIX[:3], EIGHT, (0, 1, 8, 64)), 0.25),
    ("variational", "convergence"): (lambda: synthetic.convergence(SIX[:3], EIGHT, backends=("jax", "torch")), 0.25),
    ("variational", "steps"): (lambda: synthetic.without_optimum(problems=SIX, methods=EIGHT, optimum=-1.234567e7), 0.25),
    ("variational", "schemes"): (lambda: synthetic.schemes(SIX[:3], EIGHT), 0.25),
    ("variational", "variance"): (lambda: synthetic.diagnostics(SIX[:3], (*synthetic.LEVELS, *EIGHT)), 0.25),
    ("search", "curves"): (lambda: synthetic.curves(("ellipsoid", "levy", "l_half_ellipsoid"), TEN), 0.2),
    ("search", "effort"): (lambda: synthetic.targets(("ellipsoid", "levy", "l_half_ellipsoid"), TEN), 0.2),
    ("integral", "errors"): (lambda: synthetic.errors(SEVEN), 0.25),
    ("integral", "boxes"): (lambda: synthetic.estimates(SEVEN, ("borehole", "borehole_unbalanced")), 0.2),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("of", MANY, ids="-".join)
def test_a_figure_of_many_methods_is_whole(of):
    make, width = MANY[of]
    whole(drawn.FIGURES[of].render(make())[0], width)


@pytest.mark.parametrize(
    ("looks", "known", "variant", "label"),
    [(style.estimators, style.ESTIMATORS, "mine", "mine"), (style.searchers, style.SEARCHERS, "es_1e-2", "ES 1e-2"),
     (style.searchers, style.SEARCHERS, "fast_ingo_adaptive_2", "Fast-INGO, adaptive 2"),
     (style.integrators, style.INTEGRATORS, "control_functional_polynomial", "control functional polynomial"),
     (style.integrators, style.INTEGRATORS, "paper_vv_fixed", "paper: vv, fixed B")],
)  # fmt: skip
def test_every_method_looks_different(looks, known, variant, label):
    names = [*known, variant, *(f"mine_{rank}" for rank in range(9))]
    names = [name for name in dict.fromkeys(names) if name not in ("ingo_binary", "ingo_categorical")]
    assert len({(look.colour, look.marker) for look in looks(names).values()}) == len(names)
    assert looks(names)[variant].label == label
    styles = [looks(names)[name] for name in names if name not in known or name == variant]
    assert alike(styles) == []
    assert looks(["mine_1"])["mine_1"] == looks(["mine_1", next(iter(known))])["mine_1"]


def alike(styles):
    """The labels of pairs with the same marker in colours that a reader may confuse."""
    return [
        (one.label, other.label)
        for rank, one in enumerate(styles)
        for other in styles[:rank]
        if one.marker == other.marker and style._distance(one.colour, other.colour) <= style._NEAR
    ]


def test_no_two_methods_of_an_experiment_look_alike():
    """ES 0.0001 and REINFORCE GD 1e-2 did: dark shades of two oranges, with the same marker."""
    looks = {"search": style.searchers, "integral": style.integrators, "variational": style.estimators}
    for path in sorted(Path("workflow/experiments").glob("*.yaml")):
        content = yaml.safe_load(path.read_text())
        styles = looks[content.get("family", "variational")](content["methods"]).values()
        assert alike(list(styles)) == [], path
    steps = style.searchers(["es_1", "es_2", "reinforce_gd_1", "reinforce_gd_2", "reinforce_gd_raw_1"])
    assert [len({look.dash for name, look in steps.items() if name.startswith(base)}) for base in ("es", "rein")] == [
        1,
        2,
    ]
    assert steps["es_1"].dash not in {steps["reinforce_gd_1"].dash, steps["reinforce_gd_raw_1"].dash}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("looks", [style.estimators, style.searchers, style.integrators])
def test_thirty_methods_of_any_names_have_different_looks(looks, seed):
    rng = np.random.default_rng(seed)
    names = [f"{''.join(rng.choice(list('abcdefgh'), 5))}_{rank}" for rank in range(15)]
    names += [
        f"{base}_{rng.integers(1000)}" for base in ("es", "mlmc", "paper_cv", "reinforce_gd", "auto") for _ in range(3)
    ]
    found = looks(names)
    assert len({(look.colour, look.marker) for look in found.values()}) == len(set(names))


def test_every_method_of_the_package_has_a_look():
    from lowvar.integrals import INTEGRAL
    from lowvar.search.solvers import SEARCH
    from lowvar.vi.estimators import GRADIENT
    from lowvar.vi.plots import SOURCES

    assert set(GRADIENT.own) <= set(style.ESTIMATORS)
    assert set(SEARCH.own) <= set(style.SEARCHERS)
    assert set(INTEGRAL.own) <= set(style.INTEGRATORS)
    colours = {look.colour for look in style.ESTIMATORS.values()}
    assert not colours & {source.colour for source in SOURCES.values()}


def whole(fig, width):
    renderer = FigureCanvasAgg(fig).get_renderer()
    fig.draw(renderer)
    page = fig.bbox.padded(1)
    legend = fig.legends[0].get_window_extent(renderer) if fig.legends else None
    for ax in fig.axes:
        box = ax.get_tightbbox(renderer)
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        assert legend is None or not legend.overlaps(box)
        assert ax.get_window_extent(renderer).width > width * page.width  # room is left for the data
        for axis in (ax.xaxis, ax.yaxis):
            apart([tick.label1 for tick in axis.get_major_ticks()], ax, renderer)
        apart(ax.texts, ax, renderer)
        sizes = [text.get_fontsize() for text in (*ax.texts, ax.xaxis.label, *ax.get_xticklabels())]
        assert min(sizes) >= 9
    assert legend is None or legend.x1 <= page.x1


def apart(texts, ax, renderer):
    boxes = [t.get_window_extent(renderer) for t in texts if t.get_text() and t.get_visible()]
    boxes = [box.padded(-1) for box in boxes if box.width > 2 and box.height > 2]
    for rank, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:rank]), (ax.get_title(loc="left"), rank)
