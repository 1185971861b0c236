"""Each gradient estimator, step by step, against a transcription of its formula in plain NumPy.

A wrong coefficient or an old memory may leave an estimator unbiased: only its numbers show it. Parameters and noise are
fixed, and an estimator gets them along three epochs, as in a run. The model is logistic regression with an N(0, I)
prior; formulas are those of Wang, Geffner and Domke (2024), eqs. 3, 5, 10, 13, 15 and Algorithms 1 and 2, in the
notation ``k_n(z) = -N log p(x_n | z) - log p(z)``, and of Fujisawa and Sato (2021), eq. 8 and Theorem 1.
"""

import functools
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from lowvar.core import backend as backends
from lowvar.core.gaussian import independent
from lowvar.testing.enumerable import data, epoch_noise, problem
from lowvar.vi.batches import fixed, iid, reshuffled
from lowvar.vi.estimators import GRADIENT, OURS
from lowvar_studies.models.logistic_regression import problem as logistic_regression

N, D, B, S, EPOCHS = 7, 2, 3, 2, 3
X, SIGN = data()["x"], 2.0 * data()["y"] - 1
ALL, EVEN = np.arange(N), np.full(N, 1 / N)


def slope(z, rows, weight, prior=1.0):
    """``grad k(z)`` of a batch."""
    a = X[rows] @ z
    return N * (weight * -SIGN[rows] / (1 + np.exp(SIGN[rows] * a))) @ X[rows] + prior * z


def bend(z, step, rows, weight, prior=1.0):
    """``hess k(z) step`` of a batch."""
    p = 1 / (1 + np.exp(-(X[rows] @ z)))
    return N * (weight * p * (1 - p) * (X[rows] @ step)) @ X[rows] + prior * step


class Noise(NamedTuple):
    """A batch's real rows, their weights, and its particles."""

    rows: np.ndarray
    weight: np.ndarray
    eps: np.ndarray


def naive(w, noise):
    """``grad f(w; B, eps)`` (eq. 3), the entropy's gradient being 1 for each ``log sigma``."""
    g = np.array([slope(w["mu"] + w["sigma"] * eps, noise.rows, noise.weight) for eps in noise.eps])
    return np.concatenate([g.mean(0), (g * w["sigma"] * noise.eps).mean(0) - 1])


def stl(w, noise):
    """The gradient through ``z`` alone of ``k(z) + log q(z)``: Roeder, Wu and Duvenaud (2017), eq. 7."""
    g = np.array([slope(w["mu"] + w["sigma"] * e, noise.rows, noise.weight) - e / w["sigma"] for e in noise.eps])
    return np.concatenate([g.mean(0), (g * w["sigma"] * noise.eps).mean(0)])


def for_mu(value):
    return np.concatenate([value, np.zeros(D)])


def taylor(w, noise):
    """``grad f~ - E grad f~`` at ``w``, for ``mu``: ``hess k(mu) (sigma eps)`` (eq. 10)."""
    return for_mu(bend(w["mu"], w["sigma"] * noise.eps.mean(0), noise.rows, noise.weight))


def cv(w, noise):
    return naive(w, noise) - taylor(w, noise)


def whole(noise):
    return Noise(ALL, EVEN, noise.eps)


def at_rows(table, rows, of):
    """A value for each row at its own stored parameters, averaged over the batch by ``weight``."""
    return np.array([of(table[n], n) for n in rows])


class Alone:
    """An estimator without memory."""

    def __init__(self, formula):
        self.formula = formula

    def start(self, w, covers):
        pass

    def begin(self, w):
        pass

    def estimate(self, w, noise):
        return self.formula(w, noise)


class Stored:
    """``w^n`` of each row: ``table`` is read, ``next`` written. Where epochs cover the rows, the first one has none,
    and ``table`` is that of the epoch before: no row is read after it was written."""

    def start(self, w, covers):
        self.covers, self.table, self.next, self.epoch = covers, dict.fromkeys(ALL, w), dict.fromkeys(ALL, w), -1

    def begin(self, w):
        self.table, self.epoch = dict(self.next), self.epoch + 1

    @property
    def ready(self):
        return not self.covers or self.epoch > 0

    def write(self, w, noise):
        self.next.update(dict.fromkeys(noise.rows.tolist(), w))
        if not self.covers:
            self.table = dict(self.next)


