"""Stan's own model under BridgeStan: transforms, shapes and Jacobians that no model written by hand has.

Where BridgeStan has its sources (it downloads them when it first compiles) and there is a compiler, or where
``LOWVAR_STAN_LIBRARY`` names the library that BridgeStan made of ``transforms.stan``.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import lowvar

bridgestan = pytest.importorskip("bridgestan")
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def model():
    library = os.environ.get("LOWVAR_STAN_LIBRARY")
    if library is None:
        sources = Path(os.environ.get("BRIDGESTAN", Path.home() / ".bridgestan"))
        if not sources.is_dir() or shutil.which("make") is None or shutil.which("g++") is None:
            pytest.skip("BridgeStan's sources or a compiler are not here, nor LOWVAR_STAN_LIBRARY")
        library = str(bridgestan.compile_model(Path(__file__).with_name("transforms.stan")))
    return bridgestan.StanModel(library, data='{"N": 3, "y": [3, 5, 4]}')


def draws(chains=4, number=250, seed=0):
    """Of the posterior, independent; ``u`` adds a factor ``rate`` to the density of ``rate``."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(15, 1 / 4, size=(chains, number))
    r = 2 * rng.beta(2, 2, size=(chains, number)) - 1
    correlation = np.stack([np.stack([np.ones_like(r), r], -1), np.stack([r, np.ones_like(r)], -1)], -1)
    return {"rate": rate, "p": rng.dirichlet([1, 2, 3], size=(chains, number)), "L": correlation,
            "w": rng.normal(size=(chains, number, 2, 3)), "u": rate * rng.random((chains, number)),
            "twice": 2 * rate, "extra": rate + 1}  # fmt: skip


def test_scores_are_the_gradient_of_stans_density(model):
    points, scores = lowvar.scores(model, draws=draws(2, 3))
    assert points.shape == (2, 3, 11)
    for chain, draw in ((0, 0), (1, 2)):
        steps = 1e-6 * np.eye(11)
        found = [
            (model.log_density(points[chain, draw] + step) - model.log_density(points[chain, draw] - step)) / 2e-6
            for step in steps
        ]
        np.testing.assert_allclose(scores[chain, draw], found, rtol=1e-5, atol=1e-6)


def test_posterior_means(model):
    found = lowvar.integrate(draws(), model, ["rate", "p", "w", "u"], "zero_variance", chain=True).table
    np.testing.assert_allclose(found["value"][:1], 15 / 4, rtol=1e-9)
    exact = np.array([15 / 4, 1 / 6, 2 / 6, 3 / 6, *np.zeros(6), 15 / 8])
    assert (np.abs(found["value"] - exact) < 5 * found["standard_error"] + 1e-9).all(), found
    assert found["gain"].min() > 50
