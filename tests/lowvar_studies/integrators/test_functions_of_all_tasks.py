"""Control variates that all tasks share, additive polynomials and a network: against dense algebra and autodiff."""

import numpy as np
import pytest
import torch
from simple_samples import SMOOTH, normal, quadratic, run, smooth
from torch.func import jacrev, vmap

from lowvar.errors import UserError
from lowvar.integrals.base import Samples
from lowvar.integrals.monte_carlo import monte_carlo
from lowvar.integrals.zero_variance import monomials, stein_features, zero_variance
from lowvar_studies.integrators.additive import additive
from lowvar_studies.integrators.neural import langevin, neural, start_weights


@pytest.mark.parametrize("hidden", [(5,), (4, 6)])
def test_divergence_of_the_network(hidden):
    weights = start_weights(3, hidden, [5, 6])
    generator = torch.Generator().manual_seed(1)
    weights = [w + 0.3 * torch.randn(w.shape, dtype=w.dtype, generator=generator) for w in weights]
    x, scores = torch.randn(2, 2, 7, 3, dtype=torch.float64, generator=generator).unbind()
    for n in range(2):

        def network(z, n=n):
            for w, b in zip(weights[:-2:2], weights[1:-2:2], strict=True):
                z = torch.tanh(w[n] @ z + b[n])
            return weights[-2][n] @ z + weights[-1][n]

        def operator(z, score, network=network):
            return torch.trace(jacrev(network)(z)) + network(z) @ score

        expected = vmap(operator)(x[n], scores[n])
        torch.testing.assert_close(langevin(weights, x, scores)[n], expected, rtol=1e-12, atol=1e-12)


def test_neural_beats_the_mean():
    samples = normal(lambda t, x: smooth(0, x), 60, (60,), seed=5)
    found, plain = run(neural(steps=150), samples), run(monte_carlo(), samples)
    square, other = (found.value - SMOOTH[0]) ** 2, (plain.value - SMOOTH[0]) ** 2
    gain = other - 4 * square  # half the error, or less
    assert gain.mean() > 3 * gain.std() / np.sqrt(60), (square.mean(), other.mean())
    assert found.flags["few_points"].all()
    assert np.abs(found.fitted(0, samples.points[0], samples.scores[0]) - samples.values[0]).std() < 0.3
    start = run(neural(steps=0), samples)
    np.testing.assert_allclose(start.value, plain.value, rtol=1e-12)
    np.testing.assert_allclose(start.standard_error, plain.standard_error, rtol=1e-12)


@pytest.mark.long
def test_neural_folds_have_fair_errors():
    samples = normal(lambda t, x: smooth(0, x), 100, (60,), seed=6)
    found, fitted = run(neural(steps=60, rate=0.1, folds=2), samples), run(neural(steps=60, rate=0.1), samples)
    error = found.value - SMOOTH[0]
    assert abs(error.mean()) < 5 * error.std() / 10
    assert (np.abs(error) < 1.96 * found.standard_error).mean() > 0.85
    assert (fitted.standard_error < 0.7 * found.standard_error).mean() > 0.9
    assert not found.flags["few_points"].any()


def test_additive_is_weighted_least_squares():
    samples = normal(smooth, 2, (20, 35))
    B = np.array([[1.0, 0.5], [0.5, 2.0]])
    found = run(additive(B=B), samples)
    for r in range(2):
        exponents, blocks = monomials(2, 2), []
        for t, s in enumerate((1.5, 2.5)):
            x, scores = samples.points[t][r], samples.scores[t][r]
            member = np.zeros((len(x), 2))
            member[:, t] = 1
            blocks.append(np.column_stack([s * stein_features(exponents, x, scores), member]))
        design, y = np.concatenate(blocks), np.concatenate([values[r] for values in samples.values])
        weight = np.sqrt(np.repeat([1 / 20, 1 / 35], [20, 35]))
        inverse = np.linalg.pinv(weight[:, None] * design)
        theta = inverse @ (weight * y)
        np.testing.assert_allclose(found.value[r], theta[-2:], rtol=1e-10)
        left_out = (y - design @ theta) / (1 - np.diag(design @ (inverse * weight)))
        expected = np.sqrt((inverse[-2:] * weight) ** 2 @ left_out**2)
        np.testing.assert_allclose(found.standard_error[r], expected, rtol=1e-10)
        np.testing.assert_allclose(
            found.fitted(1, samples.points[1], samples.scores[1])[r], (design @ theta)[20:], rtol=1e-10
        )


def test_additive_errors_at_shared_points():
    x = np.random.default_rng(3).standard_normal((1000, 40, 2))
    samples = Samples((x, x), (-x, -x), tuple(smooth(0, x) + t * x[..., 0] for t in range(2)), shared=True)
    found = run(additive(row_scale="learnt"), samples)
    inside = (np.abs(found.value - SMOOTH[0]) < 1.96 * found.standard_error).mean(0)
    assert (inside > 0.9).all(), inside
    assert (inside < 0.97).all(), inside


def test_additive_learns_scales():
    samples = normal(quadratic, 3, (9, 14))
    found = run(additive(row_scale="learnt"), samples)
    np.testing.assert_allclose(found.value, [[3, 4]] * 3, rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.info["row_scale"]), [[0.5, 1]] * 3, rtol=1e-6)
    np.testing.assert_allclose(found.info["row_scale"].prod(1), -0.5, rtol=1e-6)
    apart = run(zero_variance(), normal(quadratic, 3, (9, 14)))
    assert apart.flags["few_points"].all()  # 6 unknowns for 9 points
    assert not found.flags["few_points"].any()  # 8 for 23


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda s: neural(hidden=(3, 3, 3)), "hidden"),
        (lambda s: neural(steps=-1), "steps -1"),
        (lambda s: run(neural(folds=12), s), "12 folds"),
        (lambda s: additive(row_scale="learned"), "row_scale"),
        (lambda s: run(additive(B=[[1.0]]), s), "B of additive"),
        (lambda s: run(additive(B=[[1, -1], [-1, 1]]), s), "B of additive: its rows sum to zero"),
        (lambda s: run(additive(8), s), "order 8"),
    ],
)
def test_mistakes(make, argument):
    with pytest.raises(UserError, match=argument):
        make(normal(smooth))