class Inc(Stored):
    """``grad f(w; B, eps) + E_m grad f(w^m; m, eps) - grad f(w^n; n, eps)`` (eq. 13)."""

    def control(self, w, noise):
        def old(v, n):
            return naive(v, Noise(np.array([n]), np.ones(1), noise.eps))

        found = EVEN @ at_rows(self.table, ALL, old) - noise.weight @ at_rows(self.table, noise.rows, old)
        found = found * self.ready
        self.write(w, noise)
        return found

    def estimate(self, w, noise):
        return naive(w, noise) + self.control(w, noise)


class Ensemble(Inc):
    """``naive + beta c_cv + (1 - beta) c_inc`` (eq. 15)."""

    def estimate(self, w, noise):
        return naive(w, noise) - 0.3 * taylor(w, noise) + 0.7 * self.control(w, noise)


class Joint(Stored):
    """``grad f(w; B, eps) + G - grad f~(w^n; n, eps)`` (eq. 5), ``G`` the mean over rows at ``w^m`` (Algorithm 1)."""

    def estimate(self, w, noise):
        def old(v, n):
            one, e = (np.array([n]), np.ones(1)), noise.eps.mean(0)
            return slope(v["mu"], *one) + bend(v["mu"], v["sigma"] * e, *one)

        G = EVEN @ at_rows(self.next, ALL, lambda v, m: slope(v["mu"], np.array([m]), np.ones(1)))
        control = G - noise.weight @ at_rows(self.table, noise.rows, old)
        self.write(w, noise)
        return naive(w, noise) + for_mu(control) * self.ready


class Current(Stored):
    """``joint`` with the likelihood's part alone at ``mu^n``, the ``sigma eps`` of now, and the prior's mean."""

    scale = False

    def estimate(self, w, noise):
        e, variance = w["sigma"] * noise.eps, w["sigma"] ** 2
        z = w["mu"] + e

        def old(v, n):
            one = np.array([n]), np.ones(1), 0.0
            linear = np.array([slope(v["mu"], *one) + bend(v["mu"], step, *one) for step in e])
            return np.concatenate([linear.mean(0), (linear * e).mean(0)])

        def mean(v, n):
            p = 1 / (1 + np.exp(-X[n] @ v["mu"]))
            diagonal = N * p * (1 - p) * X[n] ** 2
            return np.concatenate([slope(v["mu"], np.array([n]), np.ones(1), 0.0), variance * diagonal])

        control = EVEN @ at_rows(self.next, ALL, mean) - noise.weight @ at_rows(self.table, noise.rows, old)
        prior = np.concatenate([w["mu"] - z.mean(0), variance - (z * e).mean(0)])
        self.write(w, noise)
        both = control * self.ready + prior
        return naive(w, noise) + (both if self.scale else for_mu(both[:D]))


class CurrentSigma(Current):
    """The same for ``log sigma``: the mean of ``sigma eps o hess (sigma eps)`` is ``sigma^2 o diag hess``."""

    scale = True


class Svrg:
    """``grad f(w; B, eps) + g_bar - grad f~(w~; B, eps)``, ``w~`` of the epoch's beginning (Algorithm 2)."""

    def start(self, w, covers):
        self.begin(w)

    def begin(self, w):
        self.old = w

    def estimate(self, w, noise):
        full = slope(self.old["mu"], ALL, EVEN)
        here = slope(self.old["mu"], noise.rows, noise.weight)
        return naive(w, noise) + for_mu(full - here) - taylor(self.old, noise)


class Adaptive(Svrg):
    """``g + a_1 c_1 + a_2 c_2`` for ``mu`` and ``g + a_3 c_3`` for ``log sigma``, as its docstring has them.

    Each ``a`` is ``-E[(g - E g) c] / E[c^2]`` of the residual of the other control, clipped to [0, 1]; averages are
    exponential over 4 steps, ``E g`` over 10.
    """

    def start(self, w, covers):
        self.mean, self.product, self.square = np.zeros(2 * D), np.zeros((2, 2 * D)), np.zeros((2, 2 * D))
        super().start(w, covers)

    def estimate(self, w, noise):
        mu, step = self.old["mu"], w["sigma"] * noise.eps.mean(0)
        old = slope(mu, noise.rows, noise.weight)
        c = np.zeros((2, 2 * D))
        c[0, :D] = slope(mu, ALL, EVEN) - old
        c[1, :D] = -bend(mu, step, noise.rows, noise.weight)
        c[0, D:] = -old * step
        a = np.clip(-self.product / np.where(self.square > 0, self.square, 1), 0, 1)
        found = naive(w, noise) + (a * c).sum(0)
        residual = found - self.mean - a * c  # of the other control
        self.product += (residual * c - self.product) / 4
        self.square += (c * c - self.square) / 4
        self.mean = self.mean + (found - self.mean) / 10
        return found


