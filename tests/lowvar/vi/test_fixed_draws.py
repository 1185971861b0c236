"""``fit`` at fixed draws: the objective by its formula, optima that are known, and how such a fit ends."""

import signal
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.optimize
import torch

import lowvar
from lowvar.core.keys import named_key
from lowvar.vi import judgement
from lowvar.vi.fit import fit_of
from lowvar.vi.run import fixed_draws
from lowvar.vi.settings import problem_of, start_of
from lowvar.vi.summary import summary


def line(x, y, noise=1.0):
    """A normal posterior: a linear model with known noise."""
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, noise), obs=y[i])


def counts(y):
    """One latent variable, with a posterior that is not normal."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y[i])


def lines(N, d, scale=1.0):
    rng = np.random.default_rng(N + d)
    x = rng.normal(size=(N, d)) * scale
    return {"x": x, "y": x @ rng.normal(size=d) / scale + rng.normal(size=N)}


def best(x, prior=2.0):
    """The means' precision matrix, and the standard deviations of the best mean-field guide."""
    precision = x.T @ x + np.eye(x.shape[1]) / prior**2
    return precision, 1 / np.sqrt(np.diag(precision))


def quiet(model, data=None, **settings) -> Any:
    return lowvar.fit(model, data, progress=False, **settings)


