"""All models: densities are NumPyro's, derivatives autodiff's, closed forms are means, backends agree."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, trace
from small_models import (
    DATA,
    DIMS,
    HELD,
    MODELS,
    PYRO,
    TEST,
    TEST_X,
    WINNER,
    N,
    X,
    call,
    calls,
    close,
    fitted,
    made,
    noise,
    on,
    ours,
    point,
    theirs,
)  # fmt: skip

from lowvar.errors import UserError
from lowvar.vi.batches import Noise
from lowvar.vi.variational import VariationalProblem
from lowvar_studies.models.catalogue import build


def each(of=MODELS, long=()):
    """All models, those that are ``long`` in ``make test-long`` alone: other models run the same code."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.long if name in long else ()) for name in of]
    )


VARIANTS = ("hlr_sd", "blr_softmax_without", "softmax_regression")


@each(long=(*VARIANTS, "blr", "logistic_regression", "movielens"))  # test_linear.py has their predictors' products
def test_density_and_gradient_are_numpyros(name):
    p, q, n = ours(name), theirs(name), on("jax", noise(name))
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    assert (p.N, p.dim, dict(p.sites), p.dtype) == (q.N, q.dim, dict(q.sites), q.dtype)
    assert p.dim == DIMS[name]
    of_parts = {"log_likelihood": (z, n.index), "log_prior": (z,)}
    if name == "ppca":  # the normalising constants of its rows are with the prior: sums are compared
        close(VariationalProblem.full_energy(p, z), call(q, "full_energy", z))
        of_parts = {}
    asked = {**of_parts, "full_energy": (z,), "objective_gradient": ({"mu": z, "log_sigma": t - 2}, n)}
    found, expected = calls(p, asked), calls(q, asked)
    for method in asked:
        close(found[method], expected[method])


# test_linear.py has the products of the long ones' designs
@each(long=(*VARIANTS, "blr", "bradley_terry", "logistic_regression", "movielens"))
def test_closed_derivatives_are_those_of_autodiff(name):
    """What a model derives by hand, against what the base class makes of the density that the test above compares."""
    p, n = ours(name), on("jax", noise(name))
    if type(p) is VariationalProblem:
        assert name == "bnn"
        return
    z, t = jnp.asarray(point(name)), jnp.asarray(point(name, seed=2))
    rows, sigma = jnp.asarray(point(name, (5,))), jnp.exp(jnp.asarray(point(name, (5,), seed=2)))
    plain = VariationalProblem("plain", p.backend, p.N, p.dim, p.log_likelihood, p.log_prior)
    asked = {
        "prior_gradient": (z,),
        "full_gradient": (z,),
        "gradient_and_hvp": (z, t, n.index, n.weight),
        "approximation_by_row": ({"mu": rows, "sigma": sigma}, n),
        "approximation_mean_by_row": ({"mu": rows, "sigma": sigma}, n.index, n.weight),
        "full_approximation": ({"mu": z, "sigma": t}, n.eps),
        "objective_gradient_by_row": ({"mu": rows, "log_sigma": sigma - 2}, n),
        "likelihood_at_rows": (rows, t, n.index, n.weight),
    }
    found, expected = calls(p, asked), calls(plain, asked)
    for method in asked:
        close(found[method], expected[method])


@each(long=(*VARIANTS, "blr", "blr_softmax", "logistic_regression", "movielens"))  # linear, as bradley_terry is
def test_backends_agree(name):
    p, q, n = ours(name), ours(name, "torch"), noise(name)
    z, t, rows = point(name), point(name, seed=2), point(name, (5,))
    params, points = {"mu": z, "log_sigma": t - 2}, {"mu": rows, "sigma": np.exp(rows)}
    eps = np.random.default_rng(0).normal(size=(7, p.dim))
    asked = {
        "log_likelihood": (z, n.index),
        "log_prior": (z,),
        "full_energy": (z,),
        "full_gradient": (z,),
        "objective_gradient": (params, n),
        "full_objective_gradient": (params, n.eps),
        "objective_gradient_by_row": ({"mu": rows, "log_sigma": rows - 2}, n),
        "approximation": ({"mu": z, "sigma": np.exp(t)}, n),
        "approximation_by_row": (points, n),
        "approximation_mean_by_row": (points, n.index, n.weight),
        "likelihood_at_rows": (rows, t, n.index, n.weight),
        "elbo": (params, eps),
        "exact_elbo": (params,),
        "expected_log_prior": (params,),
        "test_log_likelihood": (params, eps),
    }
    if name not in HELD:
        del asked["test_log_likelihood"]
    for method in [method for method in asked if getattr(p, method) is None]:
        assert (name, method) in (("bnn", "exact_elbo"), ("ppca", "exact_elbo"), ("ppca", "expected_log_prior"))
        del asked[method]
    found, expected = calls(q, on("torch", asked)), calls(p, on("jax", asked))
    for method in asked:
        close(found[method], expected[method])