class Recursion:
    """``G_t = g(w_t) + r (G_{t-1} - g(w_{t-1}))`` with the noise of now; anew every ``restart`` steps."""

    def __init__(self, r, formula=naive, restart=10**6):
        self.r, self.formula, self.restart = r, formula, restart

    def start(self, w, covers):
        self.t = 0

    def begin(self, w):
        pass

    def estimate(self, w, noise):
        now = self.formula(w, noise)
        old = self.formula(self.last, noise) if self.t % self.restart else None
        self.G = now if old is None else now + self.r * (self.G - old)
        self.last, self.t = w, self.t + 1
        return self.G


def clipped(w, noise):
    """``naive`` with ``z = P(mu + sigma eps)`` on the box [-0.5, 0.4]: a coordinate outside has gradient zero."""
    z = w["mu"] + w["sigma"] * noise.eps
    inside = (z > -0.5) & (z < 0.4)
    g = np.array([slope(one, noise.rows, noise.weight) for one in np.clip(z, -0.5, 0.4)]) * inside
    return np.concatenate([g.mean(0), (g * w["sigma"] * noise.eps).mean(0) - 1])


def in_ball(w, noise):
    """The same on the ball of radius 0.8: ``z -> r z / |z|``, of derivative ``r (I - z z' / |z|^2) / |z|``."""
    z, gradients = w["mu"] + w["sigma"] * noise.eps, []
    for one in z:
        norm = np.linalg.norm(one)
        unit = one / norm
        back = 0.8 / norm * (np.eye(D) - np.outer(unit, unit)) if norm > 0.8 else np.eye(D)
        gradients.append(back @ slope(one * min(1, 0.8 / norm), noise.rows, noise.weight))
    g = np.array(gradients)
    return np.concatenate([g.mean(0), (g * w["sigma"] * noise.eps).mean(0) - 1])


RESHUFFLED, IID = (reshuffled,), (reshuffled, iid)
CASES = [
    ("naive", {}, Alone(naive), IID),
    ("stl", {}, Alone(stl), RESHUFFLED),
    ("cv", {}, Alone(cv), RESHUFFLED),
    ("full_naive", {}, Alone(lambda w, noise: naive(w, whole(noise))), RESHUFFLED),
    ("full_cv", {}, Alone(lambda w, noise: cv(w, whole(noise))), RESHUFFLED),
    ("inc", {}, Inc(), IID),
    ("ensemble", {"beta": 0.3}, Ensemble(), RESHUFFLED),
    ("joint", {}, Joint(), (reshuffled, fixed, iid)),
    ("joint_svrg", {}, Svrg(), RESHUFFLED),
    ("joint_current", {}, Current(), IID),
    ("joint_adaptive", {"memory": 4}, Adaptive(), RESHUFFLED),
    ("mlmc", {}, Recursion(1.0), RESHUFFLED),
    ("mlmc", {"restart": 6, "base": "stl"}, Recursion(1.0, stl, 6), RESHUFFLED),
    ("mlmc_prox", {"box": [-0.5, 0.4]}, Recursion(1.0, clipped), RESHUFFLED),
    ("mlmc_prox", {"ball": 0.8}, Recursion(1.0, in_ball), RESHUFFLED),
    ("mlmc_adaptive", {}, Recursion(1.0), RESHUFFLED),
    ("mlmc_optimal", {}, Recursion(1.0), RESHUFFLED),
    ("storm", {"a": 0.3, "base": "cv"}, Recursion(0.7, cv), RESHUFFLED),
]


# of the laboratory, for its models with linear predictors; and what such models compute by themselves
ON_LINEAR = [
    ("cv", {}, Alone(cv), RESHUFFLED),
    ("joint", {}, Joint(), RESHUFFLED),
    ("joint_current", {}, Current(), IID),
    ("joint_glm", {}, Current(), IID),
    ("joint_glm_sigma", {}, CurrentSigma(), IID),
]


def test_every_estimator_is_transcribed():
    assert {name for name, *_ in CASES} == set(OURS)
    assert {name for name, *_ in CASES + ON_LINEAR} == set(GRADIENT.own)


