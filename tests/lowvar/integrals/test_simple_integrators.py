"""Integrators without kernels: closed forms, exactness, errors that cover, and what A.1 is worth."""

import numpy as np
import pytest
import scipy.stats
import torch
from samples_of_normal import autoregression
from simple_samples import SMOOTH, normal, run, smooth
from torch.func import grad, hessian, vmap

from lowvar.errors import UserError
from lowvar.integrals.base import Samples
from lowvar.integrals.monte_carlo import effective_size, first_copies, monte_carlo, ranks
from lowvar.integrals.regression import (
    jackknife,
    moving_sums,
    regress,
    regress_long_run,
)
from lowvar.integrals.zero_variance import monomials, stein_features, zero_variance


def test_effective_sizes_of_autoregressive_chains():
    for rho in (0.8, 0.0, -0.5):
        found = effective_size(autoregression(np.random.default_rng(0), 200, 2000, keep=rho, axis=1)) / 2000
        exact = (1 - rho) / (1 + rho)
        assert abs(np.median(found) / exact - 1) < 0.1, (rho, np.median(found))
    np.testing.assert_array_equal(effective_size(np.full((2, 9), 0.1)), [9.0, 9.0])
    assert (effective_size(np.tile([1.0, -1.0], (2, 20))) <= 40 * np.log10(40)).all()


@pytest.mark.parametrize("values", [1000, 4, 1])
def test_ranks_and_copies_are_those_of_libraries(values):
    points = np.random.default_rng(values).integers(0, values, size=(2, 60, 3)) / 7
    np.testing.assert_array_equal(ranks(points), scipy.stats.rankdata(points, axis=1) - 61 / 2)
    for one in (points[0], np.column_stack([np.arange(60.0), points[0]]), np.zeros((60, 1))):
        expected = [min(j for j in range(60) if (one[j] == row).all()) for row in one]
        np.testing.assert_array_equal(first_copies(one), expected)


def test_monte_carlo():
    samples = normal(smooth, 3, (30, 8))
    found = run(monte_carlo(), samples)
    for t, values in enumerate(samples.values):
        np.testing.assert_allclose(found.value[:, t], values.mean(1), rtol=1e-12)
        np.testing.assert_allclose(found.standard_error[:, t], values.std(1, ddof=1) / np.sqrt(values.shape[1]))
    np.testing.assert_array_equal(found.fitted(1, np.zeros((3, 4, 2)), np.zeros((3, 4, 2)))[:, 2], found.value[:, 1])
    assert np.isfinite(run(monte_carlo(True), normal(smooth, 3, (2, 3))).standard_error).all()


def test_monte_carlo_along_a_chain():
    """test_chain_coverage.py has how often its intervals cover."""
    z = autoregression(np.random.default_rng(0), 200, 400, keep=0.8, axis=1)
    samples = Samples((z[..., None],), (-z[..., None],), (z,), chain=True)
    found, blind = run(monte_carlo(), samples), run(monte_carlo(correlated=False), samples)
    assert (found.standard_error > 2 * blind.standard_error).mean() > 0.95
    assert not found.flags["few_states"].any()
    assert run(monte_carlo(), samples.first([20])).flags["few_states"].mean() > 0.5


