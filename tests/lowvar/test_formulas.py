"""Diagnostics and errors against transcriptions of their formulas in plain NumPy, at fixed numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lowvar.core.backend import get
from lowvar.core.intervals import bootstrap_ratio, median_interval, ratio_interval, share_interval, spread_interval
from lowvar.integrals.base import Samples, make
from lowvar.integrals.cross_fitting import cross_fitted
from lowvar.integrals.monte_carlo import average, student
from lowvar.vi import crossed as D
from lowvar.vi.estimators.base import Properties, stateless
from lowvar.vi.judgement import gain, khat, khat_limit, response, spread, to_optimum


class Cells:
    """A problem whose estimate of row ``n`` under ``eps`` is an entry of a table."""

    backend, blocks, N = get("torch"), {"mu": 2}, 5

    def __init__(self, table):
        self.table = self.backend.asarray(table)

    def gradient(self, params, noise):
        column = noise.eps[0, 0].to(int)[None]
        return {"mu": noise.weight @ self.table[:, column][noise.index][:, 0]}


@pytest.mark.parametrize("rows", [None, 4])
def test_components_of_a_crossed_design(rows):
    """With all ``N`` rows: ``V_int = SS_int / (N (S - 1))``; with ``R`` drawn ones: ``SS_int / ((R - 1) (S - 1))``."""
    S, rng = 3, np.random.default_rng(0)
    table = rng.normal(size=(5, S, 2))
    problem = Cells(table)
    estimator = stateless("cells", problem, Properties(unbiased=True), problem.gradient)
    index = np.array([3, 0, 4, 1, 2]) if rows is None else np.array([1, 1, 4, 2])
    chunks = index.reshape(1, -1, 1)
    found = D.components(
        estimator, (), {}, problem.backend.asarray(chunks), problem.backend.asarray(np.ones(chunks.shape)),
        problem.backend.asarray(np.arange(S, dtype=float)[:, None, None]), all_rows=rows is None,
    )  # fmt: skip
    g = table[index]
    R, by_row, by_column, grand = len(g), g.mean(1), g.mean(0), g.mean((0, 1))
    ss_int = ((g - by_row[:, None] - by_column + grand) ** 2).sum((0, 1))
    ss_rows, ss_columns = S * ((by_row - grand) ** 2).sum(0), R * ((by_column - grand) ** 2).sum(0)
    if rows is None:  # divisors N, as rows are all that there are; columns are exact in the rows
        v_int = ss_int / (R * (S - 1))
        v_n, v_eps = ss_rows / (S * R) - v_int / S, ss_columns / (R * (S - 1))
    else:
        v_int = ss_int / ((R - 1) * (S - 1))
        v_n, v_eps = ss_rows / (S * (R - 1)) - v_int / S, ss_columns / (R * (S - 1)) - v_int / R
    np.testing.assert_allclose(np.asarray(found), [v_n, v_eps, v_int], rtol=1e-10)


@pytest.mark.parametrize(("rows", "smaller"), [(None, 1.0), (50, 30 / 49)])
def test_variances_of_a_batch(rows, smaller):
    """``V_n / B + V_eps + V_int / B``, the first and the last times ``(N - B) / (N - 1)`` without replacement."""
    import pandas as pd

    single = pd.DataFrame({"run": 0, "replicate": range(3), "subsampling": [2.0, 4, 6], "monte_carlo": [1.0, 1, 2],
                           "interaction": [0.5, 1, 0]})  # fmt: skip
    parts = D.batch_variances(single, 20, rows)
    np.testing.assert_allclose(parts["subsampling"], smaller * np.array([2.0, 4, 6]) / 20)
    np.testing.assert_allclose(parts["interaction"], smaller * np.array([0.5, 1, 0]) / 20)
    np.testing.assert_allclose(
        parts["total"], smaller * (single["subsampling"] + single["interaction"]) / 20 + [1, 1, 2]
    )


def shape_of_tail(logs):
    """k-hat: Vehtari et al. (2024), algorithm 1 and appendix; Zhang and Stephens (2009), with ``M`` weights."""
    weights = np.sort(np.exp(logs - logs.max()))
    M = int(np.ceil(min(len(weights) / 5, 3 * np.sqrt(len(weights)))))
    x = np.sort(weights[-M:] - weights[-M - 1])
    m = 30 + int(np.sqrt(M))
    j = np.arange(1, m + 1)
    theta = 1 / x[-1] + (1 - np.sqrt(m / (j - 0.5))) / (3 * x[int(M / 4 + 0.5) - 1])
    k = np.log1p(-theta[:, None] * x).mean(1)
    profile = M * (np.log(-theta / k) - k - 1)
    posterior = np.exp(profile - profile.max())
    b = theta @ posterior / posterior.sum()
    return (np.log1p(-b * x).mean() * M + 10 * 0.5) / (M + 10)


@pytest.mark.parametrize(("S", "tail"), [(400, 0.2), (1000, 0.6), (1000, 1.1)])
def test_khat_is_the_shape_of_the_tail(S, tail):
    logs = -tail * np.log(np.random.default_rng(S).uniform(size=S))  # Pareto weights
    assert khat(logs) == pytest.approx(shape_of_tail(logs), rel=1e-6)
    assert khat(logs[::-1] - 300) == pytest.approx(khat(logs), rel=1e-9)


def test_reliable_weights_and_their_moments():
    assert khat_limit(100) == 0.5
    assert khat_limit(1000) == pytest.approx(2 / 3)
    assert khat_limit(10**6) == 0.7
    rng = np.random.default_rng(0)
    logs, z = rng.normal(size=50), rng.normal(size=(50, 2))
    share = np.exp(logs) / np.exp(logs).sum()
    expected = np.sqrt(share @ z**2 - (share @ z) ** 2)
    np.testing.assert_allclose(spread(logs + 700, z), expected, rtol=1e-10)


def test_errors_of_skew_terms():
    """``s / sqrt(m)``, and half widths with Student's quantile, by ``(sum q)^2 / sum q^2 - 1`` freedoms."""
    terms = np.random.default_rng(1).exponential(size=(3, 24))
    found, q = average(terms), (terms - terms.mean(1, keepdims=True)) ** 2
    carriers = q.sum(1) ** 2 / (q**2).sum(1)
    np.testing.assert_allclose(found.plain_error, terms.std(1, ddof=1) / np.sqrt(24), rtol=1e-12)
    np.testing.assert_allclose(found.carriers, carriers, rtol=1e-10)
    quantile = scipy.stats.t.ppf(0.975, np.maximum(carriers - 1, 1))
    np.testing.assert_allclose(found.half_width, found.plain_error * quantile, rtol=1e-10)
    np.testing.assert_allclose(student(np.array([0.2, 3.0])), scipy.stats.t.ppf(0.975, [1, 3]) / 1.959963984540054)