@functools.cache
def path():
    """Parameters of each step, which move about as much as they vary."""
    rng = np.random.default_rng(1)
    mu, log_sigma = rng.normal(size=(2, EPOCHS * 3, D))
    return [{"mu": m, "log_sigma": -0.5 + 0.3 * s, "sigma": np.exp(-0.5 + 0.3 * s)}
            for m, s in zip(mu, log_sigma, strict=True)]  # fmt: skip


@functools.cache
def noise_of(draw):
    return [epoch_noise(problem("torch"), draw(N, B), epoch, "torch", independent(S)) for epoch in range(EPOCHS)]


def params(w):
    return {block: backends.get("torch").asarray(w[block]) for block in ("mu", "log_sigma")}


def flat(gradient):
    return np.concatenate([np.asarray(gradient[block]) for block in ("mu", "log_sigma")])


def each(cases):
    """A test for each case and each kind of batches."""
    return pytest.mark.parametrize(
        ("name", "options", "formula", "draw"),
        [
            pytest.param(name, options, formula, draw, id="-".join([name, *map(str, options), draw.__name__]))
            for name, options, formula, draws in cases
            for draw in draws
        ],
    )


@each(CASES)
def test_each_step_is_the_formula(name, options, formula, draw):
    check(GRADIENT.get(name)(problem("torch"), draw(N, B), **options), formula, draw)


@each(ON_LINEAR)
def test_each_step_on_a_linear_model_is_the_formula(name, options, formula, draw):
    check(GRADIENT.get(name)(logistic_regression(data(), "torch"), draw(N, B), **options), formula, draw)


def test_a_prior_that_is_not_said_to_be_quadratic_is_controlled_to_second_order():
    """Which is the same for ``mu``, as this one is quadratic."""
    p = replace(problem("torch"), quadratic_prior=False)
    check(GRADIENT.get("joint_current")(p, reshuffled(N, B)), Current(), reshuffled)


def check(estimator, formula, draw):
    """Three epochs of an estimator beside its transcription."""
    state, ws = estimator.init(params(path()[0])), iter(path())
    formula.start(path()[0], draw is not iid)
    last = path()[0]
    for epoch, noise in enumerate(noise_of(draw)):
        state = estimator.begin_epoch(state, params(last))
        formula.begin(last)
        for t in range(3):
            last, one = next(ws), type(noise)(*(leaf[t] for leaf in noise))
            gradient, state = estimator.estimate(state, params(last), one)
            real = np.asarray(one.weight) > 0
            batch = Noise(*(np.asarray(part)[real] for part in (one.index, one.weight)), np.asarray(one.eps))
            expected = formula.estimate(last, batch)
            np.testing.assert_allclose(flat(gradient), expected, rtol=1e-10, atol=1e-10, err_msg=f"{epoch}, {t}")
        state = estimator.end_epoch(state, noise.index)


def test_mlmc_adaptive_takes_the_particles_of_theorem_1():
    """``N_t = N_0 sqrt(V_t / (2 V_0))`` rounded up to one of its sizes, every 25 epochs; ``V_t`` a running mean."""
    estimator = GRADIENT.get("mlmc_adaptive")(problem("torch"), fixed(N, N), particles=40)
    noise = epoch_noise(problem("torch"), fixed(N, N), 0, "torch", independent(4))
    one = type(noise)(*(leaf[0] for leaf in noise))
    eps, V, V_0, last = np.asarray(one.eps), 0.0, None, None
    state, ws = estimator.init(params(path()[0])), path()

    def single(w, e):
        return naive(w, Noise(ALL, EVEN, e[None]))

    for t in range(25):
        w = dict(ws[0], mu=ws[0]["mu"] + 0.7 * np.sin(t))
        _, state = estimator.estimate(state, params(w), one)
        g = np.array([single(w, e) - (0 if last is None else single(last, e)) for e in eps])
        spread = ((g - g.mean(0)) ** 2).sum() / 3
        if last is None:
            V_0 = spread
        else:
            V = spread if t == 1 else V + 0.1 * (spread - V)
        last = w
    np.testing.assert_allclose([float(state["V"]), float(state["V_0"])], [V, V_0], rtol=1e-9)
    wanted = 40 * np.sqrt(V / (2 * V_0))
    size = min(n for n in estimator.sizes if n >= wanted)
    assert 2 < size < 40
    assert estimator.particles(25, state) == size
    assert float(state["taken"]) == 25 * 4
