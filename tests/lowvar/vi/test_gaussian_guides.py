"""Guides: their densities and derivatives, against dense normals and autodiff, in both backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.errors import UserError
from lowvar.testing.enumerable import guide_params
from lowvar.vi.guides.gaussian import GUIDES, family

DIM = 5
POINT = np.array([False, True, False, False, False])
LONG = pytest.mark.long
# blocks are of full rank; test_guides.py of the contracts has their gradient
EACH = pytest.mark.parametrize(
    "name", [pytest.param(one, marks=LONG if one == "block_diagonal" else ()) for one in GUIDES.own]
)


class Given:
    """What a guide is made from."""

    def __init__(self, guide, backend="jax", noiseless=None):
        self.dim, self.backend, self.noiseless = DIM, backends.get(backend), noiseless
        self.sites = {"a": slice(0, 1), "b": slice(1, 2), "c": slice(2, 5)}
        self.guide = family({"guide": guide, "rank": 2} if guide == "low_rank" else guide)(self)
        self.noise_dim = self.guide.noise_dim


@EACH
@pytest.mark.parametrize("noiseless", [pytest.param(None, marks=LONG), POINT], ids=["all", "point estimate"])
def test_derivatives_and_densities(name, noiseless, rng):
    given = Given(name, noiseless=noiseless)
    guide, params = given.guide, guide_params(given)
    eps, gradient = jnp.asarray(rng.normal(size=guide.noise_dim)), jnp.asarray(rng.normal(size=DIM))
    assert {block: len(value) for block, value in params.items()} == guide.blocks
    free = np.ones(DIM, bool) if noiseless is None else ~noiseless

    @jax.jit
    def computed(params):
        return {
            "transform": guide.transform(params, eps),
            "scale": guide.scale(params),
            "autodiff": jax.grad(lambda params: guide.transform(params, eps) @ gradient)(params),
            "pull_back": guide.pull_back(params, eps, gradient),
            "entropy": jax.value_and_grad(guide.entropy)(params),
            "entropy_gradient": guide.entropy_gradient(params),
            "path_score": guide.path_score(params, eps),
            "log_density": guide.log_density(params, eps),
        }

    found = jax.tree.map(np.asarray, computed(params))
    A, z = guide.matrix(params), found["transform"]
    np.testing.assert_allclose(z, params["mu"] + A @ eps, rtol=1e-12)
    covariance = (A @ A.T)[np.ix_(free, free)]
    np.testing.assert_allclose(found["scale"][free], np.sqrt(np.diag(covariance)), rtol=1e-12)
    assert (A[~free] == 0).all()
    autodiff, by_hand = found["autodiff"], found["pull_back"]
    for block in guide.blocks:
        ours = np.where(by_hand[block] == 0, 0, autodiff[block])  # entries above a diagonal are never moved
        np.testing.assert_allclose(by_hand[block], ours, rtol=1e-12, atol=1e-14, err_msg=block)
    entropy, slopes = found["entropy"]
    np.testing.assert_allclose(entropy, 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1], rtol=1e-12)
    for block, value in found["entropy_gradient"].items():
        np.testing.assert_allclose(value, slopes[block], rtol=1e-12, atol=1e-14, err_msg=block)
    off = (z - np.asarray(params["mu"]))[free]
    score = np.zeros(DIM)
    score[free] = -np.linalg.solve(covariance, off)
    np.testing.assert_allclose(found["path_score"], score, rtol=1e-10, atol=1e-12)
    density = -0.5 * off @ np.linalg.solve(covariance, off) - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(found["log_density"], density, rtol=1e-10)


@EACH
def test_backends_agree(name):
    found = []
    for backend in ("jax", "torch"):
        given = Given(name, backend)
        params = {block: given.backend.asarray(np.asarray(value)) for block, value in guide_params(Given(name)).items()}
        rng = np.random.default_rng(1)
        eps, gradient = (given.backend.asarray(rng.normal(size=n)) for n in (given.noise_dim, DIM))
        guide, points = given.guide, given.guide.point(params)
        found.append([
            guide.transform(params, eps), guide.entropy(params), guide.path_score(params, eps), guide.scale(params),
            guide.log_density(params, eps), guide.steps({k: v[None] for k, v in points.items()}, eps),
            *guide.pull_back(params, eps, gradient).values(), *guide.entropy_gradient(params).values(),
            *(one for two in guide.controls(params, eps[None], gradient).values() for one in two),
        ])  # fmt: skip
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12, atol=1e-14)


def test_the_start_has_the_scales_that_are_asked_for():
    for name in GUIDES.own:
        guide = Given(name, noiseless=POINT).guide
        log_sigma = np.where(POINT, -40.0, -1.0)
        params = {k: jnp.asarray(v) for k, v in guide.start(np.zeros(DIM), log_sigma, jax.random.key(3)).items()}
        np.testing.assert_allclose(guide.scale(params)[~POINT], np.exp(-1.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("guide", "name"),
    [
        ("ful_rank", "'full_rank'"),
        ({"guide": "low_rank", "rnk": 2}, "'rnk'"),
        ({"rank": 2}, "guide"),
        ({"guide": "low_rank", "rank": 9}, "rank 9"),
        (3, "guide"),
    ],
)
def test_what_is_no_guide(guide, name):
    with pytest.raises(UserError, match=name):
        family(guide)(Given("full_rank"))
