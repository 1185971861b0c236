"""Cells of Fujisawa and Sato, "Multilevel Monte Carlo variational inference".

``g(lambda; eps)`` is the gradient of ``log q(z) - log p(x, z)`` at ``z = m + exp(s) eps`` in ``lambda = (m, s)``, of
all rows. A run starts from m = 0 (weights of the network: 0.3 N(0, 1)) and standard deviations of 0.1.
"""

import functools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from . import common
from .common import Found

REPETITIONS = 10
POOL = 512  # scrambled point sets that runs with rqmc choose from at random
LOG_2PI = math.log(2 * math.pi)


def rows(settings, dataset: str, train: int | None = None):
    """The page's rows to fit: a fifth is held out, as the page's seed has it, and ``train`` of the others are kept."""
    from lowvar.core.keys import named_key

    with np.load(common.prepared(dataset, "standard")) as data:
        x, y = data["x"], data["y"]
    key = jax.random.key_data(named_key(settings["seed"], dataset, "split"))
    order = np.random.default_rng(np.asarray(key)).permutation(len(x))
    fit = order[math.ceil(0.2 * len(x)) :][:train]
    return x[fit].astype(np.float32), y[fit]


def logistic(x, y):
    """Appendix F.2: ``alpha ~ Gamma(1/2, 1/2)``, ``mu ~ N(0, 1)``, ``w ~ N(mu, 1/alpha)``; z = log alpha, mu, w."""
    signed = jnp.asarray(np.where(y[:, None] > 0, x, -x))
    count = x.shape[1]

    def log_joint(z):
        u, mu, w = z[0], z[1], z[2:]
        prior = 0.5 * u - 0.5 * jnp.exp(u) - 0.5 * mu**2 + 0.5 * count * u - 0.5 * jnp.exp(u) * jnp.sum((w - mu) ** 2)
        constant = 0.5 * math.log(0.5) - math.lgamma(0.5) - 0.5 * (count + 1) * LOG_2PI
        return jnp.sum(jax.nn.log_sigmoid(signed @ w)) + prior + constant

    return log_joint, np.zeros(count + 2)


def network(x, y, units: int = 50):
    """Appendix F.3: ``alpha, tau ~ Gamma(1, 1/10)``, ``w ~ N(0, 1/alpha)``, ``y ~ N(phi(x, w), 1/tau)``, ReLU units."""
    d, y = x.shape[1], y.reshape(-1)
    y = jnp.asarray(((y - y.mean()) / y.std()).astype(np.float32))
    x, count = jnp.asarray(x), (d + 2) * units + 1

    def log_joint(z):
        u, t, w = z[0], z[1], z[2:]
        hidden = jax.nn.relu(x @ w[: d * units].reshape(d, units) + w[d * units : (d + 1) * units])
        residual = y - hidden @ w[(d + 1) * units : -1] - w[-1]
        likelihood = 0.5 * len(y) * (t - LOG_2PI) - 0.5 * jnp.exp(t) * jnp.sum(residual**2)
        prior = u + t - 0.1 * (jnp.exp(u) + jnp.exp(t)) + 0.5 * count * (u - LOG_2PI)
        return likelihood + prior + 2 * math.log(0.1) - 0.5 * jnp.exp(u) * jnp.sum(w * w)

    return log_joint, np.r_[0.0, 0.0, np.full(count, 0.3)]


def point_sets(sets: int, points: int, d: int, seed: int):
    """Scrambled Sobol points through the normal quantile, ``(sets, points, d)``."""
    drawn = [qmc.Sobol(d, seed=seed + one).random_base2((points - 1).bit_length())[:points] for one in range(sets)]
    return ndtri(np.clip(np.stack(drawn), 1e-7, 1 - 1e-7)).astype(np.float32)


