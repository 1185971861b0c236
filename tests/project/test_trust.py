"""The verdicts of `benchmarks/trust.py`, on results that are made up."""

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from trust_cases import judge

CASE = SimpleNamespace(name="made", what="made up", unlike=False, mistake="", level=1.0, jumps=False)


def integral(shrink=1.0, factor=0.5, said="", method="control_functional", honest=True, nan=False, **case):
    """Rows of 100 estimates with errors `factor` times Monte Carlo's, and standard errors `shrink` times theirs."""
    rng, rows = np.random.default_rng(0), []
    for r in range(100):
        plain = rng.normal()
        error = plain if method == "monte_carlo" else factor * rng.normal()
        se = shrink * (1.0 if method == "monte_carlo" else factor)
        rows.append(
            {"repetition": r, "task": 0, "truth": 5.0, "said": said, "refused": "", "crashed": "", "seconds": 0.0,
             "method": method, "value": 5 + error, "standard_error": np.nan if nan else se, "low": 5 + error - 1.96 * se,
             "high": 5 + error + 1.96 * se, "monte_carlo": 5 + plain, "monte_carlo_se": 1.0 if honest else 0.2}
        )  # fmt: skip
    return judge.integral(SimpleNamespace(**(vars(CASE) | case)), rows)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ({}, "fine"),
        ({"shrink": 0.3}, "silently wrong"),
        ({"shrink": 0.3, "said": "the scores may be wrong"}, "told"),
        ({"shrink": 0.3, "said": "not for one that jumps there", "jumps": True}, "told"),
        ({"shrink": 0.3, "nan": True}, "told"),
        ({"factor": 2.0}, "behind"),
        ({"factor": 2.0, "said": "few samples"}, "told"),
        ({"method": "monte_carlo", "shrink": 0.2, "honest": False}, "silently wrong"),
    ],
)
def test_an_integral_is_judged_by_coverage_error_and_what_was_said(how, verdict):
    found = integral(**how)
    assert (found.verdict, found.behind) == (verdict, how.get("factor", 0.5) > 1)


def fit(difference=0.0, gap=0.0, khat=0.2, said="", refused="", **case):
    own = {"way": "default", "said": said, "refused": refused, "crashed": "", "khat": khat}
    rows = [own | {"seed": s, "elbo": -100 + difference} for s in range(3)]
    rows += [{"way": way, "seed": s, "elbo": -100.0} for way in ("naive", "numpyro") for s in range(3)]
    rows.append({"way": "best", "seed": 0, "elbo": -100 + difference + gap})
    return judge.model(SimpleNamespace(**(vars(CASE) | case)), rows)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ({}, "fine"),
        ({"difference": -1.0}, "behind"),
        ({"gap": 50.0}, "silently wrong"),
        ({"unlike": True, "khat": 0.9}, "told"),
        ({"unlike": True, "khat": np.nan, "said": "mean field cannot represent this posterior"}, "told"),
        ({"mistake": "rows interact"}, "silently wrong"),
        ({"mistake": "rows interact", "refused": "the rows interact"}, "told"),
    ],
)
def test_a_fit_is_judged_by_nats_and_by_flags(how, verdict):
    assert fit(**how).verdict == verdict


def search(true=0.5, nfev=100, success=True, status="target", message="reached", peer=100, **more):
    own = {"way": "default", "seed": 0, "said": "", "refused": "", "crashed": "", "calls": nfev, "budget": 1000,
           "success": success, "status": status, "message": message, "fun": true, "true": true, "nfev": nfev,
           "inside": True, "same": True, "seconds": 0.0}  # fmt: skip
    other = own | {"way": "pycma", "true": 0.5, "nfev": peer, "calls": peer}
    return judge.function(CASE, [own | more, other])


@pytest.mark.parametrize(
    ("how", "verdict", "behind"),
    [
        ({}, "fine", False),
        ({"nfev": 200}, "behind", True),
        ({"true": 2.0, "status": "converged", "message": "converged"}, "silently wrong", True),
        ({"true": 2.0, "success": False, "status": "budget", "message": "the budget is spent"}, "told", True),
        ({"inside": False}, "silently wrong", False),
        ({"calls": 1001, "nfev": 1001}, "silently wrong", True),
    ],
)
def test_a_search_is_judged_by_what_it_claims(how, verdict, behind):
    found = search(**how)
    assert (found.verdict, found.behind) == (verdict, behind)


def test_the_tables_have_every_case_after_a_way_through_a_file():
    import trust
    from trust_cases.common import FULL

    one = [integral(), integral(shrink=0.3), fit(mistake="rows interact"), search(nfev=200)]
    stored = json.loads(json.dumps([dataclasses.asdict(verdict) for verdict in one]))
    verdicts = [judge.Verdict(**verdict) for verdict in stored]
    measured = {"packages": {"numpy": "2"}, "date": "2020-01-01", "commit": "f00"}
    counts = trust.counts(verdicts, FULL, measured)
    assert "| all | 4 | 1 | 0 | 1 | 2 | 0 | 1 |" in counts
    for kind, number in (("integrals", 2), ("models", 1), ("functions", 1)):
        lines = trust.rows_of(kind, verdicts).splitlines()
        assert len(lines) == 2 + number
        assert len({line.count(" | ") for line in lines}) == 1
