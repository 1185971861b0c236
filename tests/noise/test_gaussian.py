"""Every scheme of base noise: each point is N(0, I), keys decide, and the scheme is what its name says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import qmc

from lowvar.errors import UserError
from lowvar.noise import GAUSSIAN, orthogonal, rqmc
from lowvar.noise.sobol import directions, points, scrambled

SCHEMES = sorted(GAUSSIAN)
KEYS = jax.random.split(jax.random.key(5), 4000)


def draws(scheme, samples, dim, keys=KEYS, dtype=jnp.float64):
    """``(keys, samples, dim)`` as NumPy."""
    draw = GAUSSIAN[scheme](samples).draw
    return np.asarray(jax.jit(jax.vmap(lambda key: draw(key, dim, dtype)))(keys))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_point_is_standard_normal(scheme, dtype):
    eps = draws(scheme, 6, 4, dtype=dtype)
    assert eps.dtype == dtype
    eps = eps.astype(float)
    assert np.isfinite(eps).all()
    n = len(eps)
    for moment, exact, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        z = ((eps**moment).mean(0) - exact) / np.sqrt(variance / n)
        assert np.abs(z).max() < 5, (moment, z)
    # coordinates of a point are independent: their covariances, and the length of a point is chi
    cross = np.einsum("kia,kib->iab", eps, eps)[:, *np.triu_indices(4, 1)] / np.sqrt(n)
    assert np.abs(cross).max() < 5
    square = (eps**2).sum(-1)
    assert np.abs(((square**2).mean(0) - 24) / (square**2).std(0) * np.sqrt(n)).max() < 5  # d (d + 2)


@pytest.mark.parametrize("samples", [1, 2, 7, 16])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_means_are_unbiased(scheme, samples):
    if scheme == "antithetic" and samples % 2:
        return
    eps = draws(scheme, samples, 5)
    found = np.exp(eps @ np.full(5, 0.2)).mean(1)  # E exp(a'z) = exp(|a|^2 / 2)
    error = found.std() / np.sqrt(len(found))
    print(scheme, samples, found.mean() - np.exp(0.1), error)
    assert abs(found.mean() - np.exp(0.1)) < 5 * error
    assert error < 0.01


@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_decide(scheme):
    draw = GAUSSIAN[scheme](6).draw
    a, b = KEYS[0], KEYS[1]
    one = np.asarray(draw(a, 9, jnp.float64))
    np.testing.assert_array_equal(one, draw(a, 9, jnp.float64))
    assert (one != np.asarray(draw(b, 9, jnp.float64))).all()
    np.testing.assert_allclose(one, jax.jit(draw, static_argnums=(1, 2))(a, 9, jnp.float64), rtol=0, atol=1e-13)
    np.testing.assert_allclose(one, draws(scheme, 6, 9, KEYS[:2])[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_turning_all_points_round_changes_no_law(scheme):
    eps = draws(scheme, 4, 3)
    odd = np.concatenate([eps.prod(1)[:, :1] * eps[:, 0, 1:], eps[:, 0, :1] * eps[:, 1, 1:2] * eps[:, 2, 2:]], 1)
    mean, error = odd.mean(0), odd.std(0) / np.sqrt(len(odd))
    assert (np.abs(mean) <= 5 * error).all()


@pytest.mark.parametrize(("samples", "dim"), [(3, 7), (7, 7), (10, 4), (8, 4), (5, 1)])
def test_orthogonal_within_blocks(samples, dim):
    eps = draws("orthogonal", samples, dim, KEYS[:50])
    assert eps.shape == (50, samples, dim)
    gram = np.einsum("kia,kja->kij", eps, eps)
    length = np.linalg.norm(eps, axis=-1)
    block = np.arange(samples) // dim
    apart = (block[:, None] == block[None, :]) & ~np.eye(samples, dtype=bool)
    cosines = gram / length[:, :, None] / length[:, None, :]
    assert np.abs(cosines[:, apart]).max(initial=0) < 1e-12
    other = block[:, None] != block[None, :]
    if dim > 1 and other.any():
        assert np.abs(cosines[:, other]).max() > 0.5  # blocks know nothing of each other


def test_orthogonal_lengths_are_independent_of_each_other_and_of_the_directions():
    eps = draws("orthogonal", 3, 3)
    square = (eps**2).sum(-1)
    u = eps / np.sqrt(square)[..., None]
    n = len(eps)
    assert np.abs(np.corrcoef(square.T)[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(n)
    for i in range(3):
        for j in range(3):
            for a in range(3):
                assert abs(np.corrcoef(square[:, i], u[:, j, a] ** 2)[0, 1]) < 5 / np.sqrt(n)
    # Haar: a coordinate of two directions, E u_1a^2 u_2a^2 = 1 / ((d - 1)(d + 2)) (1 - ... ) = 1 / 15 - 2 / 30 + ...
    exact = 1 / (3 * 5) * (1 + 0) * 1.0  # d = 3: E u^2 v^2 = 1 / (d (d + 2)) for orthonormal u, v
    both = u[:, 0, :] ** 2 * u[:, 1, :] ** 2
    assert (np.abs(both.mean(0) - exact) < 5 * both.std(0) / np.sqrt(n)).all()


@pytest.mark.parametrize("dim", [1, 5, 300])
def test_digits_are_those_of_scipy(dim):
    expected = (qmc.Sobol(dim, scramble=False).random(64) * 2**32).astype(np.uint32)
    found = np.asarray(points(jnp.asarray(directions(dim, 6)), 64, jnp.zeros(dim, jnp.uint32)))
    order = np.arange(64)
    np.testing.assert_array_equal(found[order ^ (order >> 1)], expected)  # SciPy's order is Gray's
    np.testing.assert_array_equal(found[:1], 0)


def test_a_scramble_keeps_the_net():
    x = np.asarray(jax.vmap(lambda key: scrambled(key, 64, 7))(KEYS[:20]))
    plain = (qmc.Sobol(7, scramble=False).random(64) * 2**32).astype(np.uint32)
    for bits in range(1, 6):  # equal volumes of the first coordinate by any other
        for other in range(1, 7):
            for left in range(bits + 1):
                where = lambda u: (
                    (u[..., 0] >> (32 - left) if left else 0) * 2 ** (bits - left)
                    + (u[..., other] >> (32 - bits + left) if bits > left else 0)
                )  # noqa: E731
                expected = np.sort(np.bincount(where(plain), minlength=2**bits))
                for one in x:
                    np.testing.assert_array_equal(np.sort(np.bincount(where(one), minlength=2**bits)), expected)


def test_scrambled_digits_are_uniform_and_pairwise_as_owen_says():
    x = np.asarray(jax.jit(jax.vmap(lambda key: scrambled(key, 8, 3)))(jax.random.split(jax.random.key(2), 20_000)))
    ones = np.stack([((x >> b) & 1).mean(0) for b in range(32)])
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(len(x))
    # two points that part at digit k agree before it, differ at it, and are independent after it
    apart = x[:, 0] ^ x[:, 1]  # the first direction number: they part at once
    assert (apart >> 31 == 1).all()
    after = np.stack([((apart >> b) & 1).mean(0) for b in range(31)])
    assert np.abs(after - 0.5).max() < 5 * 0.5 / np.sqrt(len(x))


@pytest.mark.parametrize("samples", [16, 64, 256])
def test_variance_falls_as_scipys(samples):
    """A smooth product in 4 dimensions: far below iid, and not above SciPy's scramble."""
    smooth = lambda u: (1 + 0.5 * (u - 0.5)).prod(-1)  # noqa: E731
    keys = jax.random.split(jax.random.key(samples), 500)
    x = np.asarray(jax.jit(jax.vmap(lambda key: scrambled(key, samples, 4)))(keys))
    ours = smooth((x + 0.5) / 2**32).mean(1).var(ddof=1)
    rng = np.random.default_rng(0)
    scipys = np.var([smooth(qmc.Sobol(4, rng=rng).random(samples)).mean() for _ in range(500)], ddof=1)
    iid = ((1 + 0.25 / 12) ** 4 - 1) / samples
    print(samples, ours / iid, scipys / iid, ours / scipys)
    assert 0.6 < ours / scipys < 1.7
    assert ours < iid * {16: 0.03, 64: 0.002, 256: 0.0003}[samples]


def test_sobol_variance_of_a_gaussian_mean_vanishes_faster_than_iid():
    means = {n: draws("rqmc", n, 20).mean(1).var() * n for n in (1, 16, 128)}  # 1, 1, 1 for iid
    assert 0.95 < means[1] < 1.05
    assert means[16] < 0.12
    assert means[128] < 0.03


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_ends_of_the_unit_interval(dtype):
    from lowvar.noise.gaussian import _normal

    x = jnp.asarray([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], jnp.uint32)
    z = np.asarray(_normal(x, dtype)).astype(float)
    assert np.isfinite(z).all()
    np.testing.assert_array_equal(z, -z[::-1])
    assert -6.4 < z[0] < -6.2  # Phi^-1(2^-33) = -6.34


def test_high_dimensions():
    assert rqmc(3).draw(KEYS[0], 21201, jnp.float32).shape == (3, 21201)
    with pytest.raises(UserError, match="rqmc noise in 21202 dimensions: .* up to dimension 21201"):
        rqmc(3).draw(KEYS[0], 21202, jnp.float32)


@pytest.mark.parametrize("make", [orthogonal, rqmc])
def test_bad_numbers_of_samples(make):
    with pytest.raises(UserError, match="samples 0: it must be at least 1"):
        make(0)