@pytest.mark.parametrize(("draws", "dim"), [(8, 20), (8, 4), (128, 50), (512, 256)])
def test_draws_have_the_moments_of_a_normal_distribution(draws, dim):
    eps = fixed_draws.matched_draws(named_key(0, "draws"), draws, dim)
    assert eps.shape == (draws, dim)
    assert np.array_equal(eps[: draws // 2], -eps[draws // 2 :])
    second = eps.T @ eps / draws
    np.testing.assert_allclose(np.diag(second) if draws // 2 < dim else second, 1 if draws // 2 < dim else np.eye(dim),
                               atol=1e-12)  # fmt: skip


@pytest.mark.parametrize("N", [50, 40_000])
def test_objective_is_its_formula(N):
    data = lines(N, 3)
    with jax.enable_x64(True):
        problem = problem_of(line, data, **start_of(line, None, 0))
        objective = fixed_draws.Objective(problem, named_key(0, "rows"))
        mu, log_sigma, *eps = np.random.default_rng(1).normal(size=(18, 3))
        eps = np.array(eps)
        objective.center(np.zeros(3))
        value, *slopes = objective(mu, log_sigma, eps, len(objective.blocks))
        part = objective(mu, log_sigma, eps, 1)[0]
    z = mu + np.exp(log_sigma) * eps
    x, y = data["x"], data["y"]
    energy = ((y - z @ x.T) ** 2).sum(1) / 2 + (z**2).sum(1) / 8 - (y**2).sum() / 2
    gradient = (z @ x.T - y) @ x + z / 4
    assert value == pytest.approx(energy.mean() - log_sigma.sum(), rel=1e-9)
    np.testing.assert_allclose(slopes[0], gradient.mean(0), rtol=1e-9)
    np.testing.assert_allclose(slopes[1], (gradient * eps).mean(0) * np.exp(log_sigma) - 1, rtol=1e-9)
    index = np.asarray(objective.blocks[0][0])[np.asarray(objective.blocks[0][1]) > 0]
    some = ((y[index] - z @ x[index].T) ** 2).sum(1) / 2 - (y[index] ** 2).sum() / 2
    assert len(set(index.tolist())) == len(index) == min(N, 16 * 1024, len(index))
    share = N / len(index) * some + (z**2).sum(1) / 8
    assert part == pytest.approx(share.mean() - log_sigma.sum(), rel=1e-9)


@pytest.mark.parametrize(("N", "d", "scale"), [(200, 5, 1.0), (200, 5, 1e3), (30_000, 4, 1e-2), (600, 300, 1.0)])
def test_of_a_normal_posterior_it_is_exact_in_any_unit(N, d, scale):
    data = lines(N, d, scale)
    fit = quiet(line, data)
    assert fit.run is None
    assert fit.fixed.ended == "converged"
    assert fit.fixed.iterations < 200
    precision, sd = best(data["x"])
    mean = np.linalg.solve(precision, data["x"].T @ data["y"])
    np.testing.assert_allclose(np.exp(fit.guide_params["log_sigma"]) / sd, 1, atol=0.01)
    off = fit.guide_params["mu"] - mean
    assert off @ precision @ off / d < 0.02**2  # in squared standard deviations of the posterior


def optimum_of(y):
    """Mean and log standard deviation of the best normal guide of ``counts``, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def negative_elbo(at):
        z = at[0] + np.exp(at[1]) * nodes
        return weights @ (len(y) * np.exp(z) - y.sum() * z + z**2 / 2) / weights.sum() - at[1]

    return scipy.optimize.minimize(negative_elbo, np.zeros(2), tol=1e-12).x


@pytest.mark.parametrize("seed", range(3))
def test_of_another_posterior_it_is_the_optimum_by_quadrature(seed):
    y = np.array([0, 1, 0, 2])
    mean, log_sd = optimum_of(y)
    fit = quiet(counts, {"y": y}, seed=seed)
    assert fit.guide_params["log_sigma"][0] == pytest.approx(log_sd, abs=0.015)  # 0.011 at most in 60 seeds
    assert fit.guide_params["mu"][0] == pytest.approx(mean, abs=0.02 * np.exp(log_sd))


EXPOSURE, MANY = 5000, 20_000


def rare_counts(y):
    """Few counts in many rows: skewed posteriors."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([y.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(z)[None] / EXPOSURE).to_event(1), obs=y[i])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dim", [1, 20])
def test_many_rows_of_a_skewed_posterior(dim, seed):
    y = np.zeros((MANY, dim), int)
    y[[5, 700, 12_000]] = 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def negative_elbo(at):
        z = at[0] + np.exp(at[1]) * nodes
        return weights @ (MANY / EXPOSURE * np.exp(z) - 3 * z + z**2 / 2) / weights.sum() - at[1]

    mean, log_sd = scipy.optimize.minimize(negative_elbo, np.zeros(2), tol=1e-12).x
    fit = quiet(rare_counts, {"y": y}, seed=seed, khat_samples=0)
    assert fit.fixed.ended == "converged"
    assert fit.fixed.draws >= 128  # in few coordinates, 32 draws and as many fresh ones may agree and be wrong
    assert np.sqrt(np.mean((fit.guide_params["log_sigma"] - log_sd) ** 2)) < 0.015
    np.testing.assert_allclose(fit.guide_params["mu"], mean, atol=0.02 * np.exp(log_sd))


def test_many_rows_of_a_normal_posterior_take_as_many_pairs_as_coordinates():
    data = lines(MANY, 20)
    fit = quiet(line, data, khat_samples=0)
    assert fit.fixed.ended == "converged"
    assert fit.fixed.draws == 40
    assert np.abs(fit.optimum.sd).max() < 0.01
    precision, sd = best(data["x"])
    off = fit.guide_params["mu"] - np.linalg.solve(precision, data["x"].T @ data["y"])
    assert np.sqrt(off @ precision @ off / 20) < 0.02
    np.testing.assert_allclose(np.exp(fit.guide_params["log_sigma"]) / sd, 1, atol=0.01)


def test_steps_of_many_rows_have_each_row_once():
    data = lines(100_001, 3)
    problem = problem_of(line, data, **start_of(line, None, 0))
    objective = fixed_draws.Objective(problem, named_key(0, "rows"))
    blocks = [np.asarray(index)[np.asarray(weight) > 0] for index, weight in objective.blocks]
    assert np.array_equal(np.sort(np.concatenate(blocks)), np.arange(100_001))
    assert all((np.diff(block) > 0).all() for block in blocks)
    assert sum(objective.shares) == pytest.approx(1)
    assert np.ptp(blocks[0]) > 90_000 > 20_000 > np.ptp(blocks[1])


def test_a_round_near_an_optimum_begins_with_newtons_step_and_ends_where_the_gradient_does():
    """Of an independent normal posterior in its own units: one step."""
    calls, offset = [], 1e6

    def negative_elbo(x):
        calls.append(x)
        mean, log_sd = x[:4] - 5.0, x[4:] - 0.01
        value = offset + mean @ mean / 2 + (np.exp(2 * log_sd) / 2 - log_sd).sum()
        return value, np.append(mean, np.exp(2 * log_sd) - 1)

    first = negative_elbo(np.zeros(8))
    found = fixed_draws._round(negative_elbo, first, 50, lambda _: None, lambda: False, True, 1e-7)
    assert len(calls) == 2
    assert found.nit == 1
    np.testing.assert_allclose(found.x, [5.0] * 4 + [0.01] * 4, atol=0.01)
    np.testing.assert_allclose(found.jac, negative_elbo(found.x)[1], atol=1e-12)


def test_same_bytes_with_a_seed_and_the_same_optimum_with_another():
    data = lines(300, 3)
    one, again, other = (quiet(line, data, seed=seed) for seed in (0, 0, 1))
    assert all(one.guide_params[block].tobytes() == again.guide_params[block].tobytes() for block in one.guide_params)
    assert one.elbo.equals(again.elbo)
    assert one.guide_params["mu"].tobytes() != other.guide_params["mu"].tobytes()
    np.testing.assert_allclose(one.guide_params["log_sigma"], other.guide_params["log_sigma"], atol=0.01)


def test_torch_has_the_optimum_of_jax():
    data = lines(400, 3)
    x, y = (torch.as_tensor(data[name]) for name in ("x", "y"))
    twin = lowvar.TorchModel(
        lambda z, i: torch.distributions.Normal(x[i] @ z, 1.0).log_prob(y[i]),
        lambda z: torch.distributions.Normal(0.0, 2.0).log_prob(z).sum(), N=400, dim=3, dtype=torch.float64,
    )  # fmt: skip
    ours, theirs = quiet(line, data), quiet(twin)
    assert theirs.fixed.ended == "converged"
    np.testing.assert_allclose(theirs.guide_params["log_sigma"], ours.guide_params["log_sigma"], atol=0.005)
    np.testing.assert_allclose(theirs.guide_params["mu"], ours.guide_params["mu"], atol=0.002)


def rows_of_their_own(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    with numpyro.plate("rows", len(y)) as i:
        a = numpyro.sample("a", dist.Normal(mean, 1.0))
        numpyro.sample("y", dist.Normal(a, 0.5), obs=y[i])


def test_rows_with_variables_of_their_own():
    y = np.random.default_rng(2).normal(3.0, np.sqrt(1.25), size=150)
    fit = quiet(rows_of_their_own, {"y": y})
    sd = np.exp(fit.guide_params["log_sigma"])
    where = fit.problem.sites
    np.testing.assert_allclose(sd[where["a"]], 1 / np.sqrt(1 + 4), rtol=0.02)
    np.testing.assert_allclose(sd[where["mean"]], 1 / np.sqrt(150 + 1 / 25), rtol=0.02)
    assert fit.guide_params["mu"][where["mean"]][0] == pytest.approx(y.mean(), abs=0.02)


def with_param(y):
    scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
    z = numpyro.sample("z", dist.Normal(0.0, 10.0))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Normal(z, scale), obs=y[i])


def test_point_estimates_have_no_noise():
    y = np.random.default_rng(3).normal(1.0, 3.0, size=500)
    fit = quiet(with_param, {"y": y})
    assert fit.params["scale"] == pytest.approx(y.std(), rel=0.01)
    assert float(fit.params["z_auto_scale"]) == pytest.approx(y.std() / np.sqrt(500), rel=0.01)


@pytest.mark.parametrize("given", [{"num_steps": 20}, {"batch_size": 40}, {"guide": "full_rank", "num_steps": 20}])
def test_settings_of_stochastic_steps_mean_these(given):
    ends = lambda now: now.iteration > 0  # noqa: E731
    fit = lowvar.fit(line, lines(40, 2), progress=False, khat_samples=0, callback=ends, **given)
    assert fit.fixed is None
    assert fit.run is not None


@pytest.mark.parametrize(
    "given",
    [{"estimator": "naive"}, {"step_size": 0.02}, {"batch_size": 10}, {"num_particles": 2}, {"noise": "rqmc"},
     {"average": True}, {"stop": True}, {"devices": 1}, {"schedule": {"kind": "time", "beta": 0.1}},
     {"guide": "full_rank"}],
    ids=str,
)  # fmt: skip
def test_it_names_the_setting_that_it_does_not_take(given):
    named = "full_rank" if "guide" in given else next(iter(given))
    with pytest.raises(lowvar.UserError, match=named):
        lowvar.fit(line, lines(40, 2), optimizer="lbfgs", **given)


def test_many_rows_and_rows_in_files_are_left_to_stochastic_steps(monkeypatch):
    monkeypatch.setitem(fixed_draws._ROWS, "jax", 30)
    fit = lowvar.fit(line, lines(40, 2), progress=False, khat_samples=0, callback=lambda now: now.iteration > 0)
    assert fit.fixed is None
    with pytest.raises(lowvar.UserError, match="at most 30 rows"):
        lowvar.fit(line, lines(40, 2), optimizer="lbfgs")


def test_too_few_iterations_get_a_note():
    with pytest.warns(UserWarning, match="not converged"):
        fit = quiet(line, lines(400, 20), optimizer="lbfgs", num_steps=2)
    assert fit.fixed.iterations == 2
    assert fit.fixed.ended == "budget"


def bounded(y):
    """A parameter that bounds the rows' support: the log density has an edge at the largest row."""
    end = numpyro.sample("end", dist.Uniform(0.0, 10.0))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Uniform(0.0, end), obs=y[i])


