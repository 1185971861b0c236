"""What a user may bring to a fit: any optimizer of optax, and models and data of many kinds."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest

import lowvar
from lowvar.errors import UserError

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
DATA = {"x": X, "y": 3 + X @ np.array([1.0, -0.5]) + 0.5 * RNG.normal(size=N)}


def regression(x, y=None, n=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 5))
    with numpyro.plate("rows", x.shape[0] if n is None else n, subsample_size=batch_size) as index:
        numpyro.sample("y", dist.Normal(bias + x[index] @ w, 0.5), obs=None if y is None else y[index])


def fitted(model=regression, data=DATA, **options):
    settings = {"num_steps": 62, "batch_size": 10, "khat_samples": 0, "elbo_samples": 20, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lowvar.fit(model, data, **settings | options)


# --- optimizers ------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "every": optax.MultiSteps(optax.apply_if_finite(optax.adam(0.02), 3), 2),
    "prodigy": optax.contrib.prodigy(1.0),
}


@pytest.mark.long
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_of_optax(name, tmp_path):
    """One with random numbers, a schedule and a chain is in ``test_fit_files.py``."""
    given = {"estimator": "naive", "optimizer": OPTIMIZERS[name]}
    fit = fitted(**given)
    assert fit.elbo["elbo"].iloc[-1] > fit.elbo["elbo"].iloc[0]
    fit.save(tmp_path / "fit.npz")
    loaded = lowvar.load(tmp_path / "fit.npz", regression, DATA, optimizer=OPTIMIZERS[name])
    resumed, longer = loaded.resume(10, khat_samples=0, progress=False), fitted(**given, num_steps=72)
    np.testing.assert_array_equal(resumed.params["w_auto_loc"], longer.params["w_auto_loc"])


def test_a_schedule_is_a_step_size():
    schedule = optax.exponential_decay(0.05, 20, 0.5)
    one, other = (
        fitted(estimator="naive", **o) for o in ({"step_size": schedule}, {"optimizer": optax.adam(schedule)})
    )
    np.testing.assert_array_equal(one.params["w_auto_loc"], other.params["w_auto_loc"])


CONSTANT = optax.constant_schedule(0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": optax.lbfgs()}, "optimizer: it asks for .*'value'"),
        ({"optimizer": optax.adam}, "optimizer: .*call it"),
        ({"optimizer": "adamw", "step_size": CONSTANT}, "'adamw'"),
        ({"optimizer": 0.1}, "optimizer: .*'lbfgs'"),
        ({"optimizer": "adamm"}, "'adamm'.*lbfgs"),
        ({"optimizer": numpyro.optim.Adam(0.01)}, "optimizer: .* optax.adam"),
        ({"optimizer": optax.lookahead(optax.sgd(0.1), 5, 0.5)}, "optimizer: it cannot update parameters"),
        ({"step_size": lambda: 1.0}, "step_size"),
        ({"step_size": lambda t: -1.0}, "step_size: .*-1.0"),
        ({"optimizer": optax.adam(0.1), "step_size": 0.1}, "has its own step size"),
        ({"step_size": CONSTANT, "schedule": {"kind": "time", "beta": 0.1}}, "leave schedule out"),
    ],
    ids=lambda one: one if isinstance(one, str) else None,
)
def test_optimizers_that_cannot_be_used(options, message):
    with pytest.raises(UserError, match=message):
        fitted(**options)


# --- models and data -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def usual():
    return fitted(estimator="naive").params["w_auto_loc"]


LABELS = [f"row {i}" for i in range(N)]


def frame():
    return pd.DataFrame(X, columns=["a", "b"])


KINDS = {
    "jit": (jax.jit(regression), {}),
    "jit with a static size": (jax.jit(regression, static_argnames="n"), {"n": N}),
    "lists": (regression, {"x": X.tolist(), "y": DATA["y"].tolist()}),
    "pandas": (regression, {"x": frame(), "y": pd.Series(DATA["y"], index=range(5, 5 + N))}),
    "big-endian": (regression, {name: value.astype(value.dtype.newbyteorder(">")) for name, value in DATA.items()}),
    "0-d of NumPy": (regression, {"n": np.array(N)}),
    "0-d of JAX": (regression, {"n": jnp.array(N)}),
    "scalar of NumPy": (regression, {"n": np.int64(N)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_models_and_data(kind, usual):
    model, data = KINDS[kind]
    np.testing.assert_array_equal(fitted(model, DATA | data, estimator="naive").params["w_auto_loc"], usual)


def test_the_batch_size_of_the_plate_is_the_default(usual):
    fit = fitted(data=DATA | {"batch_size": 10}, batch_size=None, estimator="naive")
    np.testing.assert_array_equal(fit.params["w_auto_loc"], usual)
    assert fit.run.settings.batch_size == 10


def test_tensors_of_torch(usual):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.tensor(value) for name, value in DATA.items()} | {"n": torch.tensor(N)}
    np.testing.assert_array_equal(fitted(data=tensors, estimator="naive").params["w_auto_loc"], usual)
    for wrong in (tensors["x"].requires_grad_(), tensors["x"].detach().bfloat16()):
        with pytest.raises(UserError, match="'x' is a Tensor that NumPy cannot read"):
            fitted(data=DATA | {"x": wrong})


def test_a_model_that_takes_no_data_needs_none(tmp_path):
    def model():
        return regression(jnp.asarray(X), jnp.asarray(DATA["y"]))

    one, other = fitted(model, None, estimator="naive"), fitted(model, {}, estimator="naive")
    np.testing.assert_array_equal(one.params["w_auto_loc"], other.params["w_auto_loc"])
    one.save(tmp_path / "fit.npz")
    np.testing.assert_array_equal(
        lowvar.load(tmp_path / "fit.npz", model).params["w_auto_loc"], one.params["w_auto_loc"]
    )
    with pytest.raises(UserError, match="'x'"):
        lowvar.fit(regression)


def test_numbers_that_are_complex_on_the_way_are_real_data():
    """Absolute values of complex covariates, as of a Fourier transform, are real parameters."""

    def model(x, y):
        return regression(jnp.abs(x), y)

    one, other = (fitted(model, DATA | {"x": x}, estimator="naive") for x in (X + 0j, np.abs(X)))
    np.testing.assert_allclose(one.params["w_auto_loc"], other.params["w_auto_loc"], rtol=1e-5)


def test_a_jitted_model_has_a_guide():
    fit = fitted(jax.jit(regression), estimator="naive")
    assert "w_auto_loc" in fit.params
    draws = numpyro.infer.Predictive(regression, guide=fit.guide, params=fit.params, num_samples=2)(
        jax.random.key(0), x=jnp.asarray(X)
    )
    assert draws["y"].shape == (2, N)


def inside(x, y):
    @jax.jit
    def mean(x):
        return x @ numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))

    mu = mean(x)
    with numpyro.plate("rows", x.shape[0], subsample_size=10) as index:
        numpyro.sample("y", dist.Normal(mu[index], 1.0), obs=y[index])


WRONG = {
    "a site under jit": (inside, {}, "(site 'w'|a sample statement) lies inside a function under jax.jit"),
    "no rows": (
        lambda x, y: numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal()), 1.0), obs=y),
        {"x": None, "y": np.zeros(0)},
        "there are no rows",
    ),
    "no observations": (regression, {"y": None}, "observes nothing"),
    "an unknown argument": (regression, {"z": X}, "z"),
    "strings": (regression, {"y": ["u"] * N}, "'y'"),
    "strings of pandas": (regression, {"y": pd.Series(["u", "v"] * (N // 2), dtype="category")}, "'y' holds str"),
    "dates": (regression, {"y": pd.Series(pd.date_range("2020", periods=N))}, "'y' holds dates"),
    "numbers as objects": (regression, {"x": X.astype(object)}, "'x'"),
    "gaps as objects": (regression, {"y": np.array([1.0, None] * (N // 2))}, "'y' holds NoneType"),
    "infinite": (regression, {"x": np.where(X[3] == X, np.inf, X)}, "'x' is infinite in 2 places, the first in row 3"),
    "ragged lists": (regression, {"x": [[1.0, 2.0], [3.0]]}, "'x'"),
    "a mask": (regression, {"y": np.ma.masked_array(DATA["y"], DATA["y"] > 3)}, "'y' is a masked array"),
    "a tuple": (regression, {"y": tuple(DATA["y"])}, "'y' is a tuple"),
    "rows of pandas in another order": (
        regression,
        {"x": frame().set_axis(LABELS), "y": pd.Series(DATA["y"], index=LABELS).iloc[::-1]},
        r"y: its index has another order than that of x",
    ),
    "complex": (regression, {"x": X + 0j}, "'x' is complex128"),
    "complex observations": (regression, {"y": DATA["y"] + 0j}, "'y' is complex128"),
    "complex, where absolute values would hide it": (
        lambda x, y: numpyro.sample("y", dist.Laplace(numpyro.sample("z", dist.Normal()), 1.0), obs=y + x[:, 0]),
        {"y": DATA["y"] + 0j},
        "'y' is complex128",
    ),
    "complex, where JAX refuses it": (
        lambda x, y: numpyro.sample(
            "y", dist.Normal(numpyro.sample("z", dist.Normal()), 1.0), obs=jnp.clip(x[:, 0], 0)
        ),
        {"x": X + 0j},
        "'x' is complex128",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_models_and_data_that_cannot_be_fitted(kind):
    model, data, message = WRONG[kind]
    with pytest.raises(UserError, match=message) as caught:
        fitted(model, DATA | data)
    assert "\n" not in str(caught.value).strip()


def test_parameters_and_data_that_a_model_lacks():
    def model(x, y):
        bias = numpyro.param("bias", 0.0)
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", N) as index:
            numpyro.sample("y", dist.Normal(x[index] @ w + bias, 1.0), obs=y[index])

    guide = {"w_auto_loc": np.zeros(2), "w_auto_scale": np.ones(2)}
    for call, name in (
        (lambda: lowvar.decompose(model, DATA, guide), "'bias'"),
        (lambda: lowvar.scores(model, DATA, {"w": np.zeros((3, 2))}), "bias"),
        (lambda: lowvar.fit(model, {"y": DATA["y"]}), "'x'"),
    ):
        with pytest.raises(UserError, match=name):
            call()


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["key", "PRNGKey"])
def test_a_key_of_jax_is_no_seed(key):
    x = np.zeros((5, 1))
    for call in (
        lambda: lowvar.fit(np.sum, DATA, seed=key),
        lambda: lowvar.decompose(np.sum, DATA, seed=key),
        lambda: lowvar.integrate(x, x, x, seed=key),
        lambda: lowvar.minimize(np.sum, x[0], 1.0, budget=20, seed=key),
    ):
        with pytest.raises(UserError, match="seed: a JAX key"):
            call()