class Problem:
    """The objective of a model, and runs of all repetitions on it."""

    def __init__(self, log_joint, spread, seed: int):
        self.log_joint, self.d, self.seed = log_joint, len(spread), seed
        start = np.random.default_rng(seed).standard_normal((REPETITIONS, self.d)) * spread
        self.start = jnp.asarray(np.concatenate([start, np.full_like(start, math.log(0.1))], axis=1), jnp.float32)
        self._programs: dict[int, dict] = {}

    def objective(self, lam, eps):
        """The mean of ``log q - log p`` over particles ``eps (n, d)``, with the entropy in closed form: F, (2)."""
        m, s = lam[: self.d], lam[self.d :]
        z = m + jnp.exp(s) * eps
        entropy = jnp.sum(s) + 0.5 * self.d * (1 + LOG_2PI)
        return -jnp.mean(jax.vmap(self.log_joint)(z)) - entropy

    def gradient(self, lam, eps):
        """The reparameterised gradient, the mean over particles, (4)."""
        return jax.grad(self.objective)(lam, eps)

    def descend(self, method: str, step: float, iterations: int, particles: int, schedule=None, repetitions=None,
                stops=(), pool=None) -> dict:  # fmt: skip
        """Parameters and those of the step before, ``{iteration: (lambda_t, lambda_(t-1))}``, at stops and at the end.

        ``mc`` and ``rqmc`` are by Adam. ``mlmc`` is Algorithm 1:
        ``G_t = G_(t-1) + (1/N_t) sum [g(lambda_t; eps) - g(lambda_(t-1); eps)]``, (8), with
        ``N_t = ceil(eta_(t-1) N_0)`` (Theorem 2), and SGD by ``alpha_0 eta_t`` with ``eta_t = beta^floor(t/r)``.
        """
        lam, beta, r = self.start[:repetitions], 1.0, iterations + 1
        if method == "mlmc":
            beta, r = schedule["beta"], schedule["r"]
        zeros, key = jnp.zeros_like(lam), jax.random.key(self.seed + 1)
        pool = jnp.zeros((1, particles, self.d), jnp.float32) if pool is None else jnp.asarray(pool)
        state, found = (lam, lam, zeros, zeros), {}
        drops = range(r + 1, iterations, r)  # N_t is the same in between
        begin = 0
        for end in sorted({*drops, *stops, iterations} - {0}):
            n = max(1, math.ceil(beta ** (max(begin - 1, 0) // r) * particles - 1e-9))
            if n not in self._programs:
                self._programs[n] = self._make(n)
            state = self._programs[n][method](state, begin, end, key, jnp.float32(step), jnp.float32(beta), r, pool)
            if end in stops or end == iterations:
                found[end] = state[:2]
            begin = end
        return found

    def _make(self, n: int) -> dict:
        """Steps from ``begin`` to ``end`` with ``n`` particles, by method."""
        gradients = jax.vmap(self.gradient)

        def noise(key, t, runs):
            return jax.random.normal(jax.random.fold_in(key, t), (runs, n, self.d), jnp.float32)

        def multilevel(t, state, key, step, beta, r, pool):
            lam, before, G, _ = state
            eps = noise(key, t, len(lam))
            now = gradients(lam, eps)
            G = jnp.where(t > 0, G + now - gradients(before, eps), now)  # (8)
            return lam - step * beta ** (t // r).astype(jnp.float32) * G, lam, G, G

        def adam(scrambled):
            def move(t, state, key, step, beta, r, pool):
                lam, _, first, second = state
                which = jax.random.randint(jax.random.fold_in(key, t), (len(lam),), 0, len(pool))
                g = gradients(lam, pool[which] if scrambled else noise(key, t, len(lam)))
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
                count = (t + 1).astype(jnp.float32)
                size = jnp.sqrt(second / (1 - 0.999**count)) + 1e-8
                return lam - step * first / (1 - 0.9**count) / size, lam, first, second

            return move

        def steps(move):
            return jax.jit(lambda state, begin, end, *more: jax.lax.fori_loop(
                begin, end, lambda t, state: move(t, state, *more), state))  # fmt: skip

        return {"mlmc": steps(multilevel), "mc": steps(adam(False)), "rqmc": steps(adam(True))}

    def elbo(self, lam, samples: int):
        """Minus F of each repetition, from the same samples for all methods."""
        eps = jax.random.normal(jax.random.key(self.seed + 2), (REPETITIONS, 20, samples // 20, self.d), jnp.float32)
        return np.array([float(self._elbo(a, b)) for a, b in zip(lam, eps, strict=False)])

    @functools.cached_property
    def _elbo(self):
        return jax.jit(lambda lam, eps: -jnp.mean(jax.lax.map(lambda part: self.objective(lam, part), eps)))


def ahead(problem: Problem, ends: dict, samples: int, note: str) -> list[Found]:
    """The final ELBO of mlmc less that of each rival."""
    elbo = {name: problem.elbo(path[max(path)][0], samples) for name, path in ends.items()}
    rivals = [name for name in ends if name != "mlmc"]
    return [common.mean(elbo["mlmc"] - elbo[name], note=f"{note}ahead of {name}") for name in rivals]


def variance_logistic() -> list[Found]:
    """Figure 2: the conditional variance of mlmc's gradient over the smaller one of mc and rqmc, along the run.

    At the page's measured iterations, a geometric mean over these and the repetitions. Given the past, mlmc's variance
    is ``V_t / N_t`` of the fresh difference (Lemma 1), mc's ``V / N``, and rqmc's that of the mean over fresh
    scrambles; differences are in double precision.
    """
    settings = common.experiment("mlmc")
    of, solver = settings["problems"]["blr"]["methods"], settings["solver"]
    n, iterations = solver["particles"], solver["epochs"]
    log_joint, spread = logistic(*rows(settings, "breast_cancer"))
    problem = Problem(log_joint, spread, 4731)
    pool = point_sets(POOL, n, problem.d, 1)
    grid = np.round(10 ** np.arange(0, math.log10(iterations), 1 / solver["per_decade"])).astype(int)
    stops = sorted({*(int(t) for t in grid if t < iterations), iterations})
    fresh = jax.random.normal(jax.random.key(4732), (4096, problem.d), jnp.float64)
    sets = jnp.asarray(point_sets(128, n, problem.d, 10_001))

    def spread_of(values):
        return jnp.sum(jnp.var(values, axis=0, ddof=1))

    @jax.jit
    def single(now, then, later):
        """The variance of one particle's gradient, or of its difference to that at ``then``."""
        g = lambda lam, eps: problem.gradient(lam, eps[None])  # noqa: E731
        return spread_of(jax.lax.map(lambda eps: g(now, eps) - later * g(then, eps), fresh, batch_size=64))

    scrambled = jax.jit(lambda now: spread_of(jax.lax.map(partial(problem.gradient, now), sets)))
    logs = {}
    for name in ("mc", "rqmc", "mlmc"):
        schedule = of[name].get("schedule")
        path = problem.descend(name, of[name]["step_sizes"][0], iterations, n, schedule, stops=stops, pool=pool)
        values = []
        for t in stops:
            for now, then in zip(*(np.asarray(one, float) for one in path[t]), strict=True):
                if name == "rqmc":
                    values.append(scrambled(jnp.asarray(now, jnp.float32)))
                    continue
                count = n if name == "mc" else math.ceil(schedule["beta"] ** ((t - 1) // schedule["r"]) * n - 1e-9)
                values.append(single(now, then, float(name == "mlmc")) / count)
        logs[name] = np.log(np.reshape(np.array(values, float), (len(stops), REPETITIONS))).mean(0)
    return [common.geometric(logs["mlmc"] - logs[name], note=f"to {name}") for name in ("mc", "rqmc")]


def elbo_network() -> list[Found]:
    """Figure 2: the ELBO of mlmc on the Bayesian neural network less that of mc or rqmc, after 2000 iterations."""
    settings = common.experiment("mlmc")
    problem, solver = settings["problems"]["bnn"], settings["solver"]
    of, n = problem["methods"], problem["solver"]["particles"]
    log_joint, spread = network(*rows(settings, "wine_quality_red", problem["split"]["train"]))
    one = Problem(log_joint, spread, 4733)
    pool = point_sets(POOL // 2, n, one.d, 2)
    ends = {
        name: one.descend(name, of[name]["step_sizes"][0], solver["epochs"], n, of[name].get("schedule"), pool=pool)
        for name in ("mc", "rqmc", "mlmc")
    }
    return ahead(one, ends, solver["elbo_samples"], "")


def elbo_logistic_tuned() -> list[Found]:
    """Figure 2 at tuned settings: the ELBO of mlmc on breast cancer less that of mc or rqmc, after 2000 iterations.

    Settings from 50 trials of optuna's TPE with 500 iterations each, from the page's ranges, as in the paper.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    settings = common.experiment("mlmc_tuned")
    of, solver, tuning = settings["problems"]["blr"]["methods"], settings["solver"], settings["tuning"]
    n = solver["particles"]
    log_joint, spread = logistic(*rows(settings, "breast_cancer"))
    problem = Problem(log_joint, spread, 4734)
    pool, ends, notes = point_sets(POOL, n, problem.d, 3), {}, []
    for name in ("mc", "rqmc", "mlmc"):
        ranges = of[name]["tune"]

        def schedule_of(chosen):
            return {key: chosen[key] for key in ("beta", "r") if key in chosen} or None

        def trial(trial, name=name, ranges=ranges):
            chosen = {"step_size": trial.suggest_float("step_size", *ranges["step_size"].values(), log=True)}
            if "beta" in ranges:
                chosen["beta"] = trial.suggest_float("beta", *ranges["beta"].values())
                chosen["r"] = trial.suggest_int("r", *ranges["r"].values())
            end = problem.descend(name, chosen["step_size"], tuning["epochs"], n, schedule_of(chosen), 1, pool=pool)
            value = float(problem.elbo(end[tuning["epochs"]][0], solver["elbo_samples"])[0])
            return value if math.isfinite(value) else -math.inf

        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=4735))
        study.optimize(trial, n_trials=tuning["trials"])
        best = study.best_params
        notes.append(f"{name} {', '.join(f'{key} {value:.3g}' for key, value in best.items())}")
        ends[name] = problem.descend(name, best["step_size"], solver["epochs"], n, schedule_of(best), pool=pool)
    return ahead(problem, ends, solver["elbo_samples"], "; ".join(notes) + "; ")
