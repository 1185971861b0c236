"""The error that the optimisation leaves: the average of the iterates, and the estimated distance from the optimum."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import lowvar
from lowvar.errors import UserError

N, NOISE = 300, 2.0
SETTINGS = {"progress": False, "batch_size": 100}


def linear(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, NOISE), obs=None if y is None else y[i])


def two_means(y=None, batch_size=None):
    """Rows with latent variables of their own, and a shared one."""
    centre = numpyro.sample("centre", dist.Normal(0, 3.0))
    with numpyro.plate("data", 200, subsample_size=batch_size) as i:
        effect = numpyro.sample("effect", dist.Normal(centre, 1.0))
        numpyro.sample("y", dist.Normal(effect, 0.5), obs=None if y is None else y[i])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 6))
    x[:, 5] += 0.7 * x[:, 4]
    return {"x": x, "y": x @ rng.normal(size=6) + NOISE * rng.normal(size=N)}


@pytest.fixture(scope="module")
def best(data):
    """Mean and standard deviations of the best mean-field guide, in closed form."""
    precision = np.eye(6) + data["x"].T @ data["x"] / NOISE**2
    return np.linalg.solve(precision, data["x"].T @ data["y"]) / NOISE**2, np.diag(precision) ** -0.5


def errors(fit, best):
    """The relative errors of the standard deviations, and those of the means in standard deviations."""
    return fit.params["w_auto_scale"] / best[1] - 1, (fit.params["w_auto_loc"] - best[0]) / best[1]


def rms(value):
    return float(np.sqrt(np.mean(np.square(value))))


def test_an_average_is_closer_to_the_optimum(data, best):
    off = {}
    for average in (False, None):
        same = {"average": average, "estimator": "naive", "num_steps": 1000, "khat_samples": 0, **SETTINGS}
        runs = [errors(lowvar.fit(linear, data, seed=seed, **same), best) for seed in range(4)]
        off[average] = [rms(part) for part in zip(*runs, strict=True)]
    assert off[None][0] < 0.85 * off[False][0]  # standard deviations
    assert off[None][1] < 0.5 * off[False][1]  # means


@pytest.mark.parametrize(("guide", "steps"), [("mean_field", 600), ("full_rank", 2000)])
def test_the_distance_from_the_optimum_is_known(data, best, guide, steps):
    """For guides with correlations to first order: they must be about right."""
    fit = lowvar.fit(linear, data, estimator="naive", num_steps=steps, average=False, guide=guide, **SETTINGS)
    sd = errors(fit, best)[0] if guide == "mean_field" else None
    if sd is None:
        precision = np.eye(6) + data["x"].T @ data["x"] / NOISE**2
        sd = np.asarray(fit.problem.guide.scale(fit.guide_params)) / np.sqrt(np.diag(np.linalg.inv(precision))) - 1
    assert rms(sd) > 0.02  # there is something to see
    assert (np.abs(fit.optimum.sd - sd) < 5 * fit.optimum.sd_se + 0.2 * np.abs(sd)).all()
    assert guide != "mean_field" or abs(fit.optimum.sd @ sd / (sd @ sd) - 1) < 0.25
    table = fit.summary()
    assert (table["opt_sd"] >= 0.99 * np.abs(fit.optimum.sd) * table["sd"]).all()


@pytest.mark.parametrize(("slope", "told"), [(0.3, False), (0.8, True)])
def test_correlations_that_make_a_mean_field_guide_too_narrow_are_told(slope, told):
    """The posterior's correlations are up to 0.3 and 0.6: standard deviations lack 4 and 22 %."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 3))
    x[:, 2] += slope * x[:, 1]
    given = {"x": x, "y": x @ rng.normal(size=3) + NOISE * rng.normal(size=N)}

    def three(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("data", N, subsample_size=100) as i:
            numpyro.sample("y", dist.Normal(x[i] @ w, NOISE), obs=y[i])

    fit = lowvar.fit(three, given, num_steps=2000, **SETTINGS)
    exact = np.sqrt(np.diag(np.linalg.inv(np.eye(3) + x.T @ x / NOISE**2)))
    lacking = (exact / fit.params["w_auto_scale"]).max()
    assert (lacking > 1.2) == told  # of the fit itself
    assert any("deviation of w is" in note or "k-hat" in note for note in fit.notes) == told


@pytest.mark.parametrize("seed", range(3, 7))
def test_crossed_effects_whose_level_is_far_too_narrow_are_told(seed):
    """Its standard deviation is a third of the posterior's, and so uncertain that the ratio alone would not be told."""
    rng = np.random.default_rng(0)
    i, j = rng.integers(5, size=20), rng.integers(4, size=20)
    u, v = rng.normal(size=5), rng.normal(size=4)

    def crossed(y):
        level = numpyro.sample("level", dist.Normal(0, 10))
        with numpyro.plate("rows", 5):
            row = numpyro.sample("row", dist.Normal(0, 1))
        with numpyro.plate("columns", 4):
            column = numpyro.sample("column", dist.Normal(0, 1))
        with numpyro.plate("data", 20):
            numpyro.sample("y", dist.Normal(level + row[i] + column[j], 1.5), obs=y)

    y = 1 + u[i] + v[j] + 1.5 * rng.normal(size=20)
    fit = lowvar.fit(crossed, {"y": y}, seed=seed, khat_samples=1000, progress=False)
    assert any("k-hat" in note or "deviation of level is" in note for note in fit.notes)


@pytest.mark.long
def test_standard_deviations_that_have_not_converged_are_told(data):
    """Those of a fit to half of the rows are 1.4 times as large, which k-hat does not see."""
    half = lowvar.fit(linear, {name: of[: N // 2] for name, of in data.items()}, num_steps=1500, **SETTINGS)
    assert not any("num_steps" in note for note in half.notes)
    still = lowvar.fit(linear, data, num_steps=60, step_size=1e-4, init=half, **SETTINGS)
    assert still.khat < 0.7
    assert any("num_steps" in note and " w " in note for note in still.notes)


def test_far_from_the_optimum_its_distance_is_not_stated():
    """The curvature of a group's effects is that at scales which have still far to go."""
    rng = np.random.default_rng(0)
    g = np.arange(600) % 30

    def groups(y):
        mean, scale = numpyro.sample("m", dist.Normal(0, 10)), numpyro.sample("t", dist.HalfNormal(3))
        noise = numpyro.sample("s", dist.HalfNormal(3))
        with numpyro.plate("groups", 30):
            e = numpyro.sample("e", dist.Normal(mean, scale))
        with numpyro.plate("data", 600, subsample_size=100) as i:
            numpyro.sample("y", dist.Normal(e[jnp.asarray(g)[i]], noise), obs=y[i])

    y = (3 + 1.5 * rng.normal(size=30))[g] + 2 * rng.normal(size=600)
    fit = lowvar.fit(groups, {"y": y}, num_steps=300, **SETTINGS)
    assert fit.optimum is None
    assert fit.summary()["opt_sd"].isna().all()
    assert any("num_steps" in note for note in fit.notes)


def test_weights_that_hardly_vary_cast_no_doubt():
    """The shape of their tail, k-hat, is near 1 all the same; standard deviations are within 5 % of the exact ones."""
    y = 5.0 + 3.0 * np.random.default_rng(0).normal(size=60)

    def normal(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
        scale = numpyro.sample("scale", dist.HalfNormal(10.0))
        with numpyro.plate("data", len(y)) as i:
            numpyro.sample("y", dist.Normal(mu, scale), obs=y[i])

    fit = lowvar.fit(normal, {"y": y}, num_steps=3000, progress=False)
    assert fit.khat > 0.7
    assert not fit.notes


def test_a_large_khat_names_first_what_is_right():
    """Of the scale of eight schools, no standard deviation of a normal is."""
    given = {"y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), "error": np.array([15.0, 10, 16, 11, 9, 11, 10, 18])}

    def schools(y, error):
        centre, scale = numpyro.sample("centre", dist.Normal(0, 5)), numpyro.sample("scale", dist.HalfCauchy(5))
        with numpyro.plate("schools", 8):
            numpyro.sample("y", dist.Normal(numpyro.sample("effect", dist.Normal(centre, scale)), error), obs=y)

    fit = lowvar.fit(schools, given, progress=False)
    for one in (fit, fit.with_linear_response()):
        (note,) = (note for note in one.notes if "k-hat" in note)
        assert "NUTS" in note.split(". ")[0]


@pytest.mark.long
def test_where_iterates_are_averaged(data):
    def averaged(**settings):
        return lowvar.fit(linear, data, num_steps=20, khat_samples=0, **SETTINGS | settings).run.settings.average

    assert averaged()
    for own in ({"optimizer": optax.adam(0.01)}, {"schedule": {"kind": "cosine", "beta": 0.5, "r": 20}}):
        assert not averaged(**own)
    assert averaged(optimizer=optax.adam(0.01), average=True)
    with pytest.raises(UserError, match="average"):
        averaged(average="yes")


def test_the_last_iterate_is_the_result_where_it_is_better(data):
    """On the way to the optimum, an average lies behind."""
    same = {"num_steps": 30, "khat_samples": 0, **SETTINGS}
    one, other = lowvar.fit(linear, data, **same), lowvar.fit(linear, data, average=False, **same)
    np.testing.assert_array_equal(one.params["w_auto_loc"], other.params["w_auto_loc"])
    assert one.elbo.equals(other.elbo)


def test_rows_own_variables_are_averaged_by_their_visits():
    y = 1 + np.random.default_rng(1).normal(size=200)
    exact = 1 / np.sqrt(1 + 1 / 0.5**2)
    off = {}
    for average in (False, None):
        fit = lowvar.fit(two_means, {"y": y}, num_steps=2000, khat_samples=0, average=average, **SETTINGS)
        off[average] = rms(np.log(fit.params["effect_auto_scale"] / exact))
    assert off[None] < 0.6 * off[False]
