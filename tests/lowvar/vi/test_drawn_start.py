"""Where a fit starts: near a centre, or far from it at a saddle point of the likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowvar
from lowvar.vi.guides.forms import FAR
from lowvar.vi.numpyro.model import from_numpyro

N, USERS, FILMS = 120, 8, 6
RNG = np.random.default_rng(0)
USER, FILM = jnp.asarray(RNG.integers(0, USERS, N)), jnp.asarray(RNG.integers(0, FILMS, N))
Y = jnp.asarray(1 + 2 * (RNG.normal(size=(USERS, 2))[USER] * RNG.normal(size=(FILMS, 2))[FILM]).sum(1), jnp.float32)
KEY = jax.random.key(3)


def normal(name, *shape, loc=0.0, scale=1.0):
    return numpyro.sample(name, dist.Normal(loc, scale).expand(shape).to_event(len(shape)))


def observed(y, batch, loc):
    """Normal observations with mean ``loc(index)``."""
    with numpyro.plate("data", N, subsample_size=batch) as i:
        return numpyro.sample("y", dist.Normal(loc(i), 1.0), obs=y[i])


def factors(y, batch=None):
    mean, u, v = normal("mean"), normal("u", USERS, 2), normal("v", FILMS, 2)
    observed(y, batch, lambda i: mean + (u[USER[i]] * v[FILM[i]]).sum(-1))


def scaled_effects(y, batch=None):
    tau, effect = numpyro.sample("tau", dist.HalfNormal(1.0)), normal("effect", USERS)
    observed(y, batch, lambda i: tau * effect[USER[i]])


def far(problem):
    """The sites that start far: a site of several entries has some beyond ten standard deviations of a near start."""
    return {site for site, where in problem.sites.items() if np.abs(problem.start["mu"][where]).max() > 1.0}


@pytest.mark.long
@pytest.mark.parametrize(("model", "expected"), [(factors, {"u", "v"}), (scaled_effects, set())])
def test_sites_at_a_saddle_point_start_far_and_others_near(model, expected):
    assert far(from_numpyro(model, {"y": Y}, key=KEY)) == expected


def test_a_far_start_is_uniform_and_the_others_are_as_before():
    problem, plain = from_numpyro(factors, {"y": Y}, key=KEY), from_numpyro(factors, {"y": Y})
    u, mean = (problem.start["mu"][problem.sites[site]] for site in ("u", "mean"))
    assert np.abs(u).max() <= FAR
    assert u.std() > 0.7
    assert 0 < np.abs(mean).max() < 0.5
    assert not plain.start["mu"].any()  # exactly 0 without a key


def test_a_given_factor_leaves_no_saddle_point():
    problem = from_numpyro(factors, {"y": Y}, key=KEY, init={"u": np.ones((USERS, 2))})
    assert far(problem) == set()  # u is 1, and v has a gradient


def test_a_start_with_an_infinite_density_stays_near():
    def overflowing(y, batch=None):
        u, v = normal("u", USERS), normal("v", FILMS)
        with numpyro.plate("data", N, subsample_size=batch) as i:
            rate = jnp.exp(1e3 * u[USER[i]] * v[FILM[i]])
            numpyro.sample("y", dist.Poisson(rate), obs=jnp.ones(len(i)))

    assert far(from_numpyro(overflowing, {"y": Y}, key=KEY)) == set()


def test_a_torch_model_has_the_same_rule():
    torch = pytest.importorskip("torch")
    user, film, y = (torch.as_tensor(np.array(value)) for value in (USER, FILM, Y))
    sites = {"mean": (1,), "u": (USERS, 2), "v": (FILMS, 2)}

    def loc(z, i):
        u, v = z[1 : 1 + 2 * USERS].reshape(USERS, 2), z[1 + 2 * USERS :].reshape(FILMS, 2)
        return z[0] + (u[user[i]] * v[film[i]]).sum(-1)

    model = lowvar.TorchModel(
        lambda z, i: torch.distributions.Normal(loc(z, i), 1.0).log_prob(y[i]),
        lambda z: torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(),
        N=N, dim=1 + 2 * (USERS + FILMS), sites=sites,
    )  # fmt: skip
    assert far(model.problem(key=KEY)) == {"u", "v"}


def test_a_function_with_reverse_mode_alone_can_be_fitted():
    """Solvers of differential equations have a ``custom_vjp``, which JAX does not differentiate forwards."""

    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))

    def model(y, batch=None):
        m = normal("m")
        observed(y, batch, lambda i: sine(m))

    def mixing(y, batch=None):
        m = normal("m")
        with numpyro.plate("data", N, subsample_size=batch) as i:
            numpyro.sample("y", dist.Normal(sine(m) + y[i].mean(), 1.0), obs=y[i])

    assert from_numpyro(model, {"y": Y}, key=KEY).N == N
    with pytest.raises(lowvar.UserError, match="depends on the other rows"):
        from_numpyro(mixing, {"y": Y}, key=KEY)
