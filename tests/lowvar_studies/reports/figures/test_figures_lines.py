"""The lines of every figure are columns of its rows: by hand, which rows and which columns a line should have."""

import numpy as np
import pytest
from drawn import TABLES, figures_of, line, segments

from lowvar_studies.reports.drawing.rows import part

AT_END = {"quantity": "test_log_likelihood", "best": True}
LINES = [  # family, figure, panel, label of the line, its rows, their columns along and up, those of its interval
    ("variational", "along", 2, "joint", {"problem": "australian", "block": "all", "method": "joint", "source": "total"},
     "iteration", "variance", ("low", "high")),
    ("variational", "along", 0, "subsampling", {"problem": "sonar", "block": "all", "method": "naive", "source": "subsampling"},
     "iteration", "variance", None),
    ("variational", "split_along", 1, "naive, interaction", {"problem": "australian", "method": "naive", "source": "interaction"},
     "iteration", "variance", None),
    *(("variational", name, 1, "cv, jax", {"problem": "australian", "method": "cv"}, along, "gap_mean", ("gap_low", "gap_high"))
      for name, along in (("convergence", "passes"), ("iterations", "iteration"), ("seconds", "seconds"))),
    ("variational", "snr", 0, "mc, snr_true", {"problem": "hlr", "method": "mc", "quantity": "snr_true"}, "iteration", "mean", None),
    ("variational", "particles", 1, "mlmc", {"problem": "blr", "method": "mlmc", "quantity": "particles"},
     "iteration", "mean", None),
    ("variational", "test", 1, "rqmc", {"problem": "blr", "method": "rqmc", **AT_END}, "iteration", "mean", None),
    ("variational", "sizes", 0, "rqmc", {"method": "rqmc"}, "100 fraction", "mean", ("low", "high")),
    ("search", "seconds", 0, "pycma", {"problem": "ellipsoid", "method": "pycma"}, "seconds", None, None),
    ("search", "profiles", 0, "fast_ingo", {"problem": "all", "method": "fast_ingo", "of": "mean"}, None, "100 share", None),
    ("integral", "fits", 1, "vector_valued", {"task": "f_H", "method": "vector_valued", "kind": "curve"}, "x", "fitted", None),
    ("integral", "fits", 0, "sample", {"task": "f_L", "method": "vector_valued", "kind": "point"}, "x", None, None),
    ("integral", "power_scores", 0, "3", {"target": 3}, None, "score", None),
    ("integral", "predictive", 0, "mean", {"series": "hare"}, "time", "mean", None),
    ("integral", "epochs", 0, "paper_vv", {"problem": "step, squared exponential", "method": "paper_vv"}, "100 part", "mae", None),
    ("integral", "seconds", 0, "control_functional", {"method": "control_functional"}, "points", "seconds_per_repetition", None),
    ("integral", "seconds", 1, "control_functional", {"method": "control_functional"}, "seconds_per_repetition", "mae",
     ("mae_low", "mae_high")),
]  # fmt: skip


def column(rows, name):
    """``100 share`` is the column in percent."""
    factor, _, name = name.rpartition(" ")
    return float(factor or 1) * rows[name].to_numpy(float)


@pytest.mark.parametrize(
    ("family", "name", "panel", "label", "where", "along", "up", "ends"), LINES, ids=lambda value: str(value)[:20]
)
def test_a_line_is_what_its_rows_say(family, name, panel, label, where, along, up, ends):
    draw, shown = figures_of(family)
    table = TABLES[family, name][0]()
    ax, rows = draw(name, table).axes[panel], part(shown(name, table), **where)
    assert len(rows) > 1
    drawn = line(ax, label)
    for values, wanted in ((drawn.get_xdata(), along), (drawn.get_ydata(), up)):
        if wanted is not None:
            np.testing.assert_allclose(values, column(rows, wanted), rtol=1e-12)
    if ends is not None:
        np.testing.assert_allclose(segments(ax, f"{label}: 95 %"), rows[list(ends)], rtol=1e-12)
