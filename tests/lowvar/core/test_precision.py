"""Data that single precision would round: refused or told, and no alarm for ordinary ones."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import torch

import lowvar
from lowvar.core.rows import float32_merges_rows
from lowvar.errors import UserError

RNG = np.random.default_rng(0)
N = 2000
DAY = 1 / 24
LOST = {
    "Julian dates of a month": 2.459e6 + RNG.uniform(0, 30, N),
    "few Julian dates": 2.459e6 + np.linspace(0, 20, 15),
    "seconds since 1970, a long series": 1.7e9 + np.arange(200_000.0),
    "microseconds": 1.7e15 + 1e6 * np.arange(N),
    "seconds of two campaigns": np.r_[1.6e9 + np.arange(N / 2), 1.7e9 + np.arange(N / 2)],
    "northing in metres, a plot": 5_412_345 + RNG.uniform(0, 5, N),
    "identifiers": 100_000_000 + np.arange(N),
    "tiny units": 1e-50 * RNG.normal(size=N),
}
KEPT = {
    "normal": RNG.normal(size=N),
    "many sorted": np.sort(RNG.normal(size=1_000_000)),
    "large counts": RNG.poisson(1.5e7, N).astype(float),
    "heavy tails": RNG.standard_cauchy(N) ** 3,
    "decimal years": 2000 + RNG.uniform(0, 25, N),
    "Pascal": 101_325 + 300 * RNG.normal(size=N),
    "a constant": np.full(N, 0.1),
    "a constant with rounding": 1 + 1e-16 * RNG.normal(size=N),
    "daily Julian dates": 2_459_000.5 + np.arange(N),
    "labels": RNG.integers(0, 5, N),
    "sparse": RNG.normal(size=N) * (RNG.random(N) < 0.01) * 1e9,
    "missing": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(size=N)),
    "a column that is missing": np.column_stack([np.full(N, np.nan), RNG.normal(size=N)]),
    "one row": np.array([2_459_000.123]),
    "single precision already": (1e8 + RNG.normal(size=N)).astype(np.float32),
}


@pytest.mark.parametrize("kind", LOST)
def test_what_is_lost(kind, rng):
    certain, _ = float32_merges_rows(LOST[kind])
    assert certain
    certain, said = float32_merges_rows(np.column_stack([rng.normal(size=len(LOST[kind])), LOST[kind]]))
    assert certain
    assert "column 1" in said


@pytest.mark.parametrize("kind", KEPT)
def test_what_is_kept(kind):
    assert float32_merges_rows(KEPT[kind]) is None


def line(t, y=None, batch_size=None):
    slope = numpyro.sample("slope", dist.Normal(0, 10))
    with numpyro.plate("data", len(t), subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Normal(slope * (t[i] - 2.459e6), 0.3), obs=None if y is None else y[i])


T = 2.459e6 + RNG.uniform(0, 30, 300)
Y = 0.1 * (T - 2.459e6) + 0.3 * RNG.normal(size=300)
EXACT = -0.5 * ((Y[:3] - 0.1 * (T[:3] - 2.459e6)) / 0.3) ** 2 - np.log(0.3) - 0.5 * np.log(2 * np.pi)  # slope 0.1
QUICK = {"num_steps": 3, "khat_samples": 0, "progress": False}


def test_every_way_in_refuses_them(tmp_path):
    np.save(tmp_path / "t.npy", T)
    mapped = np.load(tmp_path / "t.npy", mmap_mode="r")
    frame = pd.DataFrame({"t": T, "y": Y})
    frame.to_parquet(tmp_path / "rows.parquet")
    ways = [
        lambda: lowvar.fit(line, {"t": T.tolist(), "y": Y}, **QUICK),
        lambda: lowvar.fit(line, {"t": frame["t"], "y": frame["y"]}, **QUICK),
        lambda: lowvar.fit(lambda d: line(d["t"], d["y"]), {"d": {"t": T, "y": Y}}, **QUICK),
        lambda: lowvar.fit(line, {"t": mapped, "y": Y}, **QUICK),
        lambda: lowvar.fit(line, lowvar.Parquet(tmp_path / "rows.parquet", t="t", y="y"), **QUICK),
        lambda: lowvar.decompose(line, {"t": T, "y": Y}, num_steps=3),
        lambda: lowvar.problem(line, {"t": T, "y": Y}),
    ]
    with jax.enable_x64(False):
        for way in ways:
            with pytest.raises(UserError, match="'t'"):
                way()
        lowvar.problem(line, {"t": jnp.asarray(T), "y": Y})  # the user rounded them


def test_a_doubtful_rounding_is_a_note():
    data = {"t": 2.459e6 + np.linspace(0, 3650, 300) ** 0.99, "y": Y}
    certain, _ = float32_merges_rows(data["t"])
    assert not certain
    with jax.enable_x64(False), pytest.warns(UserWarning, match="'t'"):
        fit = lowvar.fit(line, data, **QUICK)
    assert any("'t'" in note for note in fit.notes)


def test_integers_stay_exact_and_are_noted():
    """In the difference of two integers nothing is lost; with a float, as ``t - 1.7e9``, they are rounded."""
    start, since = 1_700_000_000, np.arange(300)

    def whole(t, y, batch_size=None):
        slope = numpyro.sample("slope", dist.Normal(0, 10))
        with numpyro.plate("data", len(t), subsample_size=batch_size) as i:
            numpyro.sample("y", dist.Normal(slope * (t[i] - start), 0.3), obs=y[i])

    with jax.enable_x64(False), pytest.warns(UserWarning, match="'t'"):
        problem = lowvar.fit(whole, {"t": start + since, "y": 0.1 * since}, **QUICK).problem
    values = problem.log_likelihood(jnp.array([0.1]), jnp.arange(300))
    np.testing.assert_allclose(values, values[0], rtol=1e-4)


def test_in_double_precision_nothing_is_lost():
    problem = lowvar.problem(line, {"t": T, "y": Y})
    np.testing.assert_allclose(problem.log_likelihood(jnp.array([0.1]), jnp.arange(3)), EXACT, rtol=1e-9)


def test_a_model_in_pyro_has_double_precision():
    pyro = pytest.importorskip("pyro")

    def model(t, y):
        slope = pyro.sample("slope", pyro.distributions.Normal(0.0, 10.0))
        with pyro.plate("data", len(t)) as i:
            pyro.sample("y", pyro.distributions.Normal(slope * (t[i] - 2.459e6), 0.3), obs=y[i])

    problem = lowvar.problem(lowvar.TorchModel.from_pyro(model, {"t": T, "y": Y}))
    values = problem.log_likelihood(torch.tensor([0.1], dtype=torch.float64), torch.arange(3))
    np.testing.assert_allclose(values, EXACT, rtol=1e-9)