def test_a_cross_fitted_mean_and_its_error():
    """Each fifth of the points is corrected by a line fitted to the others; the error is of the corrected values."""
    m, rng = 40, np.random.default_rng(2)
    x = rng.normal(size=(1, m, 2))
    y = np.exp(0.5 * x[0, :, 0]) + x[0, :, 1] ** 2
    found = cross_fitted(make("zero_variance", {"order": 1})).integrate(
        Samples((x,), (-x,), (y[None],), shared=True), np.zeros(1, int)
    )
    corrected, features = np.empty(m), -x[0]  # the operator on x is the score
    for k in range(5):
        out = np.arange(m) % 5 == k
        design = np.column_stack([np.ones(m - out.sum()), features[~out]])
        coefficients = np.linalg.lstsq(design, y[~out], rcond=None)[0]
        corrected[out] = y[out] - features[out] @ coefficients[1:]
    q = (corrected - corrected.mean()) ** 2
    quantile = scipy.stats.t.ppf(0.975, q.sum() ** 2 / (q**2).sum() - 1)
    assert found.value[0, 0] == pytest.approx(corrected.mean(), rel=1e-9)
    error = corrected.std(ddof=1) / np.sqrt(m)
    assert found.standard_error[0, 0] == pytest.approx(error, rel=1e-9)
    assert found.half[0, 0] == pytest.approx(error * quantile, rel=1e-9)


