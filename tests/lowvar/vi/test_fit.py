"""What a fit promises: its start, its steps, its estimator, its memory, and a word when it is wrong."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import init_to_median, init_to_value
from regressions import DATA, FAR, N, X, fitted, moving, regression, with_parameters

import lowvar
from lowvar.errors import UserError
from lowvar.vi.judgement import LEAST, elbo, late_rise, log_weights, spread
from lowvar.vi.numpyro.model import from_numpyro

# --- starts and steps ------------------------------------------------------------------------------------------------


def test_the_seed_moves_the_start():
    starts = [fitted(seed=seed, num_steps=1, estimator="naive").elbo["elbo"].iloc[0] for seed in (0, 1, 2)]
    assert len({round(value, 3) for value in starts}) == 3


@pytest.mark.parametrize(
    ("steps", "rows", "size"),
    [(61, 200, 100), (3, 5, 2), *(pytest.param(*one, marks=pytest.mark.long) for one in
                                  ((60, 200, 100), (7, 200, 10), (1, 5, 5)))],
)  # fmt: skip
def test_the_number_of_steps_is_exact(steps, rows, size):
    """Adam's first step is one step size in each coordinate: plain steps of +-1 are counted."""
    data = {key: value[:rows] for key, value in DATA.items()}
    found = fitted(data=data, num_steps=steps, batch_size=size, estimator="naive")
    assert found.elbo["iteration"].iloc[-1] == steps
    assert found.run.num_steps == steps
    state = found.run.kept[found.run.epochs[1]][0]
    whole = steps // -(-rows // size)
    assert int(jax.tree.leaves(state.optimizer)[0].ravel()[0]) == whole * -(-rows // size)


def test_init_by_strategy_values_and_fit():
    median, other = (
        from_numpyro(regression, DATA, init=init_to_median(num_samples=5), key=jax.random.key(seed)).start["mu"]
        for seed in (0, 1)
    )
    assert (median != other).all()
    one = {"num_steps": 1, "estimator": "naive"}
    by_value = fitted(init=init_to_value(values={"w": jnp.array([4.0, 5.0])}), **one)
    np.testing.assert_allclose(by_value.params["w_auto_loc"], [4.0, 5.0], atol=0.011)
    given = fitted(init={"scale": np.array(2.0, ">f8"), "bias": 1.0}, **one)
    assert given.problem.start["mu"][given.problem.sites["scale"]] == pytest.approx(np.log(2.0))
    assert given.params["bias_auto_loc"] == pytest.approx(1.0, abs=0.011)
    before = fitted(estimator="naive")
    warm = fitted(init=before, **one)
    assert warm.elbo["elbo"].iloc[0] == pytest.approx(before.elbo["elbo"].iloc[-1], abs=1e-6)
    np.testing.assert_allclose(warm.params["w_auto_scale"], before.params["w_auto_scale"], rtol=0.03)
    from_numpy = fitted(init=dict(before.params), **one)
    np.testing.assert_array_equal(from_numpy.params["w_auto_loc"], warm.params["w_auto_loc"])
    parameters = from_numpyro(with_parameters, DATA, init={"scale": 0.25})
    assert np.exp(parameters.start["mu"][parameters.sites["scale"]]) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("median", "init: give a strategy such as numpyro.infer.init_to_median, a dict of values by site, or a Fit"),
        ({"wieght": 1.0}, "regression: init: unknown site 'wieght'"),
        ({"w": np.zeros(3)}, "init: w has 3 entries, the model needs 2"),
        ({"scale": -1.0}, "init: scale lies outside its support, or is not finite"),
        ({"w": "x"}, "init: w is not a value of its site"),
        ({"w": [np.nan, 0.0]}, "init: w lies outside its support, or is not finite"),
        ({"scale_auto_scale": -1.0}, "init: scale_auto_scale lies outside its support"),
    ],
    ids=str,
)
def test_wrong_inits(init, message):
    with pytest.raises(UserError, match=message):
        fitted(init=init)


def test_a_start_where_the_density_is_zero_can_be_moved():
    def narrow(x, y, batch_size=None):
        low = numpyro.sample("low", dist.Normal(0, 10))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.TruncatedNormal(low, 1.0, low=low), obs=y[index])

    data = {"x": X, "y": np.abs(DATA["y"]) - 20}
    with pytest.raises(UserError, match=r"is -inf at the start; .* or start elsewhere: init"):
        fitted(narrow, data)
    assert np.isfinite(fitted(narrow, data, init={"low": -30.0}, num_steps=2).elbo["elbo"].iloc[0])


