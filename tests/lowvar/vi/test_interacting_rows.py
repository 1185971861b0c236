"""Models whose rows interact within a batch are refused; those whose rows only share parameters are not."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowvar
from lowvar.vi.numpyro.model import from_numpyro
from lowvar.vi.settings import problem_of

N, GROUPS = 6000, 2000
rng = np.random.default_rng(5)
SETS = np.repeat(np.arange(GROUPS), 3)
DATA = {
    "x": rng.normal(size=N).astype(np.float32),
    "y": rng.normal(size=N).astype(np.float32),
    "g": rng.permutation(SETS),  # groups of three rows, far apart
    "rare": (rng.random(N) < 0.003).astype(np.int32),
}
SORTED = {**DATA, "g": SETS}


def of_rows(likelihood, data=DATA, **fixed):
    """A model whose rows have the log-likelihoods ``likelihood(b, rows)``."""

    def model(x, y, g, rare):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("data", N, subsample_size=100) as i:
            rows = {"x": x[i], "y": y[i], "g": g[i], "rare": rare[i]}
            numpyro.factor("f", likelihood(b, rows))

    return model


def normal(mean, y):
    return dist.Normal(mean, 1.0).log_prob(y)


def share(values, g):
    """Sums of values over the rows of the same group in the batch."""
    return (g[:, None] == g[None, :]).astype(values.dtype) @ values


def lag(r):
    same = jnp.concatenate([jnp.zeros(1, bool), r["g"][1:] == r["g"][:-1]])
    return jnp.where(same, jnp.roll(r["y"], 1), 0.0)


def within(b, r):
    mean = share(r["x"], r["g"]) / share(jnp.ones_like(r["x"]), r["g"])
    return normal(b[0] + b[1] * (r["x"] - mean), r["y"])


def rare_centred(b, r):
    many = jnp.maximum(r["rare"].sum(), 1)
    mean = (r["x"] * r["rare"]).sum() / many
    return normal(b[0] + b[1] * (r["x"] - jnp.where(r["rare"] == 1, mean, 0.0)), r["y"])


def tail_centred(b, r):
    tail = r["x"] > 2.8
    mean = (r["x"] * tail).sum() / jnp.maximum(tail.sum(), 1)
    return normal(b[0] + b[1] * jnp.where(tail, r["x"] - mean, r["x"]), r["y"])


def segments(b, r):
    counts = jax.ops.segment_sum(jnp.ones_like(r["x"]), r["g"], GROUPS)
    return normal(b[0] * r["x"], r["y"]) / counts[r["g"]]


def first_of_group(b, r):
    """Rows that repeat an earlier row's group do not count."""
    earlier = jnp.tril(r["g"][:, None] == r["g"][None, :], -1).any(axis=1)
    return jnp.where(earlier, 0.0, normal(b[0], r["y"]))


def near_in_x(b, r):
    near = (jnp.abs(r["x"][:, None] - r["x"][None, :]) < 1e-4).sum(axis=1)
    return normal(b[0] * near, r["y"])


def deduplicated(b, r):
    kept = jnp.unique(r["g"], size=r["g"].shape[0], fill_value=-1)
    return normal(b[0], r["y"]) * (kept >= 0)


INTERACTING = {
    "lag of the same subject": lambda b, r: normal(b[0] * lag(r), r["y"]),
    "centred by group": within,
    "conditional logit": lambda b, r: b[0] * r["x"] - jnp.log(share(jnp.exp(b[0] * r["x"]), r["g"])),
    "a rare class centred": rare_centred,
    "a rare tail centred": tail_centred,
    "a cumulative sum": lambda b, r: normal(b[0] * jnp.cumsum(r["x"]), r["y"]),
    "batch normalisation": lambda b, r: normal(b[0] * r["x"] / (1e-3 + r["x"].std()), r["y"]),
    "sorted": lambda b, r: normal(b[0], jnp.sort(r["y"])),
    "segments": segments,
    "first of a group": first_of_group,
    "near in a real column": near_in_x,
    "unique values": deduplicated,
}


@pytest.mark.parametrize("case", INTERACTING)
def test_interacting_rows_are_refused(case):
    model = of_rows(INTERACTING[case])
    data = SORTED if case == "lag of the same subject" else DATA
    with pytest.raises(lowvar.UserError, match="depends on the other rows"):
        from_numpyro(model, data)


