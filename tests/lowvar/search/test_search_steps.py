"""Each search, step by step, against a transcription of its formula in plain NumPy, with matrices and inverses.

Each case is three generations from one start with fixed draws and values, so that paths and step sizes count. The
formulas are those of Lyu and Tsang, Algorithms 1 to 3 and Appendix A, with ``w_i = h_i / N``; of Hansen's tutorial
(arXiv:1604.00772); and of the docstrings, for the searches that are ours.
"""

import math

import numpy as np
import pytest
import scipy.linalg

from lowvar.core import backend as backends
from lowvar.search.problem import Domain
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.fast_ingo import DiagonalState
from lowvar.search.solvers.gaussian import FactoredState

TORCH = backends.get("torch")


def clipped(matrix, least=1e-3):
    """The matrix with eigenvalues of ``least`` or more."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, least)) @ vectors.T


def exponential(matrix, least=0.25):
    """Its exponential, with eigenvalues of ``least`` or more."""
    return clipped(scipy.linalg.expm(matrix), least)


def power(matrix, exponent):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


class Gaussian:
    """``N(mu, A A')``, and ``M = sum_i w_i (z_i z_i' - I)``, ``s = sum_i w_i z_i``."""

    def __init__(self, mean, sigma, n, **shaping):
        self.mean, self.d, self.n, self.shaping = mean, len(mean), n, shaping
        self.A = sigma * np.eye(self.d)
        self.began()

    def began(self):
        self.beta = 1 / self.d

    @property
    def covariance(self):
        return self.A @ self.A.T

    def points(self, z):
        return self.mean + z @ self.A.T

    def weights(self, values):
        return shaped(values, self.n, **self.shaping)

    def moments(self, z, w):
        return w @ z, sum(one * (np.outer(a, a) - np.eye(self.d)) for one, a in zip(w, z, strict=True))


class Ingo(Gaussian):
    """``Sigma^-1 + 2 beta grad_Sigma J``, then ``mu - beta Sigma_new grad_mu J`` (eqs. 10, 11)."""

    def tell(self, z, values):
        s, M = self.moments(z, self.weights(values))
        B = clipped(np.eye(self.d) + self.beta * M)
        self.moved(s, B)
        self.A = self.A @ power(B, -0.5)

    def moved(self, s, B):
        self.mean = self.mean - self.beta * self.A @ np.linalg.solve(B, s)


class IngoStep(Ingo):
    """``mu - beta Sigma_old grad_mu J`` (Algorithm 2)."""

    def moved(self, s, B):
        self.mean = self.mean - self.beta * self.A @ s


class Igo(Gaussian):
    """``Sigma - 2 beta Sigma grad_Sigma J Sigma``: Ollivier et al."""

    def tell(self, z, values):
        s, M = self.moments(z, self.weights(values))
        self.mean = self.mean - self.beta * self.A @ s
        self.A = self.A @ power(clipped(np.eye(self.d) - self.beta * M), 0.5)


class FastIngo(Gaussian):
    """Algorithm 1 with a diagonal ``Sigma``."""

    def began(self):
        self.beta = 1 / math.sqrt(self.d)

    def tell(self, z, values):
        w, sigma = self.weights(values), np.diag(self.A)
        new = 1 / np.sqrt(1 / sigma**2 + self.beta * (w @ z**2) / sigma**2)
        self.mean = self.mean - self.beta * new**2 * (w @ z) / sigma
        self.A = np.diag(new)


class FastIngoAdaptive(FastIngo):
    """``log beta + g (share - R^2)``, ``R^2 = (|s|^2 - sum_i w_i^2 |z_i|^2) N / (N - 1)``, between two bounds."""

    def tell(self, z, values):
        super().tell(z, values)
        w, n = self.weights(values), self.n
        explained = (((w @ z) ** 2).sum() - (w**2 * (z**2).sum(1)).sum()) * n / (n - 1)
        rate = 0.025 * n / math.sqrt(2 * self.d)
        least = 1 / math.sqrt(self.d)
        self.beta = np.clip(self.beta * math.exp(rate * (0.2 - explained)), least, max(least, min(4 * least, 0.5)))


class Es(Gaussian):
    """``mu - a s / sigma``: Salimans et al., Algorithm 1."""

    def tell(self, z, values):
        self.mean = self.mean - 0.01 * (self.weights(values) @ z) / self.A[0, 0]


class Reinforce(Gaussian):
    """Gradient descent on ``mu`` and the diagonal of ``Sigma`` (eqs. 12, 13)."""

    def tell(self, z, values):
        w, sigma = self.weights(values), np.diag(self.A)
        self.mean = self.mean - 1e-3 * (w @ z) / sigma
        self.A = np.diag(np.sqrt(sigma**2 - 1e-3 * 0.5 * (w @ (z**2 - 1)) / sigma**2))


class Bounded(Gaussian):
    """Algorithm 3: ``Sigma^-1 + 2 beta G``, ``b <= G <= gamma / 2``, here ``b = 0.5`` and ``gamma = 2``."""

    def tell(self, z, values):
        sigma = np.diag(self.A)
        g, G = self.estimates(z, values, sigma)
        new = 1 / (1 / sigma**2 + 2 * self.beta * np.clip(G, 0.5, 1.0))
        self.mean, self.A = self.mean - self.beta * new * g, np.diag(np.sqrt(new))


class ZerothOrder(Bounded):
    """From values, with ``f(mu)`` as baseline (eq. 31)."""

    def estimates(self, z, values, sigma):
        h = shaped(values, self.n, "centre")
        return h @ z / sigma, 0.5 * (h @ (z**2 - 1)) / sigma**2


class FirstOrder(Bounded):
    """From gradients, by Bonnet's and Price's theorems."""

    def estimates(self, z, slopes, sigma):
        return slopes.mean(0), 0.5 * (z * slopes).mean(0) / sigma


class IngoPath(Gaussian):
    """``B = exp(b M - min(c max(|q|^2 - d - 2 sqrt(2 d), 0), 1/10) q q' / |q|^2)``, eigenvalues 1/4 or more."""

    def began(self):
        super().began()
        self.q = np.zeros(self.d)
        self.grown = []

    def tell(self, z, values):
        d, n = self.d, self.n
        s, M = self.moments(z, self.weights(values))
        c_c = (4 + n / 2 / d) / (d + 4 + 2 * (n / 2) / d)
        c = 4 * 2 / ((d + 1.3) ** 2 + n / 2)
        q = (1 - c_c) * self.q - math.sqrt(c_c * (2 - c_c) * n) * s
        more = min(c * max(q @ q - d - 2 * math.sqrt(2 * d), 0), 0.1)
        self.grown.append(more)
        B = exponential(self.beta * d / (d + 4) * M - more * np.outer(q, q) / (q @ q))
        self.mean = self.mean - self.beta * self.A @ np.linalg.solve(B, s)
        self.A, self.q = self.A @ power(B, -0.5), power(B, 0.5) @ q


class IngoCma(Gaussian):
    """CMA-ES as in Hansen's tutorial, with ``Sigma`` multiplied by ``exp(X)`` where it multiplies by ``I + X``.

    ``p`` and ``q`` are in the coordinates of ``A``.
    """

    def began(self):
        self.p, self.q, self.t, self.held = np.zeros(self.d), np.zeros(self.d), 0, []
        n, d = self.n, self.d
        raw = np.log((n + 1) / 2) - np.log(np.arange(1, n + 1))  # eq. 49
        good, bad = raw[raw > 0], raw[raw <= 0]
        self.mu_eff = good.sum() ** 2 / (good**2).sum()
        mu_eff_bad = bad.sum() ** 2 / (bad**2).sum()
        self.c_1 = 2 / ((d + 1.3) ** 2 + self.mu_eff)  # eq. 57
        self.c_mu = min(
            1 - self.c_1, 2 * (0.25 + self.mu_eff + 1 / self.mu_eff - 2) / ((d + 2) ** 2 + 2 * self.mu_eff / 2)
        )  # eq. 58
        most = min(  # eqs. 50 to 52
            1 + self.c_1 / self.c_mu, 1 + 2 * mu_eff_bad / (self.mu_eff + 2),
            (1 - self.c_1 - self.c_mu) / (d * self.c_mu),
        )  # fmt: skip
        self.w = np.where(raw > 0, raw / good.sum(), most * raw / np.abs(bad).sum())  # eq. 53
        self.c_c = (4 + self.mu_eff / d) / (d + 4 + 2 * self.mu_eff / d)  # eq. 56
        self.c_s = (self.mu_eff + 2) / (d + self.mu_eff + 5)  # eq. 55
        self.d_s = 1 + 2 * max(0, math.sqrt((self.mu_eff - 1) / (d + 1)) - 1) + self.c_s

    def tell(self, z, values):
        d, w = self.d, self.w
        z, self.t = z[np.argsort(values)], self.t + 1
        s = w[w > 0] @ z[w > 0]
        self.p = (1 - self.c_s) * self.p + math.sqrt(self.c_s * (2 - self.c_s) * self.mu_eff) * s  # eq. 43
        expected = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
        square = self.p @ self.p
        calm = square / (1 - (1 - self.c_s) ** (2 * self.t)) < (2 + 4 / (d + 1)) * d  # h_sigma
        self.held.append(calm)
        q = (1 - self.c_c) * self.q + calm * math.sqrt(self.c_c * (2 - self.c_c) * self.mu_eff) * s  # eq. 45
        lost = (1 - calm) * self.c_c * (2 - self.c_c)
        around = np.where(w >= 0, w, w * d / (z**2).sum(1))  # eq. 46
        X = -np.eye(d) * (self.c_1 * (1 - lost) + self.c_mu * w.sum())  # eq. 47
        X += self.c_1 * np.outer(q, q) + self.c_mu * sum(a * np.outer(o, o) for a, o in zip(around, z, strict=True))
        B = exponential(-X)
        self.mean = self.mean + self.A @ s  # eq. 42
        stretch = math.exp(min(1, self.c_s / self.d_s * (math.sqrt(square) / expected - 1)))  # eq. 44
        self.A, self.q = stretch * self.A @ power(B, -0.5), power(B, 0.5) @ q


GAUSSIAN = {
    "ingo": Ingo, "ingo_step": IngoStep, "igo": Igo, "fast_ingo": FastIngo, "fast_ingo_adaptive": FastIngoAdaptive,
    "ingo_cma": IngoCma, "ingo_path": IngoPath, "ingo_zeroth_order": ZerothOrder, "ingo_first_order": FirstOrder,
    "es": Es, "reinforce_gd": Reinforce,
}  # fmt: skip
SIZES = [(12, 8), (5, 10)]  # points in the span of few, and more points than dimensions


def test_every_search_is_transcribed():
    ours = {name for name in SEARCH.own if not SEARCH.about(name).packages}
    assert {*GAUSSIAN, "ingo_binary", "ingo_categorical"} == ours


def covariance(state):
    if hasattr(state, "factor"):
        return state.factor @ state.factor.T
    if hasattr(state, "precision"):
        return np.diag(1 / state.precision)
    return np.diag(np.broadcast_to(state.sigma, state.mean.shape) ** 2)


def generations(name, d, n, scale=1.0, tilt=0.0, shift=0.0, count=3, beta=None, **shaping):
    """The search and its transcription after each of some generations; ``tilt`` and ``shift`` move it one way."""
    rng = np.random.default_rng([d, n, len(name)])
    options = shaping if beta is None else {"beta": beta, **shaping}
    solver, start = SEARCH.get(name)(TORCH, Domain("real", d), n, **options), rng.normal(size=d)
    formula, state = GAUSSIAN[name](start, 0.7, n, **shaping), solver.init(start, 0.7)
    if beta is not None:
        formula.beta = beta
    for _ in range(count):
        z = rng.normal(size=(n, d)) - shift * (np.arange(d) == 0)
        points = solver.ask(state, TORCH.asarray(z))
        np.testing.assert_allclose(points[:n], formula.points(z), rtol=1e-10, atol=1e-11)
        values = scale * rng.normal(size=solver.evaluations) + tilt * np.append(z[:, 0], 0)[: solver.evaluations]
        slopes = (rng.normal(size=(n, d)),) if solver.gradients else ()
        told = tuple(TORCH.asarray(one) for one in (values, *slopes))
        state = solver.tell(state, TORCH.asarray(z), points, *told)
        formula.tell(z, slopes[0] if slopes else values)
        yield TORCH.to_numpy(state), formula


RAW = {"baseline": "none", "normalise": False}  # eqs. (14) to (17), Appendix K
CASES = [*((name, {}) for name in GAUSSIAN), ("ingo", {"baseline": "centre"}), ("igo", {"baseline": "none"}),
         ("ingo", RAW), ("ingo_step", RAW), ("reinforce_gd", RAW)]  # fmt: skip


@pytest.mark.parametrize(("d", "n"), SIZES)
@pytest.mark.parametrize(("name", "shaping"), CASES)
def test_each_generation_is_the_formula(name, shaping, d, n):
    """Weights that do not sum to zero leave their trace in ``M``."""
    for state, formula in generations(name, d, n, **shaping):
        np.testing.assert_allclose(state.mean, formula.mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(covariance(state), formula.covariance, rtol=1e-8, atol=1e-10)
        if hasattr(state, "beta"):
            np.testing.assert_allclose(state.beta, formula.beta, rtol=1e-10)
    assert all(getattr(formula, "held", []))  # a path that is long is in the next test


def natural_gradient(log_density, log_partition, eta, points, values):
    """``F^-1`` times the estimated gradient of ``E f``, both by derivatives in the natural parameters ``eta``."""
    import torch

    def expected(eta):
        return (torch.stack([log_density(x, eta) for x in points]) * values).mean()

    fisher = torch.func.hessian(log_partition)(eta)
    return torch.linalg.solve(fisher, torch.func.grad(expected)(eta))


def test_a_step_is_a_natural_gradient_of_a_gaussian():
    """Theorem 1: the derivatives with respect to the mean parameters, which give the step, are ``F^-1 grad_eta``."""
    import torch

    d, n, beta = 3, 7, 0.05
    rng, rows = np.random.default_rng(1), torch.tril_indices(d, d)
    solver = SEARCH.get("ingo")(TORCH, Domain("real", d), n, beta, **RAW)
    state = solver.init(rng.normal(size=d), 0.7)._replace(factor=TORCH.asarray(rng.normal(size=(d, d)) + 2 * np.eye(d)))

    def split(eta):  # (Sigma^-1 mu, -Sigma^-1 / 2), whose symmetric second part is its lower triangle
        lower = torch.zeros(d, d, dtype=eta.dtype).index_put((rows[0], rows[1]), eta[d:])
        return eta[:d], lower + lower.T - torch.diag(torch.diagonal(lower))

    def joined(state):
        precision = torch.linalg.inv(state.factor @ state.factor.T)
        return torch.cat([precision @ state.mean, (-precision / 2)[rows[0], rows[1]]])

    def log_partition(eta):
        first, second = split(eta)
        return -first @ torch.linalg.solve(second, first) / 4 - torch.logdet(-2 * second) / 2

    def log_density(x, eta):
        first, second = split(eta)
        return first @ x + x @ second @ x - log_partition(eta)

    z, values = (TORCH.asarray(rng.normal(size=shape)) for shape in ((n, d), n))
    points = solver.ask(state, z)
    expected = natural_gradient(log_density, log_partition, joined(state), points, values)
    moved = joined(solver.tell(state, z, points, values)) - joined(state)
    np.testing.assert_allclose(moved, -beta * expected, rtol=1e-8, atol=1e-12)


def test_a_step_is_a_natural_gradient_of_coin_flips():
    """Theorem 1, as in the test above, in the natural parameters of Appendix A."""
    import torch

    d, n, beta = 4, 6, 0.1
    rng = np.random.default_rng(2)
    solver = SEARCH.get("ingo_binary")(TORCH, Domain("binary", d), n, beta, margin=1e-6, **RAW)
    state = solver.init(np.array([0.2, 0.5, 0.6, 0.9]), 0.0)
    noise, values = TORCH.asarray(rng.random((n, d))), TORCH.asarray(rng.normal(size=n))

    def log_partition(eta):
        return torch.log1p(torch.exp(eta)).sum()

    points = solver.ask(state, noise)
    expected = natural_gradient(
        lambda x, eta: eta @ x.to(eta.dtype) - log_partition(eta), log_partition, state.logits, points, values
    )
    moved = solver.tell(state, noise, points, values).logits - state.logits
    np.testing.assert_allclose(moved, -beta * expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("least", [1e-3, 0.25, 0])
def test_a_step_too_long_for_a_variance(least):
    """Plain descent keeps a share of it, or as the paper prints it, breaks down."""
    z = np.array([[2.0, 0.1], [-2.0, 0.1]])  # M has 3 and -0.99 on its diagonal
    solver = SEARCH.get("reinforce_gd")(TORCH, Domain("real", 2), 2, 1.0, least=least, **RAW)
    state = solver.init(np.zeros(2), 1.0)
    after = solver.tell(state, TORCH.asarray(z), None, TORCH.asarray(np.ones(2)))
    shares = np.asarray(after.sigma) ** 2
    assert shares[1] == pytest.approx(1 + 0.5 * 0.99, rel=1e-12)
    assert shares[0] == pytest.approx(least, rel=1e-12) if least else np.isnan(shares[0])


@pytest.mark.parametrize("name", ["ingo_cma", "ingo_path"])
@pytest.mark.parametrize(("d", "n"), SIZES)
def test_a_mean_that_goes_straight_on(name, d, n):
    """Long paths: ``q`` waits while ``p`` is long, and ``Sigma`` grows along the path of ``ingo_path``."""
    for state, formula in generations(name, d, n, scale=0.1, tilt=3.0, shift=0.8, count=6):
        np.testing.assert_allclose(state.mean, formula.mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(covariance(state), formula.covariance, rtol=1e-7, atol=1e-9)
    if name == "ingo_cma":
        assert not all(formula.held)
    else:
        assert max(formula.grown) > 0.02


@pytest.mark.parametrize(("d", "n", "shift"), [(12, 8, 3.0), (5, 10, 0.35)])
def test_a_first_step_is_long_for_a_path_of_one_step(d, n, shift):
    """``|p|^2`` over ``1 - (1 - c_s)^(2 t)`` is above its bound, ``|p|^2`` itself is not."""
    ((state, formula),) = generations("ingo_cma", d, n, scale=0.1, tilt=3.0, shift=shift, count=1)
    assert formula.held == [False]
    assert formula.p @ formula.p < 0.95 * (2 + 4 / (d + 1)) * d
    np.testing.assert_allclose(state.shape_path @ state.shape_path, formula.q @ formula.q, atol=1e-12)
    np.testing.assert_allclose(covariance(state), formula.covariance, rtol=1e-9, atol=1e-10)


def test_a_deviation_along_a_long_path_doubles_at_most():
    """Else a long path in few dimensions makes a search leave the minimum in one generation."""
    solver, z = SEARCH.get("ingo_cma")(TORCH, Domain("real", 3), 8), np.random.default_rng(0).normal(size=(8, 3))
    state = solver.init(np.zeros(3), 1.0)._replace(shape_path=TORCH.asarray(np.array([20.0, 0.0, 0.0])))
    z = TORCH.asarray(z)
    after = solver.tell(state, z, solver.ask(state, z), TORCH.asarray(np.arange(8.0)))
    widths = np.linalg.svd(np.asarray(after.factor), compute_uv=False)
    assert 1.5 < widths.max() / np.median(widths) < 2.6  # those of other directions shrink a little
    assert widths.max() < 2 * np.e


def test_the_adaptive_step_stays_below_four_times_the_first():
    """Values that no linear function explains lengthen it: ``R^2`` is 0."""
    z = np.random.default_rng(0).normal(size=(9, 100))
    solver = SEARCH.get("fast_ingo_adaptive")(TORCH, Domain("real", 100), 18)
    state = solver.init(np.zeros(100), 1.0)._replace(beta=TORCH.asarray(np.array(0.399)))
    both = np.concatenate([z, -z])
    state = solver.tell(state, TORCH.asarray(both), None, TORCH.asarray((both**2).sum(1)))
    assert float(state.beta) == pytest.approx(0.4, rel=1e-12)


def test_equal_values_share_the_weights_of_their_ranks():
    """The mean step of ``ingo_cma`` with two best points of equal value, and with all points but one equal."""
    d, n = 4, 6
    rng = np.random.default_rng(0)
    z, solver = rng.normal(size=(n, d)), SEARCH.get("ingo_cma")(TORCH, Domain("real", d), n)
    w = np.maximum(np.log((n + 1) / 2) - np.log(np.arange(1, n + 1)), 0)
    w /= w.sum()
    for values, shared in (
        ([1.0, 1, 2, 3, 4, 5], [w[:2].mean()] * 2 + [w[2], 0, 0, 0]),
        ([0.0, 1, 1, 1, 1, 1], [w[0]] + [w[1:].mean()] * 5),
    ):
        state = solver.tell(solver.init(np.zeros(d), 1.0), TORCH.asarray(z), None, TORCH.asarray(np.array(values)))
        np.testing.assert_allclose(state.mean, np.array(shared) @ z, rtol=1e-12)


def test_ingo_binary_is_appendix_a():
    """``eta - beta / N sum h_n h^n``, ``h^n_i = 1(x_i = 1) / p_i - 1(x_i = 0) / (1 - p_i)``, with ``p`` in its margin."""
    d, n = 5, 8
    rng = np.random.default_rng(1)
    solver = SEARCH.get("ingo_binary")(TORCH, Domain("binary", d, 2), n)
    start = np.array([0.05, 0.5, 0.3, 0.7, 0.9])
    state, eta = solver.init(start, 1.0), np.log(np.clip(start, 0.2, 0.8) / (1 - np.clip(start, 0.2, 0.8)))
    for _ in range(4):
        p, u, values = 1 / (1 + np.exp(-eta)), rng.uniform(size=(n, d)), rng.normal(size=n)
        x = u < p
        assert (np.asarray(solver.ask(state, TORCH.asarray(u))) == x).all()
        eta = np.clip(eta - shaped(values, n) @ (x / p - ~x / (1 - p)) / d, np.log(0.2 / 0.8), np.log(0.8 / 0.2))
        state = solver.tell(state, None, TORCH.asarray(x.astype(np.int32)), TORCH.asarray(values))
        np.testing.assert_allclose(state.logits, eta, rtol=1e-10, atol=1e-12)


def test_ingo_categorical_is_appendix_a():
    """``eta - beta / N sum h_n H^n``, ``H_ij = 1(x_i = j) / P_ij``, ``P`` mixed with the uniform."""
    d, K, n = 3, 4, 8
    rng = np.random.default_rng(2)
    solver = SEARCH.get("ingo_categorical")(TORCH, Domain("categorical", d, K), n)
    start = rng.dirichlet(np.ones(K), size=d)
    state, eta, mixing = solver.init(start, 1.0), np.log(start), 1 / (d * K)
    for _ in range(4):
        P = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)
        P = (1 - mixing) * P + mixing / K
        u, values = rng.uniform(size=(n, d)), rng.normal(size=n)
        x = (u[:, :, None] >= P.cumsum(1)[None, :, :-1]).sum(2)
        assert (np.asarray(solver.ask(state, TORCH.asarray(u))) == x).all()
        hit = x[:, :, None] == np.arange(K)
        eta = eta - np.einsum("n,ndk->dk", shaped(values, n), hit / P) / d
        state = solver.tell(state, None, TORCH.asarray(x.astype(np.int32)), TORCH.asarray(values))
        np.testing.assert_allclose(state.logits, eta - eta.max(1, keepdims=True), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "d", "expected"), [
    ("fast_ingo", 100, 18), ("ingo_cma", 10, 12), ("ingo_binary", 100, 56), ("ingo_categorical", 100, 56),
])  # fmt: skip
def test_default_populations_are_those_of_the_paper(name, d, expected):
    """``2 floor(3 + floor(3 ln d) / 2)``, and ``20 + 4 floor(3 + floor(3 ln d) / 2)`` for discrete points."""
    kind = SEARCH.about(name).domains[0]
    solver = SEARCH.get(name)(TORCH, Domain(kind, d, 3) if kind != "real" else Domain(kind, d))
    assert solver.population == expected


def shaped(values, n, baseline="mean", normalise=True):
    """``h_i / N``, ``h_i = (f_i - b) / std f``, ``b`` the mean, ``f(mu)``, which is the last value, or nothing."""
    points = values[:n]
    b = {"mean": points.mean(), "centre": values[-1], "none": 0.0}[baseline]
    return (points - b) / (points.std() if normalise else 1.0) / n


@pytest.mark.parametrize(("d", "n"), SIZES)
@pytest.mark.parametrize("name", ["ingo", "ingo_step", "igo"])
def test_eigenvalues_are_clipped(name, d, n):
    """A step so long that ``I + beta M`` is not positive: its eigenvalues are kept above 1e-3, and no others."""
    ((state, formula),) = generations(name, d, n, beta=5.0, count=1)
    size = np.abs(formula.covariance).max()
    assert size > 100 or name == "igo"
    np.testing.assert_allclose(covariance(state), formula.covariance, rtol=1e-8, atol=1e-8 * size)
    np.testing.assert_allclose(state.mean, formula.mean, rtol=1e-8, atol=1e-9 * np.abs(formula.mean).max())


def test_spread_is_of_the_covariance():
    factor = np.random.default_rng(6).normal(size=(6, 6))
    sigma, condition = SEARCH.get("ingo")(TORCH, Domain("real", 6)).spread(FactoredState(None, TORCH.asarray(factor)))
    values = np.linalg.eigvalsh(factor @ factor.T)
    assert float(sigma) == pytest.approx(np.exp(np.log(values).mean() / 2))
    assert float(condition) == pytest.approx(values.max() / values.min())
    fast = SEARCH.get("fast_ingo")(TORCH, Domain("real", 2))
    assert [float(v) for v in fast.spread(DiagonalState(None, TORCH.asarray(np.array([1.0, 4.0]))))] == [2.0, 16.0]
