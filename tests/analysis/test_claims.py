"""Verdicts follow from intervals, gaps are compared in pairs, and the optimum is the known one."""

import numpy as np
import pandas as pd
import pytest

from lowvar.analysis import claims as C
from lowvar.analysis import convergence as A
from lowvar.analysis.report import summary
from lowvar.errors import UserError


def decomposition(**methods):
    rows = [
        {
            "problem": "p",
            "method": name,
            "block": "all",
            "source": "total",
            "end": True,
            "variance": v,
            "low": lo,
            "high": hi,
        }
        for name, (lo, v, hi) in methods.items()
    ]
    return pd.DataFrame(rows)


def quantity(method):
    return {"problem": "p", "method": method}


def judge(test, decomposition=None, ends=None):
    claim = C.Claim(id="c", statement="s", source="t", test=test)
    return C.judge([claim], {"decomposition": decomposition, "ends": ends}).iloc[0]


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((95, 100, 105), "holds"),
        ((85, 100, 105), "undecided"),
        ((111, 120, 130), "fails"),
        ((105, 110, 120), "undecided"),
        ((10, 20, 89), "fails"),
    ],
)
def test_value(interval, verdict):
    test = {"kind": "value", "quantity": quantity("naive"), "published": 100.0, "tolerance": 0.1}
    row = judge(test, decomposition(naive=interval))
    assert (row["verdict"], row["ours"], row["published"]) == (verdict, interval[1], 100.0)


@pytest.mark.parametrize(
    ("joint", "naive", "cv", "verdict"),
    [
        ((4.5, 5, 5.5), (9, 10, 11), (8, 9, 10), "holds"),
        ((4.5, 5, 5.5), (9, 10, 11), (3, 10.1, 17), "undecided"),  # the wider rival, not the lower one, decides
        ((12, 13, 14), (9, 10, 11), (20, 21, 22), "fails"),
    ],
)
def test_below(joint, naive, cv, verdict):
    test = {"kind": "below", "quantity": quantity("joint"), "others": [quantity("naive"), quantity("cv")]}
    assert judge(test, decomposition(joint=joint, naive=naive, cv=cv))["verdict"] == verdict


def test_a_claim_of_something_else():
    test = {"kind": "value", "quantity": quantity("nobody"), "published": 1.0}
    with pytest.raises(UserError, match="which the decomposition does not have"):
        judge(test, decomposition(naive=(1, 2, 3)))


def trace(final, method, step_size=1.0, status="ok"):
    """Two epochs of several repetitions that end ``final`` below an optimum of zero."""
    rows = [
        {"problem": "p", "method": method, "backend": "jax", "step_size": step_size, "repetition": r, "epoch": epoch,
         "iteration": 10 * epoch, "gradients": 100 * epoch, "hvps": 50 * epoch, "elbo": -10.0 if epoch == 0 else -gap,
         "elbo_se": 0.0, "status": status if epoch else "ok"}
        for epoch in (0, 1) for r, gap in enumerate(final)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def tables(*traces):
    whole = pd.concat(traces, ignore_index=True)
    table = A.convergence(whole, {"p": 0.0}, {"p": 50})
    return table, A.ends(whole, table, {"p": 0.0})


GAP = {"kind": "gap", "problem": "p", "method": "joint", "others": ["naive"]}


def test_gaps_are_paired():
    """Repetitions differ by a factor of a thousand, methods by two in each: pairs decide, means would not."""
    spread = np.array([1e-3, 1e-1, 1.0])
    table, ends = tables(trace(spread * 2.0, "naive"), trace(spread * np.array([0.99, 1.0, 1.01]), "joint"))
    row = judge(GAP, ends=ends)
    assert row["verdict"] == "holds"
    assert row["ours"] == pytest.approx(0.5, rel=0.01)
    best = A.best(table).set_index("method")
    assert best.loc["joint", "gap_high"] > best.loc["naive", "gap_low"]


def test_convergence_counts_and_best():
    table, ends = tables(trace([1.0, 2.0], "naive", 0.1), trace([0.5, 0.5], "naive", 0.2))
    last = table[table["epoch"] == 1].set_index("step_size")
    assert last.loc[0.1, "gap_mean"] == pytest.approx(np.sqrt(2))
    assert last["best"].to_dict() == {0.1: False, 0.2: True}
    assert (last["oracles"] == 150).all()
    assert (last["passes"] == 3.0).all()
    assert ends["step_size"].unique().tolist() == [0.2]


def test_diverged_methods():
    nowhere = trace([np.nan, 1.0], "naive", status="diverged")
    table, ends = tables(nowhere, trace([0.5, 0.6], "joint"))
    last = table[(table["epoch"] == 1) & (table["method"] == "naive")].iloc[0]
    assert np.isinf(last["gap_mean"])
    assert not last["best"]
    assert last["diverged"] == 2
    assert judge(GAP, ends=ends)["verdict"] == "holds"
    assert judge(GAP | {"method": "naive", "others": ["joint"]}, ends=ends)["verdict"] == "fails"
    _, none = tables(nowhere)
    assert none.empty


@pytest.mark.parametrize(
    "content", ["", "a: 1", "- id: x", "[1", "- {id: a, statement: b, source: c, test: {kind: vale}}"]
)
def test_files_of_claims_that_are_none(tmp_path, content):
    path = tmp_path / "claims.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=r"claims\.yaml"):
        C.load(path)


@pytest.mark.parametrize("name", ["quickstart", "joint"])
def test_shipped_claims_load(repository, name):
    loaded = C.load(repository / "workflow" / "claims" / f"{name}.yaml")
    assert len({claim.id for claim in loaded}) == len(loaded)


@pytest.mark.mirror
@pytest.mark.parametrize(("name", "value"), [("sonar", -154.130), ("australian", -253.816)])
def test_known_optima(mirror, tmp_path, name, value):
    from lowvar.datasets import fetch, load, prepare
    from lowvar.problems.catalogue import build

    fetch(name, raw=tmp_path, mirror=mirror)
    p = build("logistic_regression", load(prepare(name, raw=tmp_path, out=tmp_path / "p.npz")).arrays)
    assert A.optimum(p) == pytest.approx(value, abs=6e-4)


def test_summary_says_what_pays():
    rows = []
    for method, parts in {"naive": (90.0, 8.0, 2.0), "joint": (1.0, 8.0, 1.0)}.items():
        total = sum(parts)
        for source, v in zip(("subsampling", "monte_carlo", "interaction", "total"), (*parts, total), strict=True):
            rows.append(
                {
                    "method": method,
                    "block": "all",
                    "source": source,
                    "variance": v,
                    "low": 0.9 * v,
                    "high": 1.1 * v,
                    "share": v / total,
                }
            )
    text = summary(pd.DataFrame(rows), {"naive": 1.0, "joint": 2.0}, "a model")
    assert (
        "Subsampling dominates the noise of `naive`. `joint` pays: 10 times less variance per step, 5 times less"
        in text
    )
    text = summary(pd.DataFrame(rows), {"naive": 1.0, "joint": 20.0}, "a model")
    assert "None of the others pays" in text