def improper(y):
    """Of one row, or of equal rows, the log density rises without end."""
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    sd = numpyro.sample("sd", dist.ImproperUniform(dist.constraints.positive, (), ()))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Normal(mu, sd), obs=y[i])


@pytest.mark.parametrize(
    ("model", "y"),
    [(bounded, np.random.default_rng(5).uniform(0, 4, 20)), (improper, np.array([3.0])), (improper, np.full(5, 3.0))],
)
def test_an_edge_and_an_improper_posterior_are_no_matter_of_iterations(model, y):
    fit = quiet(model, {"y": y})
    assert fit.fixed.ended == "stuck"
    assert fit.fixed.iterations < 500
    assert "num_steps" not in fit.notes[0]
    assert "improper" in fit.notes[0]


def test_errors_of_infinite_moments_are_unknown():
    draws = {"sd": np.append(np.arange(1.0, 200.0), np.inf)}  # as of an improper posterior
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = summary(draws, None, 0.94, "hdi", {}, None, {}, None)
    assert not np.isfinite(table.loc["sd", ["mean", "sd", "mcse_mean", "mcse_sd"]].astype(float)).any()


@pytest.mark.parametrize("own", [(), ("transformation",)])
def test_a_fit_that_diverged_is_to_be_rescaled(own):
    """A fit that was given no step size may have diverged, too."""
    with pytest.raises(lowvar.UserError, match="rescale"):
        fit_of(SimpleNamespace(name="model"), {"mu": np.array([np.nan])}, None, own)


