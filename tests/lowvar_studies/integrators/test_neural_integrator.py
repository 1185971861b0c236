"""The network: its divergence, its folds, and what it sees."""

import numpy as np
import pytest
import torch
from simple_samples import SMOOTH, normal, quadratic, run, smooth
from torch.func import jacrev, vmap

from lowvar.errors import UserError
from lowvar.integrals.monte_carlo import monte_carlo
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


def test_neural_sees_row_sums_alone():
    samples = normal(quadratic, 2, (10, 12))
    of = [run(neural(steps=20, B=B), samples).value for B in ([[0.5, 0.5], [0.5, -2.5]], [[1.0, 0], [0, -2.0]], None)]
    np.testing.assert_allclose(of[0], of[1], rtol=1e-10)
    assert np.abs(of[0] - of[2]).max() > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: neural(hidden=(3, 3, 3)), "hidden .* of neural: it must be the widths of one or two layers"),
        (lambda s: neural(steps=-1), "steps -1: it must be a whole number, 0 or more"),
        (lambda s: neural(rate=float("nan")), "rate nan: it must be a number, 0 or more"),
        (lambda s: run(neural(folds=12), s), "12 folds of neural: a task has 20 points, too few to split"),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(UserError, match=message):
        make(normal(smooth))