def test_features_are_the_operator_on_monomials():
    exponents = monomials(2, 3)
    assert len(exponents) == 9
    x, scores = torch.randn(2, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    columns = []
    for row in torch.as_tensor(exponents):

        def monomial(z, row=row):
            return torch.prod(z**row)

        def operator(z, score, monomial=monomial):
            return torch.trace(hessian(monomial)(z)) + grad(monomial)(z) @ score

        columns.append(vmap(operator)(x, scores))
    found = stein_features(exponents, x.numpy(), scores.numpy())
    np.testing.assert_allclose(found, torch.stack(columns, -1), rtol=1e-12, atol=1e-12)


def reference(x, scores, y, order=2):
    """Constant and its standard error (HC3) by the normal equations of one data set."""
    columns = stein_features(monomials(x.shape[1], order), x, scores)
    design = np.column_stack([np.ones(len(y)), columns])
    inverse = np.linalg.inv(design.T @ design) @ design.T
    left_out = (y - design @ inverse @ y) / (1 - np.diag(design @ inverse))
    return inverse[0] @ y, np.sqrt(np.sum((inverse[0] * left_out) ** 2))


def test_zero_variance_is_the_constant_of_a_regression():
    samples = normal(smooth, 2, (20, 31))
    found = run(zero_variance(), samples)
    for r, t in np.ndindex(2, 2):
        expected = reference(samples.points[t][r], samples.scores[t][r], samples.values[t][r])
        np.testing.assert_allclose((found.value[r, t], found.standard_error[r, t]), expected, rtol=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_errors_are_those_of_leaving_out(shared):
    """Rows, or points that several tasks share: the fit without them differs by what the error adds up."""
    samples = normal(smooth, 1, (12, 12))
    x, scores = (np.concatenate([of[0][0], of[0 if shared else 1][0]]) for of in (samples.points, samples.scores))
    features = stein_features(monomials(2, 1), x, scores)[None]
    y = np.concatenate([smooth(0, x[:12]), smooth(1, x[12:])])[None, :, None]
    member = np.repeat(np.eye(2), 12, axis=0)
    fit = regress(features, member, y, shared=shared)
    design = np.concatenate([features[0], member], axis=1)
    square = np.zeros(2)
    for left in [[j, j + 12] for j in range(12)] if shared else [[j] for j in range(24)]:
        kept = [j for j in range(24) if j not in left]
        without = np.linalg.lstsq(design[kept], y[0, kept])[0][2:]
        square += (fit.beta[0] - without)[:, 0] ** 2
    np.testing.assert_allclose(fit.error[0, :, 0], np.sqrt(square), rtol=1e-4)


def test_zero_variance_is_exact_for_quadratics_whatever_the_units():
    rng = np.random.default_rng(1)
    root = np.array([[1e4, 0, 0], [2e3, 30, 0], [1e3, 5, 0.01]])
    mean = np.array([1e5, -3.0, 0.1])
    z = rng.standard_normal((4, 25, 3))
    points, scores = mean + z @ root.T, -z @ np.linalg.inv(root)
    covariance = root @ root.T
    A = np.array([[1e-8, 0, 1e-3], [0, 1e-3, 0], [1e-3, 0, 10]])
    values = 7.0 + np.einsum("rmi,ij,rmj->rm", points, A, points) + points @ np.array([1e-4, 1.0, 1.0])
    exact = 7.0 + np.sum(A * (covariance + np.outer(mean, mean))) + mean @ np.array([1e-4, 1.0, 1.0])
    samples = Samples((points,), (scores,), (values,))
    found = run(zero_variance(), samples)
    assert np.abs(found.value - exact).max() < 1e-9 * values.std()
    assert np.abs(found.fitted(0, points, scores) - values).max() < 1e-9 * values.std()
    assert not any(flag.any() for flag in found.flags.values())
    assert np.abs(run(zero_variance(1), samples).value - exact).max() > 1e-2 * values.std()  # it takes both orders


@pytest.mark.parametrize("integrator", [zero_variance(), zero_variance(objective="mcmc", lags=3)])
def test_bias_and_cover(integrator):
    samples = normal(smooth, 1000, (60, 60), seed=2)
    found = run(integrator, samples)
    error = found.value - SMOOTH
    plain = run(monte_carlo(), samples).value - SMOOTH
    spread = error.std(0, ddof=1) / np.sqrt(1000)
    assert (np.abs(error.mean(0)) < 5 * spread + 0.02 * plain.std(0)).all(), (error.mean(0), spread)  # bias is O(1 / m)
    assert (error.std(0) < 0.8 * plain.std(0)).all()
    inside = (np.abs(error) < 1.96 * found.standard_error).mean(0)
    assert (inside > 0.9).all(), inside
    assert (inside < 0.985).all(), inside  # wider along a chain, where the variance is less well known


def test_zero_variance_knows_when_points_are_few():
    assert run(zero_variance(), normal(smooth, 2, (11,))).flags["few_points"].all()  # 6 unknowns
    assert not run(zero_variance(), normal(smooth, 2, (12,))).flags["few_points"].any()
    with pytest.raises(UserError, match=r"task 1 has 6 points .*: order 1 would do"):
        run(zero_variance(), normal(smooth, 2, (20, 6)))


@pytest.mark.parametrize("order", [2, 3])
def test_dependent_features_are_no_directions_of_a_fit(order):
    """What is left of a dependent feature is rounding; a fit to it would hang on a processor's last bits."""
    rng = np.random.default_rng(1)
    x = rng.choice([-1.0, 1.0], (100, 40, 1))  # 2 - 2 x^2 is zero at these points
    x[:5, :20], x[:5, 20:] = 1.0, -1.0  # balanced: a feature that would be zero is rounding
    values = 2 + 3 * x[..., 0] + 0.1 * rng.standard_normal((100, 40))
    found = run(zero_variance(order), Samples((x,), (-x,), (values,)))
    assert (np.abs(found.value[:, 0] - 2) < 5 * found.standard_error[:, 0]).all()
    assert (found.standard_error < 0.1 * values.std()).all()
    assert np.sqrt(((found.value - 2) ** 2).mean()) < 0.03
    moved = run(zero_variance(order), Samples((x * (1 + 1e-15),), (-x,), (values,)))
    np.testing.assert_allclose(moved.value, found.value, atol=1e-11)


def test_features_that_span_a_constant_give_no_estimate():
    x = np.random.default_rng(0).choice([1.0, 3.0], (3, 40, 1))  # 2 - 2 x^2 and x^2 - 4 x + 3 are zero there
    found = run(zero_variance(), Samples((x,), (-x,), (2 + 3 * x[..., 0],)))
    assert np.isnan(found.value).all()
    assert found.flags["ill_conditioned"].all()


def test_a_coordinate_that_does_not_vary_adds_nothing():
    """Its features under a score of zero would be constants, such as the Laplacian of its square."""
    two = normal(smooth, 2, (24,))
    still = np.full((2, 24, 1), 0.3)
    three = [np.concatenate([of[0], more], axis=2) for of, more in ((two.points, still), (two.scores, 0 * still))]
    found = run(zero_variance(), Samples((three[0],), (three[1],), two.values))
    np.testing.assert_allclose(found.value, run(zero_variance(), two).value, rtol=1e-10)


def test_long_run_least_squares():
    x = autoregression(np.random.default_rng(0), 2, 50, 1, keep=0.5)
    features = stein_features(monomials(1, 2), x, -x)
    y, lags = np.exp(x), 4
    fit = regress_long_run(features, y, lags)
    shift = np.abs(np.arange(50)[:, None] - np.arange(50))
    bartlett = np.maximum(1 - shift / (lags + 1), 0)
    centre = np.eye(50) - 1 / 50
    weights = centre @ bartlett @ centre
    series = centre @ y
    np.testing.assert_allclose(
        (moving_sums(series, lags) ** 2).sum(1), 5 * (series.mT @ bartlett @ series)[..., 0], rtol=1e-10
    )
    theta = np.linalg.solve(features.mT @ weights @ features, features.mT @ weights @ y)
    np.testing.assert_allclose(fit.theta, theta, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(fit.beta, (y - features @ theta).mean(1, keepdims=True), rtol=1e-7, atol=1e-7)
    # the estimate as a function of the values: weights that sum to one and give the features zero
    eye = np.tile(np.eye(50), (2, 1, 1))
    influence = regress_long_run(features, eye, lags).beta
    np.testing.assert_allclose(influence @ features, 0.0, atol=1e-12)
    np.testing.assert_allclose(influence.sum(2), 1.0, rtol=1e-12)
    residual = y - fit.beta - features @ fit.theta
    hat = influence + features @ regress_long_run(features, eye, lags).theta
    leverage = np.diagonal(hat, axis1=1, axis2=2)
    error, half, effective = jackknife(residual, leverage[..., None], influence, np.ones((50, 1)), True)
    np.testing.assert_allclose(fit.error, error, rtol=1e-7)
    np.testing.assert_allclose(fit.half, half, rtol=1e-7)
    np.testing.assert_array_equal(fit.effective, effective)
    block = np.maximum(50 / effective[:, 0], 1)
    terms = (influence[:, 0] * residual[..., 0] / np.maximum(1 - leverage * block, 0.1)) ** 2
    carriers = terms.sum(1) ** 2 / (terms**2).sum(1) / block[:, 0]
    wide = scipy.stats.t.isf(0.025, np.maximum(carriers - 1, 1)) / scipy.stats.norm.isf(0.025)
    np.testing.assert_allclose(error[:, 0, 0], np.sqrt(terms.sum(1) * 50 / effective[:, 0, 0]), rtol=1e-10)
    np.testing.assert_allclose(half[:, 0, 0], error[:, 0, 0] * wide * scipy.stats.norm.isf(0.025), rtol=1e-10)
    plain, none = regress(features, np.ones_like(y[0]), y, True), regress_long_run(features, y, 0)
    for name in ("beta", "theta", "error"):
        np.testing.assert_allclose(getattr(none, name), getattr(plain, name), rtol=1e-9, atol=1e-12)


def test_the_variance_along_a_chain_is_worth_half_of_the_error():
    """Log-normal target: the score has components that the chain forgets at different rates."""
    z = autoregression(np.random.default_rng(4), 1000, 1000, keep=-0.8, axis=1)
    x = np.exp(0.7 * z)
    scores = -(1 + z / 0.7) / x
    samples = Samples((x[..., None],), (scores[..., None],), (x,), chain=True)
    along, plain = (
        (run(zero_variance(1, objective), samples).value[:, 0] - np.exp(0.7**2 / 2)) ** 2
        for objective in ("mcmc", "least_squares")
    )
    ratio = along.mean() / plain.mean()
    error = np.std(along - ratio * plain) / np.sqrt(1000) / plain.mean()
    assert ratio + 3 * error < 0.5, (ratio, error)


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"order": 0}, "order"), ({"objective": "least"}, "objective"), ({"lags": 3}, "lags"),
     ({"objective": "mcmc", "lags": 11}, "lags")],
)  # fmt: skip
def test_mistakes(options, argument):
    with pytest.raises(UserError, match=argument):
        run(zero_variance(**options), normal(smooth))


def test_tasks_at_the_same_points_are_solved_as_those_apart():
    alike = normal(smooth, 3, (24, 24))
    x, scores = alike.points[0], alike.scores[0]
    values = tuple(smooth(t, x) for t in range(2))
    shared, apart = (
        run(zero_variance(), Samples((x, x), (scores, scores), values, shared=shared)) for shared in (True, False)
    )
    for name in ("value", "standard_error", "condition"):
        np.testing.assert_allclose(getattr(shared, name), getattr(apart, name))
    np.testing.assert_allclose(shared.fitted(1, x, scores), apart.fitted(1, x, scores))