def test_a_callback_watches_and_ends_it():
    seen = []

    def watch(now):
        seen.append((now.iteration, now.elbo))
        return len(seen) == 2

    fit = quiet(line, lines(100, 3), callback=watch)
    assert fit.fixed.ended == "callback"
    assert fit.elbo["iteration"].tolist() == [at for at, _ in seen]
    assert "callback" in str(fit)
    assert seen[0][0] == 0 < seen[1][0]


def test_ctrl_c_ends_it_with_the_fit_so_far():
    calls = []

    def press(now):
        calls.append(now)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    with pytest.warns(UserWarning, match="Ctrl-C"):
        fit = quiet(line, lines(100, 3), callback=press)
    assert fit.fixed.ended == "interrupted"
    assert fit.khat is None
    assert "interrupted" in str(fit)


def test_it_is_saved_loaded_and_not_resumed(tmp_path):
    data = lines(60, 2)
    fit = quiet(line, data)
    fit.save(tmp_path / "fit.npz")
    loaded = lowvar.load(tmp_path / "fit.npz", line, data)
    assert loaded.fixed == fit.fixed
    assert str(loaded) == str(fit)
    assert loaded.run is None
    with pytest.raises(lowvar.UserError, match="resume"):
        fit.resume(10)
    on = lowvar.fit(line, data, init=fit, num_steps=50, khat_samples=0, progress=False)
    np.testing.assert_allclose(on.elbo["elbo"].iloc[0], fit.elbo["elbo"].iloc[-1], rtol=1e-5)


def steep(y):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(600 * z)), obs=y[i])


def test_wide_starts_are_narrowed_until_the_elbo_is_finite():
    y = np.random.default_rng(4).poisson(3.0, size=50)
    fit = quiet(steep, {"y": y}, init={"z": 0.0})
    assert fit.fixed.ended == "converged"
    assert fit.guide_params["mu"][0] == pytest.approx(np.log(y.mean()) / 600, abs=0.2 / 600)
    assert np.exp(fit.guide_params["log_sigma"][0]) == pytest.approx(1 / 600 / np.sqrt(y.sum()), rel=0.02)