def test_the_closed_form_of_control_functionals_and_its_error():
    """``beta = 1' M^-1 y / 1' M^-1 1`` with error ``sigma / sqrt(1' M^-1 1)``, ``M`` of eq. (3) of Sun, Barp and Briol."""
    x, ridge, nu, m = np.random.default_rng(6).normal(size=9), 1e-2, 10.0, 9
    y, r, score = np.sin(x), x[:, None] - x, -x
    slopes = r / nu * (score[:, None] - score)
    M = np.exp(-(r**2) / 2 / nu) * (1 / nu - r**2 / nu**2 + slopes + np.outer(score, score)) + ridge * np.eye(m)
    method = make("paper_cf", {"ridge": ridge, "nu": nu, "tuning_epochs": 0})
    one = x[None, :, None]
    found = method.integrate(Samples((one,), (-one,), (y[None],), shared=True), np.zeros(1, int))
    precision = np.linalg.inv(M).sum()
    beta = np.linalg.solve(M, y).sum() / precision
    variance = (y - beta) @ np.linalg.solve(M, y - beta) / (m - 1)
    assert found.value[0, 0] == pytest.approx(beta, rel=1e-8)
    assert found.standard_error[0, 0] == pytest.approx(np.sqrt(variance / precision), rel=1e-8)


def test_ridge_around_some_of_the_points_and_its_error():
    """``|y - beta - Phi' w|^2 + p |w|^2`` and HC3: each residual over one minus its leverage, times its influence."""
    from lowvar.integrals.exact.sparse_control_functional import ridge

    rng, m = np.random.default_rng(7), 15
    phi, y = rng.normal(size=(4, m)), rng.normal(size=(m, 2))
    y = y - y.mean(0)
    beta, error, weights, relative, _, _ = ridge(phi.copy(), y)
    centred = phi - phi.mean(1, keepdims=True)
    for t, p in enumerate(relative * np.linalg.eigvalsh(centred @ centred.T).max()):
        design = np.column_stack([np.ones(m), phi.T])
        hat = np.linalg.solve(design.T @ design + np.diag([0.0, p, p, p, p]), design.T)
        found = hat @ y[:, t]
        left_out = (y[:, t] - design @ found) / (1 - np.einsum("mk,km->m", design, hat))
        np.testing.assert_allclose([beta[t], *weights[:, t]], found, rtol=1e-7, atol=1e-9)
        assert float(error[t]) == pytest.approx(np.linalg.norm(hat[0] * left_out), rel=1e-7)


def test_intervals_of_ratios_medians_shares_and_spreads():
    rng = np.random.default_rng(3)
    a, b = rng.exponential(size=(2, 8)) + 1
    ratio, low, high = ratio_interval(a, b)
    pseudo = np.array([8 * a.sum() / b.sum() - 7 * np.delete(a, i).sum() / np.delete(b, i).sum() for i in range(8)])
    half = scipy.stats.t.ppf(0.975, 7) * pseudo.std(ddof=1) / np.sqrt(8)
    np.testing.assert_allclose([ratio, low, high], [a.sum() / b.sum() + s * half for s in (0, -1, 1)], rtol=1e-10)
    for n, rank in ((6, 1), (8, 1), (9, 2), (20, 6)):  # the largest j with P(Bin(n, 1/2) < j) <= 0.025
        values = np.arange(1.0, n + 1)
        assert median_interval(values) == (rank, n + 1 - rank)
    for count, n in ((0, 7), (3, 7), (7, 7)):
        exact = scipy.stats.binomtest(count, n).proportion_ci(0.95, "exact")
        np.testing.assert_allclose(share_interval(count, n), [exact.low, exact.high], atol=1e-12)
    sd = a.std(ddof=1)
    chi = np.sqrt(7 / scipy.stats.chi2.ppf([0.975, 0.025], 7))
    np.testing.assert_allclose(spread_interval(a), [sd, *(sd * chi)], rtol=1e-10)


def test_the_studentised_bootstrap_of_a_ratio():
    """Efron and Tibshirani (1993), chapter 12, of the logarithm, with the resamples of its seed."""
    rng = np.random.default_rng(4)
    a, b = rng.exponential(size=(2, 9)) + 0.5

    def log_ratio(a, b):
        residual = a / a.mean() - b / b.mean()
        return np.log(a.mean() / b.mean()), np.sqrt((residual**2).mean() / len(a))

    log, error = log_ratio(a, b)
    resamples = np.random.default_rng(0).multinomial(9, np.full(9, 1 / 9), size=4000)
    each = [log_ratio(np.repeat(a, one), np.repeat(b, one)) for one in resamples]
    t = np.sort([(one - log) / of for one, of in each])
    low, high = (np.exp(log - t[round(4000 * tail) - 1] * error) for tail in (0.975, 0.025))
    np.testing.assert_allclose(bootstrap_ratio(a, b), [np.exp(log), low, high], rtol=5e-3)  # one resample more or less


