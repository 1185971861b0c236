"""``lowvar.integrate`` and the precision in which numbers were calculated."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from samples_of_normal import normal

import lowvar
from lowvar.integrals.base import Samples

KNOWN = {"exact_scores": True, "polynomial": True}


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, jnp.asarray, lambda x: x.astype(np.float64)])
def test_an_exact_answer_of_single_precision_is_known_to_be_exact(kind):
    """Also of numbers that were calculated in single precision and converted: the type does not tell, the bits do."""
    x = (10 + 3 * normal(200)).astype(np.float32)
    scores, values = -(x - 10) / 9, x[:, 0] ** 2 + 2 * x[:, 1]
    found = lowvar.integrate(kind(x), kind(scores), kind(values), **KNOWN)
    assert abs(found.value[0] - 129) < found.half_width[0] < 1e-3 < found.table["monte_carlo_se"][0]


def test_precision_is_that_of_each_integrand():
    """Halves and indicators are exact; and a column of single precision says nothing of the others."""
    x = normal(200)
    first = x[:, 0]
    own = first**2, first**2 + 1e-6 * np.sin(9 * first)
    others = np.floor(2 * first) / 2, first > 0.3, (first**3).astype(np.float32)
    alone = [lowvar.integrate(x, -x, one, **KNOWN).standard_error[0] for one in own]
    assert alone[0] < 1e-13
    beside = lowvar.integrate(x, -x, np.stack([*own, *others], axis=1), **KNOWN).standard_error[:2]
    np.testing.assert_allclose(beside, alone, rtol=1e-6)


def test_precision_is_read_from_the_bits():
    x = normal(20)[None]
    kinds = {
        "double": x[..., 0], "single": x[..., 0].astype(np.float32), "quarters": np.floor(4e3 * x[..., 0]) / 4,
        "counts": np.floor(1e6 * x[..., 0]), "large": np.float32(1e9) * x[..., 0].astype(np.float32),
    }  # fmt: skip
    T = len(kinds)
    samples = Samples((x,) * T, (-x,) * T, tuple(of.astype(float) for of in kinds.values()), shared=True)
    assert (samples.rounding[0] > 1e-8).tolist() == [name in ("single", "large") for name in kinds]


def test_intervals_cover_in_single_precision_where_polynomials_are_not_quite_exact():
    """Residuals are about what counts as rounding there."""
    x = np.random.default_rng(60).normal(size=(20, 60, 1)).astype(np.float32)
    found = [lowvar.integrate(one, -one, np.exp(np.float32(0.05) * one[:, 0]), **KNOWN) for one in x]
    assert sum(abs(one.value[0] - np.exp(0.05**2 / 2)) < one.half_width[0] for one in found) >= 18
    assert sum(one.standard_error[0] < 0.3 * one.table["monte_carlo_se"][0] for one in found) >= 18


@pytest.mark.parametrize(
    "values", [lambda x: (x**2).astype(np.float16), lambda x: np.float32(1e5) + x.astype(np.float32) ** 3]
)
def test_what_low_precision_does_not_settle_is_not_called_exact(values):
    """Coarse numbers, whose residuals may hide something; and a mean so large that rounding hides the variation."""
    coarse = normal(200).astype(np.float16)
    found = lowvar.integrate(coarse, -coarse, values(coarse[:, 0]), **KNOWN)
    assert found.standard_error[0] > 1e-3 * found.table["monte_carlo_se"][0]
