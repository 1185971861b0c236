"""What lies on disk: equal bytes, the drawn rows, nothing cut off, nothing imported too early."""

import subprocess
import sys

import pandas as pd
import pytest
import synthetic
import synthetic_diagnostics
import synthetic_search
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from lowvar import figures
from lowvar.errors import UserError

SIX = ("sonar", "australian", "breast cancer", "mnist", "tennis", "movielens")
EIGHT = (*synthetic.METHODS, "full_batch", "mine", "her_own")


def tables(name, problems, methods):
    if name in synthetic_search.FIGURES:
        return synthetic_search.small(name)
    if name in synthetic_diagnostics.FIGURES:
        return synthetic_diagnostics.small(name)
    if name == "schemes":
        return synthetic.schemes(problems, methods)
    if name in ("convergence", "steps"):
        return synthetic.convergence(problems, methods, backends=("jax", "torch"))
    return synthetic.decomposition(problems, methods, moments=(0, 1, 8, 64))


@pytest.mark.parametrize(
    "name",
    ["shares", "along", "split_along", "convergence", "steps", "schemes", "curves", "effort",
     *synthetic_diagnostics.FIGURES],
)  # fmt: skip
def test_same_input_gives_the_same_bytes_and_the_csv_is_what_was_drawn(name, tmp_path):
    table = tables(name, ("sonar",), ("naive", "joint", "mine"))
    first = figures.picture(name, table, tmp_path / "a" / "picture")
    second = figures.picture(name, table.copy(), tmp_path / "b" / "picture")
    assert [path.name for path in first] == ["picture.svg", "picture.png", "picture.csv"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    svg = first[0].read_text()
    assert "<dc:date>" not in svg
    assert "<image" not in svg  # all of it is vector
    with Image.open(first[1]) as image:
        assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    pd.testing.assert_frame_equal(pd.read_csv(first[2]), figures.DATA[name](table), check_dtype=False)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["picture.csv", "picture.png", "picture.svg"]


def test_same_figure_saved_twice_and_in_another_process(tmp_path):
    table = tables("shares", ("sonar",), ("naive", "joint"))
    figure = figures.shares(table)
    data = figures.DATA["shares"](table)
    first = [path.read_bytes() for path in figures.save(figure, tmp_path / "a.b", data)]
    assert [path.read_bytes() for path in figures.save(figure, tmp_path / "a.b", data)] == first
    table.to_parquet(tmp_path / "t.parquet")
    code = "import sys, pandas; from lowvar import figures; t = pandas.read_parquet(sys.argv[1]);"
    code += "assert 'matplotlib' not in sys.modules; figures.picture('shares', t, sys.argv[2]);"
    code += "assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, tmp_path / "t.parquet", tmp_path / "c"], check=True, timeout=60)
    assert [(tmp_path / f"c.{ending}").read_bytes() for ending in ("svg", "png", "csv")] == first


def test_the_users_own_style_neither_matters_nor_changes(tmp_path):
    import matplotlib

    table = tables("along", ("sonar",), ("naive", "joint"))
    plain = figures.picture("along", table, tmp_path / "plain")[0].read_bytes()
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9}):
        assert figures.picture("along", table, tmp_path / "own")[0].read_bytes() == plain
        assert matplotlib.rcParams["font.size"] == 30


def test_unwritable_folder_is_the_users_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        figures.picture("shares", tables("shares", ("sonar",), ("naive",)), tmp_path / "file" / "x")


@pytest.mark.parametrize("name", ["shares", "along", "split_along", "convergence", "steps", "schemes"])
def test_nothing_is_cut_off_or_covered(name):
    _whole(figures.FIGURES[name](tables(name, SIX[:3], EIGHT)), 0.25)


@pytest.mark.parametrize("name", ["convergence", "steps"])
def test_panels_of_elbos_are_whole(name):
    table = synthetic.without_optimum(problems=SIX, methods=EIGHT, backends=("jax",), optimum=-1.234567e7)
    _whole(figures.FIGURES[name](table), 0.25)


def test_figures_of_searches_are_whole_with_ten_methods():
    traces, hits = synthetic_search.made_up(("ellipsoid", "levy", "l_half_ellipsoid"), runs=2)
    for name in ("curves", "profiles", "effort"):
        _whole(
            figures.FIGURES[name](getattr(synthetic_search, "targets" if name == "effort" else name)(traces, hits)), 0.2
        )
    for name in ("scaling", "gradients"):
        _whole(figures.FIGURES[name](synthetic_search.small(name)), 0.1)
    for make in (synthetic_search.policies, synthetic_search.discrete):
        _whole(figures.curves(make()), 0.25)


@pytest.mark.parametrize("name", sorted(synthetic_diagnostics.FIGURES))
def test_figures_of_diagnostics_are_whole(name):
    _whole(
        figures.FIGURES[name](synthetic_diagnostics.small(name)), 0.01 if name == "sensitivity" else 0.25
    )  # its bar is narrow


def test_figures_of_diagnostics_are_whole_with_all_methods():
    _, _, found = synthetic_diagnostics.tables(synthetic_diagnostics.traces(methods=synthetic_diagnostics.ALL))
    for name in ("variance", "snr", "points", "test"):
        _whole(figures.FIGURES[name](found), 0.25)


def _whole(fig, width):
    renderer = FigureCanvasAgg(fig).get_renderer()
    fig.draw(renderer)
    page = fig.bbox.padded(1)
    legend = fig.legends[0].get_window_extent(renderer)
    for ax in fig.axes:
        box = ax.get_tightbbox(renderer)
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1
        assert not legend.overlaps(box)
        assert ax.get_window_extent(renderer).width > width * page.width  # room is left for the data
        for axis in (ax.xaxis, ax.yaxis):
            _apart([tick.label1 for tick in axis.get_major_ticks()], ax, renderer)
        _apart(ax.texts, ax, renderer)
        sizes = [text.get_fontsize() for text in (*ax.texts, ax.xaxis.label, *ax.get_xticklabels())]
        assert min(sizes) >= 9
    assert legend.x1 <= page.x1


def _apart(texts, ax, renderer):
    boxes = [t.get_window_extent(renderer) for t in texts if t.get_text() and t.get_visible()]
    boxes = [box.padded(-1) for box in boxes if box.width > 2 and box.height > 2]
    for rank, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:rank]), (ax.get_title(loc="left"), rank)