def test_the_gain_of_a_newton_step_is_exact_for_an_independent_posterior():
    """``sigma^2 g_mu^2 / 2 + g_log_sigma^2 / 4``: at the optimal ``sigma``, ``(mu - m)^2 / (2 s^2)``, as the path
    derivative in ``mu`` has no noise there, and that in ``log sigma`` has mean zero."""
    import jax

    from lowvar.vi.variational import VariationalProblem

    y, x = jnp.asarray([1.0, 3.0, 2.0]), jnp.eye(2)[jnp.asarray([0, 1, 0])]
    p = VariationalProblem(
        "normal", get("jax"), 3, 2, lambda z, index: -0.5 * (y[index] - x[index] @ z) ** 2,
        lambda z: -0.5 * jnp.sum(z * z),
    )  # fmt: skip
    precision, mean = np.array([3.0, 2.0]), np.array([1.0, 1.5])
    off = np.array([1.0, -1.0])
    found, _ = gain(p, {"mu": jnp.asarray(mean + off), "log_sigma": -0.5 * jnp.log(precision)}, jax.random.key(0))
    np.testing.assert_allclose(found, off**2 * precision / 2, rtol=0.25)  # log sigma's noise over 16 particles


def test_densities_of_local_events_have_their_jacobians():
    """Two latent vectors of each row: the sum over rows is NumPyro's own potential energy."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.util import potential_energy

    from lowvar.vi.numpyro.model import from_numpyro

    def model(y, batch_size=None):
        m = numpyro.sample("m", dist.Normal(0, 1))
        with numpyro.plate("data", 4, subsample_size=batch_size) as index:
            k = numpyro.sample("k", dist.Gamma(2.0, 2.0).expand([2]).to_event(1))
            mix = numpyro.sample("mix", dist.Dirichlet(jnp.ones(3)))
            numpyro.sample("y", dist.Poisson(k.sum(-1) * jnp.exp(m) * (1 + mix[:, 0])), obs=y[index])

    data, rng = {"y": jnp.arange(4)}, np.random.default_rng(5)
    with jax.numpy_rank_promotion("allow"):  # in NumPyro's transformation to a simplex
        p = from_numpyro(model, data, key=jax.random.key(0))
        z = jnp.asarray(0.5 * rng.normal(size=p.dim))
        ours = jax.jit(lambda z: p.log_likelihood(z, jnp.arange(4)).sum() + p.log_prior(z))(z)
        theirs = jax.jit(lambda z: -potential_energy(model, (), data, p.unravel(z)))(z)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_densities_of_pyro_models_have_their_jacobians():
    import pyro
    import torch

    import lowvar

    def model(y):
        s = pyro.sample("s", pyro.distributions.HalfNormal(1.0))
        with pyro.plate("data", 3) as index:
            pyro.sample("y", pyro.distributions.Normal(0.0, s), obs=y[index])

    p = lowvar.TorchModel.from_pyro(model, {"y": torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)})
    z = torch.tensor([-0.4], dtype=torch.float64)
    assert float(p.log_prior(z)) == pytest.approx(scipy.stats.halfnorm.logpdf(np.exp(-0.4)) - 0.4, rel=1e-7)


def test_means_are_off_in_standard_deviations_of_the_best_guide():
    """Of a guide that is 1.5 times too wide, and one standard deviation of the best one away from it."""
    precision, wide = np.array([[1.0, 0.4], [0.4, 1.0]]), 1.5
    mean = np.array([1.0, 0.0])
    z = mean + wide * np.random.default_rng(0).normal(size=(20_000, 2))
    weights = -0.5 * np.einsum("ij,jk,ik->i", z, precision, z) + 0.5 * (((z - mean) / wide) ** 2).sum(1)
    found = to_optimum(weights, z, mean, np.full(2, wide))
    assert (found.mean_se < 0.05).all()
    assert (np.abs(found.mean - mean) < 5 * found.mean_se).all()
    assert (np.abs(found.sd - 0.5) < 5 * found.sd_se).all()


@pytest.mark.parametrize("other", [lambda a, noise: a + 1e-9 * noise, lambda a, noise: 1e6 + 0 * a])
def test_draws_without_a_width_have_no_linear_response(other):
    a, noise, weights = np.random.default_rng(0).normal(size=(3, 1000))
    assert response(weights, np.stack([a, noise], 1)) is not None
    assert response(weights, np.stack([a, other(a, noise)], 1)) is None