def test_the_default_needs_no_option():
    with pytest.raises(UserError, match=r"'naive_epoch'.* estimator="):
        fitted(naive_epoch=3)


# --- k-hat -----------------------------------------------------------------------------------------------------------


def correlated(rho):
    """Normal data whose likelihood correlates the two latent means."""
    factor = np.linalg.cholesky(np.linalg.inv(np.array([[1, rho], [rho, 1]])))

    def model(y, batch_size=None):
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (2,)))
        with numpyro.plate("rows", y.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal((factor.T @ z)[None, :], 10.0).to_event(1), obs=y[index])

    return model, {"y": np.random.default_rng(10).normal(size=(100, 2))}


def test_a_correlated_posterior_is_flagged():
    model, data = correlated(0.98)
    with pytest.warns(
        UserWarning, match=r"k-hat \d\.\d+ is above 0.7: a mean-field normal approximates this posterior badly"
    ):
        found = lowvar.fit(model, data, num_steps=800, batch_size=100, step_size=0.03, progress=False)
    assert 0.7 < found.khat < 1.2
    assert "k-hat" in repr(found)
    assert "NUTS" in str(found)
    assert found.params["z_auto_scale"] == pytest.approx(np.sqrt(1 - 0.98**2), rel=0.3)  # where the truth is 1