@each(long=(*VARIANTS, "blr", "blr_softmax", "bnn", "logistic_regression", "movielens"))
def test_closed_forms_are_means(name):
    """The exact ELBO and its prior's part against 20 000 samples."""
    p = ours(name)
    if name == "ppca":
        assert p.exact_elbo is p.expected_log_prior is None
        return
    params = {"mu": jnp.asarray(point(name)), "log_sigma": jnp.asarray(point(name, seed=2)) - 1.5}
    eps = jax.random.normal(jax.random.key(0), (20_000, p.dim))
    prior = jax.jit(jax.vmap(lambda eps: p.log_prior(p.guide.transform(params, eps))))(eps)
    exact, error = call(p, "expected_log_prior", params), float(prior.std()) / len(eps) ** 0.5
    assert abs(float(prior.mean() - exact)) < 5 * error, (prior.mean(), exact, error)
    if p.exact_elbo is None:
        assert name == "bnn"
        return
    sampled, error = jax.jit(p.elbo)(params, eps)
    exact, none = jax.jit(p.elbo)(params)
    assert none == 0
    assert abs(float(sampled - exact)) < 5 * float(error), (sampled, exact, error)
    assert float(error) < 0.01 * abs(float(exact))


@each(
    of=[name for name in MODELS if "x" in DATA[name]],
    long=(*VARIANTS, "blr", "blr_softmax", "bnn", "logistic_regression", "movielens"),
)
def test_single_precision_stays_single(name):
    single = np.float32
    p = made(name, {k: v.astype(single) if np.asarray(v).dtype.kind == "f" else v for k, v in DATA[name].items()})
    n = Noise(*(jnp.asarray(v, single if np.asarray(v).dtype.kind == "f" else None) for v in noise(name)))
    z = jnp.asarray(point(name), single)
    params = {"mu": z, "log_sigma": z - 1}
    asked = {
        "objective_gradient": (params, n),
        "approximation": ({"mu": z, "sigma": z}, n),
        "full_gradient": (z,),
    }
    if name in HELD:
        asked["test_log_likelihood"] = params, n.eps
    found = calls(p, asked)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(single)}
    assert p.dtype == single
    assert np.isfinite(call(p, "elbo", params, n.eps)[0])
    double = {key: value.astype(np.float64) for key, value in params.items()}
    close(found["objective_gradient"], call(ours(name), "objective_gradient", double, on("jax", noise(name))), 1e-4)
    close(found["full_gradient"], call(ours(name), "full_gradient", z.astype(np.float64)), 1e-4)


def small(name):
    """A model in NumPyro that takes four rows at a time, and its arrays."""
    return functools.partial(PYRO[name], batch_size=4), {key: jnp.asarray(v) for key, v in fitted(name).items()}


@each(long=(*VARIANTS, "blr", "blr_softmax", "bnn", "logistic_regression", "movielens"))
def test_the_definition_takes_some_rows_in_numpyro(name):
    """Each row of a batch counts for ``N / 4`` rows."""
    model, arrays = small(name)
    found = {}

    @jax.jit
    def density():
        found.update(trace(seed(model, 0)).get_trace(**arrays))
        (found["observed"],) = (one for one in found.values() if one["type"] == "sample" and one["is_observed"])
        return found["observed"]["fn"].log_prob(found["observed"]["value"])

    with jax.numpy_rank_promotion("allow"):
        assert np.all(np.isfinite(density()))
    observed, sites = found.pop("observed"), found
    assert observed["scale"] == N / 4
    assert observed["value"].shape[0] == 4
    assert all(sites[one]["scale"] is None for one in dict(ours(name).sites))


@pytest.mark.parametrize(
    ("name", "change", "argument"),
    [
        *(("hlr", {"y": y}, "y") for y in (np.zeros((N, 2)), np.zeros(N - 1))),
        ("hlr", {"x": X[0]}, "x"),
        *(("hlr", {"test_x": x}, "test_x") for x in (TEST_X[:, :2], TEST_X[:3])),
        *(("blr", {"y": y}, "y") for y in (np.arange(N) % 3, np.zeros(3, int))),
        ("blr", {"test_y": np.arange(TEST) - 1}, "test_y"),
        ("logistic_regression", {"y": np.arange(N) % 3}, "y"),
        ("blr", {"x": X.astype(int)}, "x"),
        ("blr_softmax", {"y": np.arange(N) - 1}, "y"),
        *(("blr_softmax", {"classes": count}, "y") for count in (2, 3)),
        *(("softmax_regression", {"test_y": np.full(TEST, wrong)}, "test_y") for wrong in (0.5, -1)),
        ("bnn", {"y": np.full(N, 0.1), "test_y": np.ones(TEST)}, "y"),  # its standard deviation is 1e-17, not 0
        ("bradley_terry", {"players": 4}, "winner"),
        *(("bradley_terry", {"loser": loser}, "loser") for loser in (WINNER[1:], WINNER * 0.5)),
        ("movielens", {"users": 4}, "user"),
        ("movielens", {"user": np.zeros(2, int)}, "user"),
        ("ppca", {"x": np.arange(5)}, "x"),
        ("ppca", {"components": 0}, "components"),
    ],
)
def test_mistakes(name, change, argument):
    with pytest.raises(UserError, match=rf"{name}.*\b{argument}\b") as caught:
        build(name, {**DATA[name], **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", HELD)
def test_half_a_test_is_refused(name):
    with pytest.raises(UserError, match="test_y"):
        made(name, {key: value for key, value in DATA[name].items() if key != "test_y"})
