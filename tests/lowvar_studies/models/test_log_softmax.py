"""The means of a log softmax and of a log sigmoid under a Gaussian, against a fine grid."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from lowvar.core.backend import get
from lowvar_studies.models.linear import glm


def brute_log_sum_exp(mean, sd):
    """``E max_c (a_c + Gumbel)`` for one row on a fine grid, the convolutions too."""
    z, g = np.linspace(-9, 9, 301), np.linspace(-5, 45, 401)
    gaussian, gumbel = np.exp(-(z**2) / 2), np.exp(-g - np.exp(-g))
    size = np.hypot(sd, 1.3)
    x = np.linspace(np.max(mean - 7 * size), np.max(mean + 15 * size), 3001)
    below = np.ones_like(x)
    for m, s in zip(mean, sd, strict=True):
        if s < 1:
            F = np.exp(-np.exp(np.minimum(-(x[:, None] - m - s * z), 700))) @ (gaussian / gaussian.sum())
        else:
            F = ndtr((x[:, None] - m - g) / s) @ (gumbel / gumbel.sum())
        below *= F
    return x[0] + np.trapezoid(1 - below, x) - np.euler_gamma


CASES = {  # spread of the means, range of the standard deviations, tolerance
    "points": (3.0, (1e-9, 1e-2), 1.5e-6),
    "narrow": (3.0, (0.2, 0.4), 1.5e-6),
    "one": (3.0, (0.5, 1.5), 1.5e-6),
    "three": (4.0, (2.0, 4.0), 1.5e-6),
    "mixed": (4.0, (0.1, 3.0), 1.5e-6),
    "wide": (10.0, (15.0, 30.0), 5e-6),
    "all widths": (10.0, (0.1, 30.0), 5e-6),
}


@functools.cache
def mean_log_softmax(backend):
    """The function of ``(mean, sd, label)``, compiled once for all cases."""
    ops = get(backend)
    return ops.jit(lambda mean, sd, label: glm.expected_log_softmax(ops, mean, sd, label))


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.long if one in ("narrow", "three", "mixed", "wide") else ()) for one in CASES],
)
def test_expected_log_softmax_against_a_fine_grid(case):
    spread, widths, tolerance = CASES[case]
    rng = np.random.default_rng(len(case))
    mean = spread * rng.normal(size=(4, 10))
    sd = np.exp(rng.uniform(*np.log(widths), size=(4, 10)))
    label = np.arange(4)
    expected = mean[label, label] - [brute_log_sum_exp(m, s) for m, s in zip(mean, sd, strict=True)]
    for backend in ("jax", "torch"):
        ops = get(backend)
        found = ops.to_numpy(mean_log_softmax(backend)(*map(ops.asarray, (mean, sd, label))))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    single = [jnp.asarray(v, jnp.float32) for v in (mean, sd)]
    found = mean_log_softmax("jax")(*single, jnp.asarray(label))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=5e-5)


def test_expected_log_softmax_of_two_classes_is_the_sigmoids():
    mean, sd = np.array([[0.3, -0.4], [5.0, 1.0], [-20.0, 3.0]]), np.array([[1.0, 2.0], [0.1, 0.2], [9.0, 12.0]])
    two = mean_log_softmax("jax")(jnp.asarray(mean), jnp.asarray(sd), jnp.zeros(3, jnp.int32))
    sigmoid = jax.jit(functools.partial(glm.expected_log_sigmoid, get("jax")))
    one = sigmoid(jnp.asarray(mean[:, 0] - mean[:, 1]), jnp.asarray(np.hypot(*sd.T)))
    np.testing.assert_allclose(two, one, rtol=0, atol=3e-6)


@pytest.mark.parametrize("scale", [1.0, 6.1, 2000.0])
def test_expected_log_sigmoid_of_wide_predictors(scale):
    """The quadrature against a brute-force one, also where the predictor spreads far over the kink."""
    mean = np.array([0.0, 0.7, -2.0]) * np.array([1.0, scale, scale])
    t = np.linspace(-10, 10, 2_000_001)
    weights = np.exp(-(t**2) / 2) / np.exp(-(t**2) / 2).sum()
    brute = [-(weights @ np.logaddexp(0, -(m + scale * t))) for m in mean]
    for backend in ("jax", "torch"):
        ops = get(backend)
        mean_of_log = ops.jit(lambda mean, sd, ops=ops: glm.expected_log_sigmoid(ops, mean, sd))
        found = ops.to_numpy(mean_of_log(ops.asarray(mean), ops.asarray(np.full(3, scale))))
        np.testing.assert_allclose(found, brute, rtol=1e-8, atol=1e-9)
