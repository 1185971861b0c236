"""The decomposition against exact values on a model whose rows and noise can be enumerated."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import independent
from lowvar.core.keys import named_key
from lowvar.core.optimizers import optimizer
from lowvar.vi import crossed as D
from lowvar.vi import decompose
from lowvar.vi.batches import Noise, reshuffled, sampler
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.numpyro.model import from_numpyro
from lowvar_studies.models.logistic_regression import problem as logistic_regression

N = 5


def make(dim=1):
    rng = np.random.default_rng(3)
    return logistic_regression({"x": rng.normal(size=(N, dim)), "y": np.array([0, 1, 1, 0, 1])})


PARAMS = {"mu": jnp.array([0.4]), "log_sigma": jnp.array([-0.3])}


def single_rows(estimator, state, eps, params=PARAMS):
    """The estimate of every row at every eps, ``(N, nodes, 2)``."""

    def one(row, eps):
        noise = Noise(row[None], jnp.ones(1), jnp.asarray(1.0), eps[None, None], jnp.asarray(0))
        g, _ = estimator.estimate(state, params, noise)
        return jnp.concatenate([g["mu"], g["log_sigma"]])

    return jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(jnp.arange(N), jnp.asarray(eps))


def exact(estimator, state):
    """``V_n, V_eps, V_int`` of a single row by enumeration of rows and Gauss-Hermite quadrature of noise."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    g = np.asarray(single_rows(estimator, state, nodes))
    mean_n = np.einsum("nsd,s->nd", g, weights)
    mean_eps = g.mean(0)
    grand = mean_n.mean(0)
    v_n = ((mean_n - grand) ** 2).mean(0)
    v_eps = np.einsum("sd,s->d", (mean_eps - grand) ** 2, weights)
    total = np.einsum("nsd,s->d", (g - grand) ** 2, weights) / N
    return np.stack([v_n, v_eps, total - v_n - v_eps])


def estimated(estimator, state, *, rows, replicates, columns=4, seed=0, cell=1):
    design = D.designs(estimator.problem, replicates=replicates, columns=columns, rows=rows, noise="iid", particles=1,
                       key=named_key(seed, "test"), cell=cell)  # fmt: skip
    return D.decomposer({"one": estimator}, all_rows=rows is None)({"one": state}, PARAMS, *design)["one"]


@pytest.mark.parametrize(
    ("name", "rows", "cell"),
    [
        ("joint", 9, 2),
        *(pytest.param(*one, marks=pytest.mark.long) for one in (("cv", None, 1), ("stl", None, 2), ("naive", 3, 1))),
    ],
)
def test_components_are_unbiased(name, rows, cell):
    """At each size of cells; all 5 rows in cells of 2 leave a cell of 1."""
    p = make()
    estimator = GRADIENT.get(name)(p, reshuffled(N, 2))
    draw = sampler(reshuffled(N, 2), independent(), 1, np.float64)
    solver = descend(estimator, draw, optimizer("sgd", 0.01, backends.get("jax")))
    state = solver.init({"mu": jnp.array([0.1]), "log_sigma": jnp.array([-0.6])})
    step = jax.jit(lambda state, key: solver.epoch(state, draw.epoch(key)))
    for epoch in range(2):
        state = step(state, jax.random.key(epoch))
    state = state.estimator
    truth = exact(estimator, state)
    found = estimated(estimator, state, rows=rows, replicates=20_000, cell=cell)
    mean, error = found.mean(0), found.std(0, ddof=1) / np.sqrt(len(found))
    report = f"\nmean\n{mean}\nexact\n{truth}\nSE\n{error}"
    assert (np.abs(mean - truth) < 5 * error + 1e-9 * truth.sum(0)).all(), report
    assert (error < 0.03 * truth.sum(0)).all(), f"no power:{report}"


