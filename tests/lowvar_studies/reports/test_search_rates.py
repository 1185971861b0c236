"""Rates of convergence: averages, fitted slopes, their intervals, and the claims made of them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lowvar.errors import UserError
from lowvar_studies.reports.search import rates

AT = np.unique(np.geomspace(1, 1e4, 90).astype(int))


def traces(error, runs=6, method="m", status="ok"):
    """Runs with the gap ``error(T, run)`` above an optimum of 3."""
    rows = [{"problem": "p", "method": method, "backend": "jax", "repetition": r, "iteration": int(t), "status": status,
             "f": 3.0 + error(max(t, 1), r)} for r in range(runs) for t in np.r_[0, AT]]  # fmt: skip
    return pd.DataFrame(rows)


def gathered(frame, first=100, optimum=3.0):
    class One(SimpleNamespace):
        def once(self, make):
            return rates.errors(self.traces, {"p": optimum})

    return One(traces=frame, experiment=SimpleNamespace(rates=SimpleNamespace(first=first)))


def table(frame, **more):
    return rates.RATES.frame(rates.RATES.make(gathered(frame, **more)))


def row(frame, of="last", **more):
    found = table(frame, **more)
    return found[found["of"] == of].iloc[0]


def test_a_power_law_has_its_exponent():
    made = traces(lambda t, r: (1 + r) * t**-0.75)
    last, average = row(made), row(made, "average")
    assert last["slope"] == pytest.approx(-0.75, abs=1e-9)
    assert last["slope_low"] == pytest.approx(last["slope_high"], abs=1e-9)  # all runs have the same exponent
    exact = [np.sum(np.arange(1, t + 1) ** -0.75) / t for t in AT[AT >= 100]]
    assert average["slope"] == pytest.approx(np.polyfit(np.log(AT[AT >= 100]), np.log(exact), 1)[0], abs=0.01)
    assert (last["first"], last["last"], last["repetitions"]) == (AT[AT >= 100][0], 10_000, 6)


def test_log_t_over_t_has_no_excess():
    made = traces(lambda t, r: np.log(t + 1e-12) / t if t > 1 else 0.0)
    assert row(made)["excess"] == pytest.approx(0, abs=1e-9)
    assert row(made)["slope"] > -1


def test_intervals_cover_the_exponent():
    """300 experiments of ten runs with lognormal factors and exponents that differ from run to run."""
    rng, covered = np.random.default_rng(0), 0
    at = np.geomspace(100, 1e4, 12)
    for _ in range(300):
        exponent = -0.8 + 0.1 * rng.normal(size=10)
        error = np.exp(0.3 * rng.normal(size=(10, 12))) * (at[None, :] / 1e3) ** exponent[:, None]
        _, low, high = rates.interval(at, error)
        # the exponent of the mean error, whose log is quadratic in log T, as fitted to these generations
        true = np.polyfit(np.log(at), -0.8 * np.log(at / 1e3) + 0.005 * np.log(at / 1e3) ** 2, 1)[0]
        covered += low <= true <= high
    assert 0.90 <= covered / 300 <= 0.98


def test_what_diverged_or_arrived_has_no_slope():
    for made in (traces(lambda t, r: 1 / t, status="diverged"), traces(lambda t, r: 0.0)):
        assert np.isnan(row(made)["slope"])
    assert not len(table(traces(lambda t, r: 1 / t), optimum=None))
    assert not len(table(traces(lambda t, r: 1 / t), first=10**6))


def test_the_errors_are_those_of_the_trace():
    made = rates.REGRET.frame(rates.REGRET.make(gathered(traces(lambda t, r: 2.0 + r))))
    np.testing.assert_allclose(made["gap_mean"], 4.5)
    assert set(made["of"]) == {"average", "last"}
    assert made["fitted"].tolist() == (made["iteration"] >= 100).tolist()


def test_claims_of_rates(judge):
    found = {"rates": table(traces(lambda t, r: (1 + 0.1 * r) * t**-0.75))}
    at = {"problem": "p", "method": "m", "of": "last"}
    slope, excess = ({"table": "rates", "column": name, "at": at} for name in ("slope", "excess"))
    slow = judge("value", found, **excess, at_most=0)
    assert slow["verdict"] == "fails"
    assert slow["note"].endswith("to 10000")
    assert judge("value", found, **slope, published=-0.75, plus_minus=0.05)["verdict"] == "holds"
    assert judge("value", found, **slope, published=-1, plus_minus=0.05)["verdict"] == "fails"
    with pytest.raises(UserError, match="'rates' has no rows of problem p, method n"):
        judge("value", found, **slope | {"at": {"problem": "p", "method": "n"}}, below=0)
    lost = {"rates": table(traces(lambda t, r: 1 / t, status="diverged"))}
    assert judge("value", lost, **slope, at_most=0)["verdict"] == "undecided"