def many_counts(y):
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([y.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Poisson(jnp.exp(z)[None]).to_event(1), obs=y[i])


def test_errors_of_standard_deviations_are_as_large_as_stated():
    y = np.random.default_rng(5).poisson(1.0, size=(4, 40))
    exact = np.array([optimum_of(column)[1] for column in y.T])
    for seed in range(3):
        fit = quiet(many_counts, {"y": y}, seed=seed)
        off = fit.guide_params["log_sigma"] - exact
        stated = fit.optimum.sd_se
        assert np.sqrt(np.mean(off**2)) < 2 * stated[0] < 0.02
        assert np.mean(np.abs(off) < 2 * stated) > 0.85


def test_a_site_of_noisy_gradients_has_an_error_of_its_own():
    """Of gradients with known errors: fifty quiet coordinates, four noisy ones and a point estimate."""
    sites = {"quiet": slice(0, 50), "noisy": slice(50, 54), "param": slice(54, 55)}
    problem = SimpleNamespace(dim=55, noiseless=np.arange(55) == 54, sites=sites)
    scale = np.where(np.arange(55) < 50, 0.01, 1.0)
    off, error = [], []
    for seed in range(200):
        slopes = scale * np.random.default_rng(seed).normal(size=(2, 55))
        found = judgement._by_gradient(problem, slopes, None)
        off.append(np.stack([found.mean, found.sd]))
        error.append(np.stack([found.mean_se, found.sd_se]))
    true, stated = (np.sqrt(np.mean(np.square(of), axis=0)) for of in (off, error))
    assert np.isnan(stated[:, 54]).all()
    np.testing.assert_allclose(stated[:, 50:54], true[:, 50:54], rtol=0.25)
    assert (stated[:, :50] > true[:, :50]).all()


def saturating(dose, y):
    """Where ``half`` or ``hill`` are extreme, ``power`` is infinite and the mean is not a number."""
    top, half = (numpyro.sample(name, dist.LogNormal(2.0, 1.0)) for name in ("top", "half"))
    base, hill = numpyro.sample("base", dist.Normal(0.0, 5.0)), numpyro.sample("hill", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("rows", len(y)) as i:
        power = jnp.exp(hill * (jnp.log(jnp.maximum(dose[i], 1e-6)) - jnp.log(half)))
        numpyro.sample("y", dist.Normal(base + top * power / (1 + power), 1.0), obs=y[i])


@pytest.mark.parametrize("seed", range(3))
def test_guides_that_reach_no_number_at_new_draws_are_narrowed(seed):
    dose = np.random.default_rng(6).choice([0.0, 1.0, 3.0, 10.0, 30.0, 100.0], 120)
    y = 2 + 8 * dose**1.4 / (12**1.4 + dose**1.4) + np.random.default_rng(7).normal(size=120)
    fit = quiet(saturating, {"dose": dose, "y": y}, seed=seed)
    assert np.isfinite(fit.elbo["elbo"].iloc[-1])
    assert fit.sample(2000)["hill"].mean() == pytest.approx(1.4, abs=0.6)


def test_iterations_that_ran_out_in_a_short_round_are_no_optimum():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(200, 30)) @ (np.eye(30) + 0.5)
    data = {"x": x, "y": x[:, 0] + rng.normal(size=200)}
    full = quiet(line, data, khat_samples=0)
    fits = [quiet(line, data, optimizer="lbfgs", num_steps=steps, khat_samples=0) for steps in (3, 20, 35)]
    assert full.fixed.ended == "converged"
    assert full.fixed.iterations > 35
    assert all(fit.fixed.ended == "budget" for fit in fits)
    assert "not converged" in fits[0].notes[-1]


def far_point(y):
    at = numpyro.param("at", 0.0)
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)) as i:
        numpyro.sample("y", dist.Normal(at + b, 1e6), obs=y[i])


def test_point_estimates_arrive_on_any_scale():
    y = 5e6 + 1e6 * np.random.default_rng(9).normal(size=100)
    fit = quiet(far_point, {"y": y})
    assert float(fit.params["at"]) == pytest.approx(y.mean(), abs=0.02 * 1e5)


def test_rows_beyond_the_first_sample_keep_their_own_variables():
    y = np.random.default_rng(10).normal(3.0, np.sqrt(1.25), size=16 * 1024 + 1)
    fit = quiet(rows_of_their_own, {"y": y}, khat_samples=0)
    assert fit.fixed is not None
    np.testing.assert_allclose(np.exp(fit.guide_params["log_sigma"])[fit.problem.sites["a"]], 1 / np.sqrt(5), rtol=0.1)