@pytest.mark.long
def test_intervals_over_runs_cover():
    """With five runs, 95 % intervals cover the mean variance at the ends of runs; those of one run's designs do not."""
    from lowvar.vi.run.engine import follow
    from lowvar.vi.run.settings import Method, Settings
    from lowvar_studies.jobs.variational.spec import DecompositionSpec

    p, groups, batch = make(), 200, 2
    solver = Settings(step_sizes=(0.01,), batch_size=batch, epochs=60, repetitions=5 * groups)
    spec = DecompositionSpec(
        leader="naive", step_size=0.01, epochs=60, repetitions=5 * groups, replicates=4, columns=32
    )
    runs, parts = follow(p, {"naive": Method("naive")}, "naive", solver, seed=1, name="p")
    found = D.along_run(runs, parts, moments=[60], spec=spec, seed=1, name="p")
    found = found[found["block"] == "all"]
    ends = runs.params(runs.advance(runs.init(), 0, 60), {})
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)

    weights = weights / weights.sum()
    at_ends = jax.jit(jax.vmap(lambda params: single_rows(parts["naive"], (), nodes, params)))
    g = np.asarray(at_ends({block: value[0] for block, value in ends.items()}))  # (runs, rows, nodes, 2)
    grand = np.einsum("rnsd,s->rd", g, weights) / N
    v_n = ((np.einsum("rnsd,s->rnd", g, weights) - grand[:, None]) ** 2).mean(1).sum(-1)
    v_eps = np.einsum("rsd,s->r", (g.mean(1) - grand[:, None]) ** 2, weights)
    total = np.einsum("rnsd,s->r", (g - grand[:, None, None]) ** 2, weights) / N
    exact_ends = v_n / batch + v_eps + (total - v_n - v_eps) / batch
    truth, spread = exact_ends.mean(), exact_ends.std() / exact_ends.mean()
    over_runs, over_designs = (
        [D.table(found[found["run"].isin(some)], batch).set_index("source").loc["total"] for some in groups_of]
        for groups_of in (np.arange(5 * groups).reshape(groups, 5), np.arange(groups)[:, None])
    )
    report = f"spread of the exact variance over ends {spread:.3f}"
    assert spread > 0.1, report
    assert {(one["runs"], one["replicates"]) for one in over_runs} == {(5, 4)}
    covered = [np.mean([one["low"] <= truth <= one["high"] for one in some]) for some in (over_runs, over_designs)]
    assert 0.9 <= covered[0] <= 0.985, f"{covered}; {report}"
    assert covered[1] < 0.88, f"{covered}; {report}"


def test_table_and_shares():
    p = make()
    found = {"naive": estimated(GRADIENT.get("naive")(p, None), (), rows=None, replicates=50)}
    table = D.table(D.samples(p, found), batch_size=2).set_index(["block", "source"])
    for block in ("all", "mu", "log_sigma"):
        parts = table.loc[block].loc[list(D.SOURCES)]
        assert parts["variance"].sum() == pytest.approx(table.loc[(block, "total"), "variance"])
        assert parts["share"].sum() == pytest.approx(1)
    assert table.loc[("mu", "total"), "variance"] + table.loc[("log_sigma", "total"), "variance"] == pytest.approx(
        table.loc[("all", "total"), "variance"]
    )
    assert (table["low"] < table["variance"]).all()
    assert (table["variance"] < table["high"]).all()


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_error_is_no_variance(dtype):
    """At the exact posterior `stl` has none: what is left differs from processor to processor."""
    from lowvar.vi.report import summary

    y = np.full(20, 0.7, dtype)

    def model(y, batch_size=None):
        m = numpyro.sample("m", dist.Normal(jnp.asarray(0.0, dtype), 1))
        with numpyro.plate("rows", 20, subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(m, 1), obs=y[index])

    with jax.enable_x64(dtype == "float64"):
        p = from_numpyro(model, {"y": y})
        assert p.dtype == dtype
        posterior = {"mu": jnp.full(1, y.sum() / 21, dtype), "log_sigma": jnp.full(1, -0.5 * np.log(21), dtype)}
        design = D.designs(p, replicates=4, columns=5, rows=None, noise="iid", particles=1, key=jax.random.key(0))
        both = {name: GRADIENT.get(name)(p, None) for name in ("naive", "stl")}
        found = D.decomposer(both, all_rows=True)(dict.fromkeys(both, ()), posterior, *design)
        with pytest.MonkeyPatch.context() as patch:  # one by one, where a chunk of both would be too large
            patch.setattr(D, "_VALUES", 1)
            apart = D.decomposer(both, all_rows=True)(dict.fromkeys(both, ()), posterior, *design)
        spread = found["naive"].max()
        for name, values in found.items():
            np.testing.assert_allclose(values, apart[name], atol=1e3 * jnp.finfo(dtype).eps * spread, err_msg=name)
    table = D.table(D.samples(p, found), batch_size=2)
    assert (table[table["method"] == "stl"]["variance"] == 0).all()
    worth, table = {"naive": (1.0, 1.0, 1.0), "stl": (0.0, np.nan, np.nan)}, table.assign(memory="")
    text = summary(table, {"naive": 1.0, "stl": 1.0}, "a model", {}, {}, worth)
    assert "The variance of `stl` cannot be told from zero" in text
    for beyond in (np.nan, np.inf):  # which tells nothing of rounding
        kept = D.samples(p, {"naive": beyond + found["naive"], "stl": found["stl"]}).set_index(["method", "block"])
        assert not np.isfinite(kept.loc[("naive", "all"), "monte_carlo"]).any()
        np.testing.assert_array_equal(kept.loc[("stl", "all"), "monte_carlo"], found["stl"][:, 1].sum(-1, dtype=float))