def test_an_independent_posterior_is_not():
    model, data = correlated(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = lowvar.fit(model, data, num_steps=1500, batch_size=100, step_size=0.03, progress=False)
    assert found.khat < 0.5
    assert not found.notes


def centred(group, y=None, batch_size=None, groups=12):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    effect = numpyro.sample("effect", dist.Normal(0.0, tau).expand([groups]).to_event(1))
    with numpyro.plate("rows", group.shape[0], subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(effect[group[index]], 3.0), obs=None if y is None else y[index])


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_guide_that_is_too_narrow_is_flagged_whatever_khat_is(seed):
    """Here k-hat is near 0.7, on either side; the weights themselves show the standard deviation of ``tau``.

    The next tests have the note's text, and the standard deviations by weights.
    """
    data = {"group": np.arange(24) % 12, "y": 3.0 * np.random.default_rng(seed).normal(size=24)}
    with pytest.warns(
        UserWarning, match=r"k-hat \d|by importance weights, the standard deviation of tau is 1\.\d times the guide's"
    ):
        lowvar.fit(centred, data, num_steps=3000, seed=seed, progress=False)


def test_the_notes_of_guides_that_are_too_narrow_and_too_wide():
    """With a standard deviation of 1 / 1.6, weights have k-hat 1 - 1 / 1.6^2 = 0.61, which is not flagged."""

    def model(y, batch_size=None):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
        with numpyro.plate("rows", y.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(0.0 * z[0], 1.0), obs=y[index])

    narrow = r"deviation of z is 1\.[56] times the guide's: a mean-field guide is too narrow where .*Check the intervals against NUTS, or"
    for scale, message in ((1 / 1.6, narrow), (2.0, r"not converged: .* z is (9\d|10\d)% above")):
        start = {"z_auto_loc": np.zeros(1), "z_auto_scale": np.full(1, scale)}
        data, few = {"y": np.zeros(2)}, {"num_steps": 1, "step_size": 1e-9}
        found = fitted(model, data, init=start, khat_samples=10_000, seed=3, **few)
        assert found.khat < 0.7
        assert re.search(message, "".join(found.notes)), found.notes


def test_importance_weights_give_the_posteriors_standard_deviations():
    z = np.random.default_rng(0).normal(size=(200_000, 2))
    ratio = -0.5 * (z[:, 0] / 1.3) ** 2 + 0.5 * z[:, 0] ** 2  # the first coordinate is 1.3 times as wide
    np.testing.assert_allclose(spread(ratio + 700, z), [1.3, 1.0], rtol=0.02)


def test_draws_give_the_elbo_and_the_importance_weights():
    """As by the problem's own passes over all rows; any number of draws at a time."""
    problem = lowvar.problem(regression, DATA)
    params = {block: jnp.asarray(value) for block, value in problem.start.items()}
    eps = jax.random.normal(jax.random.key(3), (30, problem.dim), problem.dtype)
    np.testing.assert_allclose(elbo(problem)(params, eps), jax.jit(problem.elbo)(params, eps), rtol=1e-5)

    @jax.jit
    @jax.vmap
    def one(eps):
        return -problem.full_energy(problem.guide.transform(params, eps)) - problem.guide.log_density(params, eps)

    exact = one(eps)
    for together in (None, 7):
        off = log_weights(problem, params, eps, together) - np.asarray(exact)
        np.testing.assert_allclose(off, off[0], rtol=1e-5)


@pytest.mark.long
def test_with_all_rows_in_a_batch_the_default_needs_no_full_pass():
    from lowvar.core.gaussian import GAUSSIAN
    from lowvar.vi.batches import reshuffled, sampler
    from lowvar.vi.estimators import GRADIENT

    with jax.enable_x64(True):
        problem, batches = from_numpyro(moving, FAR), reshuffled(N, N)
        noise = sampler(batches, GAUSSIAN["iid"](1), problem.noise_dim, problem.dtype)
        found = []
        for estimator in (GRADIENT.get("joint_adaptive")(problem, batches), GRADIENT.get("joint_adaptive")(problem)):
            params = {block: jnp.asarray(value) for block, value in problem.start.items()}

            def step(carried, key, estimator=estimator):
                params, state = carried
                one = jax.tree.map(lambda leaf: leaf[0], noise.epoch(key))
                gradient, state = estimator.estimate(estimator.begin_epoch(state, params), params, one)
                params = {block: params[block] - 0.01 * gradient[block] for block in params}
                return (params, state), jnp.concatenate([gradient[block] for block in ("mu", "log_sigma")])

            keys = jax.random.split(jax.random.key(0), 5)
            found.append(jax.jit(jax.lax.scan, static_argnums=0)(step, (params, estimator.init(params)), keys)[1])
            assert estimator.properties.full_passes == len(found) - 1  # 0 and 1
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


def test_a_fit_that_is_too_short_says_so():
    with pytest.warns(
        UserWarning, match=r"has not converged: the ELBO still rose by .* of the steps; increase num_steps"
    ):
        lowvar.fit(regression, DATA, num_steps=30, khat_samples=0, elbo_samples=20, progress=False)


def test_a_fit_of_an_epoch_says_that_convergence_was_not_seen():
    short = fitted(num_steps=1, step_size=0.1)
    assert "whether the fit has converged cannot be told from so few steps (1), in which the ELBO rose by" in str(short)


@pytest.mark.parametrize("num_steps", [25, pytest.param(50, marks=pytest.mark.long)])  # half an epoch and a whole one
def test_convergence_of_a_fit_of_an_epoch_or_less_is_seen(num_steps):
    short = fitted(num_steps=num_steps, batch_size=4, step_size=0.05, elbo_samples=300)
    assert short.run.method.estimator == "naive"  # nothing could be remembered
    assert short.elbo["iteration"].tolist() == [0, int(0.85 * num_steps), num_steps]
    only = ", which visited 50 % of the rows;" if num_steps == 25 else " of the steps;"
    assert "has not converged: the ELBO still rose by" in str(short)
    assert only in str(short)
    still = fitted(num_steps=num_steps, batch_size=4, step_size=1e-7)
    told = "converged cannot be told: it visited 50 % of the rows; in the last 1[56] % of the steps the ELBO changed by [+-]"
    assert bool(re.search(told, str(still))) == (num_steps == 25)
    assert "has not converged" not in str(still)
    # the ELBO there is that of the fit that ends there, with the same noise
    at = int(short.elbo["iteration"][1])
    until = fitted(num_steps=at, batch_size=4, step_size=0.05, elbo_samples=300)
    assert until.elbo["elbo"].iloc[-1] == short.elbo["elbo"][1]


@pytest.mark.long
def test_a_long_fall_of_the_step_size_is_no_lack_of_convergence():
    """Before it, the ELBO still rose; at its end, the gradient tells that it has arrived, without k-hat.

    ``test_fit_life.py`` measures such a rise on a trace.
    """
    falling = {"kind": "cosine", "beta": 0.95, "r": 3000}
    long = fitted(num_steps=3000, schedule=falling, khat_samples=0, step_size=0.02)
    rise, _ = late_rise(long.elbo[long.elbo["iteration"] <= 150])
    assert rise > 3
    assert not long.notes
    short = fitted(num_steps=60, schedule=falling | {"r": 60}, khat_samples=0, step_size=0.02)
    assert "the fit has not converged" in str(short)


def test_what_a_large_khat_may_come_from():
    """Long steps are not put down to the guide's family; neither is a short fit, in the next test."""
    many = {"x": np.repeat(X, 20, axis=0), "y": np.repeat(DATA["y"], 20)}
    jumping = fitted(data=many, step_size=0.2, num_steps=1000, khat_samples=300, estimator="naive")
    assert jumping.khat > 0.7
    assert "the step size 0.2 is not small relative to the smallest standard deviation" in str(jumping)


def test_point_estimates_are_no_dimensions_of_khat():
    def model(x, y, batch_size=None):
        shift = numpyro.param("shift", jnp.zeros(50))
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(shift.sum() + x[index] @ w, 0.5), obs=y[index])

    short = fitted(model, num_steps=30, khat_samples=300, estimator="naive")
    assert short.khat > 0.7
    assert "k-hat says little before convergence: increase num_steps first" in str(short)
    assert "small misfits add up" not in str(short)
    assert repr(short).startswith("Fit(model, dim 2: ELBO")


