"""Data drawn from a model: the same bytes everywhere, and the model that they say."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from lowvar_studies.datasets import bundled
from lowvar_studies.datasets.catalogue import DATASETS


def drawn(seed=0, rows=100, test_rows=25, features=10, **more):
    return bundled.hlr("nowhere", seed=seed, rows=rows, test_rows=test_rows, features=features, **more)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("hlr", "38ed614bf41550fa1adc0d665f042b0fa2e7d58cc4e8acd60812664af35dbc89"),
        ("hlr_sd", "2023b8ae0c0625713d6e539579e7827e39e4cba74c81a492d064ea7ca714c2f5"),
    ],
)
def test_bytes_repeat(name, digest):
    table = DATASETS[name].read(Path("nowhere"))
    found = hashlib.sha256(b"".join(table.arrays[key].astype("<f8").tobytes() for key in sorted(table.arrays)))
    assert found.hexdigest() == digest


@pytest.mark.parametrize(("intercepts", "power"), [("variance", 1), ("sd", 2)])
def test_the_draws_follow_the_model(intercepts, power):
    """Least squares finds ``mu``; what is left has the variance ``V |x|^2 + eps^2``, in both parts."""
    table = drawn(seed=3, rows=20_000, test_rows=20_000, features=4, intercepts=intercepts)
    mu, sigma, eps = (np.asarray(table.notes[key]) for key in ("mu", "sigma", "eps"))
    V = sigma**power
    for part in ("", "test_"):
        x, y = table.arrays[f"{part}x"], table.arrays[f"{part}y"][:, 0]
        variance = V * (x * x).sum(1) + eps**2
        left = (y - x @ mu) / np.sqrt(variance)
        assert abs(left.mean()) < 5 / len(x) ** 0.5
        assert abs((left**2).mean() - 1) < 5 * (2 / len(x)) ** 0.5
        slope = np.polyfit((x * x).sum(1), (y - x @ mu) ** 2, 1)
        np.testing.assert_allclose(slope, [V, eps**2], rtol=0.15)


def test_hyperparameters_follow_their_priors():
    notes = [drawn(seed, 1, 1, 10).notes for seed in range(400)]
    mu = np.array([note["mu"] for note in notes]) / 10
    logs = np.log([[note["sigma"], note["eps"]] for note in notes]) / 0.5
    for values in (mu, logs):
        assert abs(values.mean()) < 5 / values.size**0.5
        assert abs((values**2).mean() - 1) < 5 * (2 / values.size) ** 0.5