def test_variance_x_time_and_its_interval():
    """Designs that two estimators share leave no error of a constant ratio; rounds of timings do."""
    designs = 10.0 + np.arange(8.0)
    parts = {"subsampling": designs, "monte_carlo": 0 * designs, "interaction": 0 * designs}
    samples = pd.concat(
        pd.DataFrame({"method": method, "block": "all", "run": 0, "replicate": range(8)}).assign(
            **{source: scale * value for source, value in parts.items()}
        )
        for method, scale in {"naive": 1.0, "joint": 0.25}.items()
    )
    times = {"naive": np.ones(5), "joint": np.full(5, 2.0)}
    found = D.worth(samples, times, {}, batch_size=1, rows=100)
    assert found["joint"] == pytest.approx((0.5, 0.5, 0.5))
    spread = {**times, "joint": 2.0 * np.exp([-0.2, -0.1, 0.0, 0.1, 0.2])}
    _, low, high = D.worth(samples, spread, {}, batch_size=1, rows=100)["joint"]
    half = 2.776 * np.std([-0.2, -0.1, 0.0, 0.1, 0.2], ddof=1) / np.sqrt(5)  # 2.776: t with 4 degrees of freedom
    assert (low, high) == pytest.approx((0.5 * np.exp(-half), 0.5 * np.exp(half)), rel=1e-3)
    carried = D.worth(samples, times, {"joint": 0.75 * designs.mean()}, batch_size=1, rows=100)["joint"]
    assert carried[0] == pytest.approx(2.0)


@pytest.mark.parametrize(("spread", "rounds"), [(0.0, 3), (0.5, 7)])
def test_times_are_taken_again_until_they_agree(spread, rounds, monkeypatch):
    p = make()
    now = 0.0

    def epochs(solvers, sampler, key, params):
        def of(k):
            turns = iter(range(100))

            def epoch():
                nonlocal now
                now += 1 + k + spread * (next(turns) % 2) * k

            return epoch

        return {name: of(k) for k, name in enumerate(solvers)}

    monkeypatch.setattr(decompose, "time", SimpleNamespace(process_time=lambda: now, perf_counter=None))
    monkeypatch.setattr(decompose.engines, "epochs_of", lambda problem: SimpleNamespace(one_epoch=epochs))
    parts = {name: GRADIENT.get(name)(p, reshuffled(p.N, 5)) for name in ("naive", "stl")}
    drawn = sampler(reshuffled(p.N, 5), independent(1), p.dim)
    runs = SimpleNamespace(problem=p, sampler=drawn, keys=[named_key(0)],
                           at=lambda step: SimpleNamespace(optimizer=optimizer("sgd", step, p.backend)))  # fmt: skip
    times = decompose._times(runs, parts, dict.fromkeys(parts), {"mu": np.zeros(p.dim)})
    assert [len(times[name]) for name in parts] == [rounds, rounds]
    assert times["stl"].min() == 2