def test_too_few_draws_for_khat():
    with pytest.raises(UserError, match="khat_samples 5: k-hat needs at least 200; 0 skips it"):
        fitted(khat_samples=5)


def test_khat_has_a_price_limit(monkeypatch):
    from lowvar.vi import judgement

    monkeypatch.setattr(judgement, "_KHAT_BUDGET", 100 * N)
    found = fitted(khat_samples=None, estimator="naive")
    assert found.khat is None
    assert "k-hat was not computed: each draw is a pass over all rows; set khat_samples" in str(found)
    assert "k-hat was not computed: khat_samples is 0" in str(fitted(estimator="naive"))
    assert fitted(khat_samples=LEAST, estimator="naive").khat is not None


@pytest.mark.parametrize(("width", "rows"), [(1, 30), (199, 30), (2000, 300)])
def test_a_wide_row_counts_for_several_in_a_pass(width, rows):
    from lowvar.vi.numpyro.model import from_numpyro

    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([width]).to_event(1))
        with numpyro.plate("data", 30) as i:
            numpyro.sample("y", dist.Normal(x[i] @ w, 1), obs=y[i])

    assert from_numpyro(model, {"x": np.ones((30, width), np.float32), "y": np.zeros(30)}).rows_of_pass == rows


# --- the default -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_adaptive_coefficients_save_what_a_bad_control_spoils():
    """With a snapshot far off joint_svrg is much worse than naive; the adaptive one is not, and as good with a near one."""
    from lowvar.core.gaussian import independent
    from lowvar.vi.batches import reshuffled, sampler
    from lowvar.vi.estimators import GRADIENT

    problem, batches = from_numpyro(moving, FAR), reshuffled(N, 20)
    draw = sampler(batches, independent(), 2, np.float64)
    params = {"mu": jnp.array([4.0, -4.0]), "log_sigma": jnp.full(2, -3.0)}

    def noises(seed, count):
        noise = jax.vmap(draw.epoch)(jax.random.split(jax.random.key(seed), count))
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), noise)

    @jax.jit
    def of_gradients(snapshot):
        def learn(state, one):
            return estimator.estimate(state, params, one)[1], None

        state = jax.lax.scan(learn, estimator.init(snapshot), before)[0]
        return jax.vmap(lambda one: estimator.estimate(state, params, one)[0]["mu"])(after).var(0).sum()

    before, after = noises(1, 100), noises(2, 400)
    far, near = {}, {}
    for name in ("naive", "joint_svrg", "joint_adaptive"):
        estimator = GRADIENT.get(name)(problem, batches)
        of_gradients.clear_cache()
        for variance, off in ((far, 5.0), (near, 0.0)):
            snapshot = {"mu": jnp.array([4.0 - off, -4.0 + off]), "log_sigma": jnp.full(2, -3.0)}
            variance[name] = float(of_gradients(snapshot))
    assert far["joint_svrg"] > 3 * far["naive"], far
    assert far["joint_adaptive"] < 1.1 * far["naive"], far
    assert near["joint_svrg"] < 0.01 * near["naive"], near
    assert near["joint_adaptive"] < 0.05 * near["naive"], near