@pytest.mark.parametrize("N", [12, 6000])
def test_rows_that_are_read_by_their_place_are_told_from_lags(N):
    def model(x, y, lagged):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("data", N, subsample_size=8) as i:
            before = jnp.roll(x[i], 1).at[0].set(0.0)
            mean, observed = (b * before, y[i]) if lagged else (b * x[i], y[: len(i)])
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=observed)

    data = {"x": DATA["x"][:N], "y": DATA["y"][:N]}
    with pytest.raises(lowvar.UserError, match="by their place in the batch"):
        from_numpyro(model, {**data, "lagged": False})
    with pytest.raises(lowvar.UserError, match="a lag"):
        from_numpyro(model, {**data, "lagged": True})


def test_a_factor_of_the_batch_that_few_rows_change_is_refused():
    def model(x, y, g, rare):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("data", N, subsample_size=100) as i:
            numpyro.sample("y", dist.Normal(b * x[i], 1.0), obs=y[i])
        numpyro.factor("outside", b * rare[i].max())

    with pytest.raises(lowvar.UserError, match="outside"):
        from_numpyro(model, DATA)


def group_effects(b, r):
    return normal(b[0] * (r["g"] % 7) + b[1] * jnp.sin(r["g"]), r["y"])


INDEPENDENT = {
    "group effects": group_effects,
    "counts": lambda b, r: dist.Poisson(jnp.exp(b[0] + b[1] * r["x"])).log_prob(r["g"]),
    "heavy tails": lambda b, r: dist.StudentT(2.0, b[0] * r["x"] * 1e3, 1e-2).log_prob(r["y"]),
    "large constants": lambda b, r: normal(b[0], 1e6 + r["y"]),
    "steep": lambda b, r: -jnp.exp(3 * b[0] * r["x"] ** 2),
    "a scan": lambda b, r: jax.lax.scan(
        lambda s, t: (s * b[0] + jnp.sin(t * r["x"]), None), b[0] * r["x"], jnp.arange(5.0, dtype=b.dtype)
    )[0],
}


@pytest.mark.parametrize("case", INDEPENDENT)
def test_independent_rows_are_not_refused(case):
    from_numpyro(of_rows(INDEPENDENT[case]), DATA)


@pytest.fixture
def files(tmp_path):
    """The sorted data, memory-mapped."""
    for key, values in SORTED.items():
        np.save(tmp_path / f"{key}.npy", values)
    return {key: np.load(tmp_path / f"{key}.npy", mmap_mode="r") for key in SORTED}


@pytest.mark.parametrize("case", ["lag of the same subject", "segments"])
def test_interacting_rows_of_files_are_refused(case, files):
    def model(x, y, g, rare):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("data", x.shape[0]):
            numpyro.factor("f", INTERACTING[case](b, {"x": x, "y": y, "g": g, "rare": rare}))

    with pytest.raises(lowvar.UserError, match="rows"):
        problem_of(model, files, streams=True)


@pytest.mark.parametrize("case", ["centred", "choice", "effects"])
def test_rows_of_a_torch_model(case):
    torch = pytest.importorskip("torch")
    x, y, g = (torch.as_tensor(np.array(DATA[key])) for key in ("x", "y", "g"))

    def shared(index):
        return g[index][:, None] == g[index][None, :]

    def centred(z, index):
        mean = (shared(index) * x[index]).sum(1) / shared(index).sum(1)
        return -0.5 * (y[index] - z[0] - z[1] * (x[index] - mean)) ** 2

    def choice(z, index):
        return z[0] * x[index] - torch.log((shared(index) * torch.exp(z[0] * x[index])).sum(1))

    def effects(z, index):
        return -0.5 * (y[index] - z[g[index] % 2] * x[index]) ** 2

    likelihood = {"centred": centred, "choice": choice, "effects": effects}[case]
    model = lowvar.TorchModel(likelihood, lambda z: -0.5 * (z**2).sum(), N, 2)
    refused = pytest.raises(lowvar.UserError, match="depends on the other rows")
    with contextlib.nullcontext() if case == "effects" else refused:
        model.problem()


def test_interacting_rows_of_a_pyro_model_are_refused():
    torch, pyro = pytest.importorskip("torch"), pytest.importorskip("pyro")
    import pyro.distributions as pd

    def model(x, y, g):
        b = pyro.sample("b", pd.Normal(0.0, 1.0))
        with pyro.plate("data", len(x), subsample_size=100) as i:
            shared = (g[i][:, None] == g[i][None, :]).to(x.dtype)
            pyro.sample("y", pd.Normal(b * (x[i] - shared @ x[i] / shared.sum(1)), 1.0), obs=y[i])

    data = {key: torch.as_tensor(np.array(DATA[key])) for key in ("x", "y", "g")}
    with pytest.raises(lowvar.UserError, match="depends on the other rows"):
        lowvar.TorchModel.from_pyro(model, data).problem()
