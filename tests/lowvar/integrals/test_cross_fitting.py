"""Cross-fitting: unbiased, honest about its error, and no fold sees what it corrects."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from samples_of_normal import autoregression

from lowvar.integrals.base import Samples, make
from lowvar.integrals.cross_fitting import by_fits, by_products, cross_fit, cross_fitted, fold_of
from lowvar.integrals.inputs import doubt
from lowvar.integrals.monte_carlo import average, stride, worth_of_chain


def normal(repetitions, m, dim=1, seed=0):
    return np.random.default_rng(seed).normal(size=(repetitions, m, dim))


def samples(x, values, chain=False):
    return Samples((x,), (-x,), (values,), shared=True, chain=chain)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"), [("zero_variance", {"order": 1}), ("control_functional", {"lengthscale": 1.0, "nugget": 1e-4})]
)
def test_unbiased_for_independent_points(name, options):
    """Where a fit to the very points of the mean is biased."""
    x = normal(2000, 16)
    values = (x[..., 0] > 0.5) + np.cos(x[..., 0]), np.exp(1.2 * x[..., 0])
    exact = np.array([scipy.stats.norm.sf(0.5) + np.exp(-0.5), np.exp(0.72)])
    data = Samples((x, x), (-x, -x), values, shared=True)
    error = cross_fitted(make(name, options)).integrate(data, np.zeros(2000, int)).value - exact
    se = error.std(axis=0, ddof=1) / np.sqrt(2000)
    assert (np.abs(error.mean(axis=0)) < 5 * se).all(), (error.mean(axis=0), se)
    assert se[0] < 0.05 * values[0].std()


@pytest.mark.parametrize("name", ["control_functional", "zero_variance"])
def test_a_fold_sees_nothing_of_its_own_values(name):
    x = normal(1, 30, seed=2)
    y = np.sin(2 * x[..., 0])
    before = cross_fit(make(name, {}), samples(x, y), np.zeros(1, int))
    mine = fold_of(30, 5, False) == 2
    moved = np.where(mine, y + 10.0, y)
    after = cross_fit(make(name, {}), samples(x, moved), np.zeros(1, int))
    np.testing.assert_allclose((after.corrected[0] - before.corrected[0])[0, mine], 10.0, atol=1e-8)
    assert np.abs((after.corrected[0] - before.corrected[0])[0, ~mine]).max() > 1e-3


def test_copies_of_a_point_are_not_fitted_where_it_is_corrected():
    x = np.repeat(normal(1, 12, seed=3), 3, axis=1)  # rejected proposals
    y = np.random.default_rng(4).normal(size=12).repeat(3)[None]  # noise: nothing to be learnt from other points
    fit = cross_fit(make("control_functional", {"lengthscale": 0.1, "nugget": 0.0}), samples(x, y), np.zeros(1, int))
    assert fit.corrected[0].std() > 0.5 * y.std()  # a copy in the fit would leave nothing


@pytest.mark.parametrize(("chain", "width"), [(False, 1.0), (True, 1.0), (False, 2**0.5)])
def test_products_of_all_folds_are_the_fits_of_each(chain, width):
    """With copies of points, within folds and across, a coordinate that does not vary, and units that folds share, or
    that differ between them."""
    x = normal(1, 60, 3, seed=5)
    x[:, :, 0] *= width / x[:, :, 0].std(ddof=1)
    x[:, :, 2], x[:, 31], x[:, 1], x[:, 45] = 0.3, x[:, 30], x[:, 0], x[:, 4]
    scores, values = -(x + 0.3 * x**3) * [1.0, 1.0, 0.0], (np.exp(x[..., 0]) + 7, np.sin(2 * x[..., 1]))
    data = Samples((x, x), (scores, scores), values, shared=True, chain=chain)
    method = make("zero_variance", {"order": 3})
    fast, slow = by_products(method.features, data, 5), by_fits(method, data, np.zeros(1, int), 5)
    for task in range(2):
        np.testing.assert_allclose(fast.corrected[task], slow.corrected[task], atol=1e-10)
        at = (x[:, :9] + 0.1) * [1.0, 1.0, 0.0] + [0.0, 0.0, 0.3], scores[:, :9]
        np.testing.assert_allclose(fast.fitted(task, *at), slow.fitted(task, *at), atol=1e-10)


@pytest.mark.parametrize("chain", [False, True])
def test_a_fit_takes_no_more_points_than_gain_and_all_are_corrected(chain):
    x, seen = normal(1, 200, seed=3), []
    y = np.sin(x[..., 0])
    plain = make("control_functional", {"lengthscale": 1.0, "nugget": 1e-4})

    def integrate(some, seeds):
        seen.extend(some.points[0][:, :, 0])
        return plain.integrate(some, seeds)

    few = replace(plain, integrate=integrate, properties=replace(plain.properties, most=40))
    found = cross_fit(few, samples(x, y, chain), np.zeros(1, int))
    fold = fold_of(200, 5, chain)
    for points in seen:
        out = [k for k in range(5) if not np.isin(points, x[0, fold == k, 0]).any()]
        assert len(points) == 40
        assert len(out) == 1  # all other folds are fitted to
    assert len(seen) == 5
    assert np.isfinite(found.corrected[0]).all()
    assert found.corrected[0].std() < 0.05 * y.std()
    method = make("sparse_control_functional", {"inducing": 30})
    assert 30 < method.properties.most < 30 * 100


def test_dependent_features_are_fitted_by_fold():
    x = np.random.default_rng(6).choice([-1.0, 0.0, 1.0], (1, 40, 1)) + 1e-9 * normal(1, 40)  # where x^3 = x
    method, data = make("zero_variance", {"order": 3}), samples(x, np.exp(x[..., 0]))
    assert by_products(method.features, data, 5) is None
    assert np.isfinite(cross_fit(method, data, np.zeros(1, int)).corrected[0]).all()


def test_intervals_of_skew_terms_cover():
    rng = np.random.default_rng(7)
    for draw, mean in ((lambda: rng.exponential(size=(4000, 40)), 1.0), (lambda: rng.random((4000, 40)) < 0.1, 0.1)):
        found = average(draw().astype(float))
        covered = np.mean(np.abs(found.mean - mean) < found.half_width)
        plain = np.mean(np.abs(found.mean - mean) < 1.96 * found.plain_error)
        assert covered > 0.91, (covered, plain)
        assert covered >= plain


def test_what_carries_a_variance():
    assert average(np.random.default_rng(8).normal(size=(1, 3000))).carriers[0] == pytest.approx(1000, rel=0.1)
    alone = np.zeros((1, 50))
    alone[0, 3] = 1e200
    found = average(alone)
    assert found.carriers[0] == pytest.approx(1.0, abs=0.1)
    assert np.isfinite(found.half_width).all()
    assert np.isfinite(found.beyond).all()


def test_chains_are_told_from_independent_points():
    rng = np.random.default_rng(9)
    independent = rng.normal(size=(200, 100, 4))
    chain = autoregression(rng, 200, 100, 4, keep=0.8)
    assert np.mean([stride(one) > 0 for one in independent]) <= 0.01
    assert np.mean([stride(one) == 1 for one in chain]) >= 0.8
    walkers = chain[:10].transpose(1, 0, 2).reshape(-1, 4)  # ten chains whose states lie between each other
    assert stride(walkers) == 10
    assert np.median(worth_of_chain(chain)) < 30
    by_walker = autoregression(rng, 40, 10, 100, 2, keep=0.9).transpose(0, 2, 1, 3).reshape(40, -1, 2)
    assert np.mean([doubt(one, -one) is not None for one in by_walker]) < 0.3  # right scores
    alternating = autoregression(rng, 200, 100, 4, keep=-0.8)
    assert np.mean([stride(one) == 1 for one in alternating]) >= 0.8


def test_kernels_around_some_of_the_points():
    x = normal(2, 300, 2, seed=10)
    y = np.exp(0.3 * x[..., 0]) + x[..., 1] ** 2
    exact, plain = np.exp(0.045) + 1, np.abs(y.mean(axis=1) - np.exp(0.045) - 1).max()
    for inducing, share in ((300, 1e-2), (60, 5e-2)):
        found = make("sparse_control_functional", {"inducing": inducing}).integrate(samples(x, y), np.zeros(2, int))
        assert np.abs(found.value - exact).max() < share * plain
        np.testing.assert_allclose(found.fitted(0, x, -x), y, atol=0.05)
    noisy = y + 0.3 * np.random.default_rng(11).normal(size=y.shape)
    found = make("sparse_control_functional", {}).integrate(samples(x, noisy), np.zeros(2, int))
    assert (np.abs(found.value - exact) < 5 * found.standard_error).all()
    assert (found.standard_error > 0.8 * 0.3 / np.sqrt(300)).all()
    alone = make("sparse_control_functional", {}).integrate(samples(x, noisy - y), np.zeros(2, int))
    assert (alone.standard_error < 2 * 0.3 / np.sqrt(300)).all()  # the process knows nothing of such values


def test_scores_of_any_size_have_a_kernel_matrix():
    """One huge score rules the mean diagonal of a kernel matrix, and would leave nothing of a relative jitter."""
    draw = np.random.default_rng(11).gamma(0.3, size=(1, 400, 1))
    x, scores = np.log(draw), 0.3 - draw
    heavy = np.random.default_rng(12).lognormal(sigma=3.0, size=(1, 400, 1))
    for points, score in ((x, scores), (heavy, -(1 + np.log(heavy) / 9) / heavy)):
        data = Samples((points,), (score,), (np.tanh(points[..., 0]),), shared=True)
        assert np.isfinite(make("sparse_control_functional", {}).integrate(data, np.zeros(1, int)).value).all()
