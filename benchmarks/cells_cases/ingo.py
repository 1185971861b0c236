"""Cells of Lyu and Tsang, "Black-box optimizer with stochastic implicit natural gradient"."""

import math
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np

from . import common
from .common import Found


def orthogonal_kink() -> Found:
    """Algorithm 3 from ``d`` orthogonal points on ``sum x^2 + |x|``: how fast the average error falls.

    (28), (29) with ``G = b I``, b = gamma / 2, and the estimate (168); points have orthogonal directions and lengths
    of N(0, I). The value is the slope of the log of ``(1/T) sum_t f(mu_t)`` against log T, less that of log(T) / T, as
    Theorem 6 bounds it. All generations are averaged, and the optimum is 0.
    """
    settings = common.experiment("ingo_rates")
    method = settings["methods"]["ingo_zeroth_order_orthogonal"]
    options, d = method["options"], settings["problems"]["elastic_net"]["dim"]
    beta, b = options["beta"], options["b"]
    generations = method["budget"] // (options["population"] + 1)  # d points and the mean
    runs = 80

    def f(x):
        return jnp.sum(x * x + jnp.abs(x), axis=-1)

    def points(key):
        """Haar directions by Gram-Schmidt, times lengths of independent Gaussian vectors."""
        rows, lengths = jax.random.normal(key, (2, d, d))
        basis = []
        for v in rows:
            for e in basis:
                v = v - (v @ e) * e
            basis.append(v / jnp.sqrt(v @ v))
        return jnp.stack(basis) * jnp.sqrt(jnp.sum(lengths**2, axis=1, keepdims=True))

    def step(state, t):
        key, mu, precision, total = state
        total = total + f(mu)  # mu_1 is the start
        z = points(jax.random.fold_in(key, t))
        sigma = precision**-0.5
        g = jnp.mean(z / sigma * (f(mu + sigma * z) - f(mu))[:, None], axis=0)  # (168)
        precision = precision + 2 * beta * b  # (28)
        mu = mu - beta * g / precision  # (29)
        return (key, mu, precision, total), total / (t + 1)

    def run(key):
        start = jax.random.uniform(jax.random.fold_in(key, 0), (d,))
        state = (jax.random.fold_in(key, 1), start, jnp.asarray(1 / 0.5**2), jnp.asarray(0.0))
        return jax.lax.scan(step, state, jnp.arange(generations))[1]

    keys = jax.random.split(jax.random.key(4711), runs)
    average = np.asarray(jax.jit(lambda keys: jax.vmap(run)(keys)[:, 1000:])(keys))
    at = np.unique(np.geomspace(settings["rates"]["first"], generations, 200).astype(int))
    average, at = average[:, at - 1001], at.astype(float)

    def excess(kept):
        def slope(error):
            return np.polyfit(np.log(at), np.log(error), 1)[0]

        return slope(average[kept].mean(axis=0)) - slope(np.log(at) / at)

    return common.jackknifed(excess, runs, note=f"generations {at[0]:.0f} to {at[-1]:.0f}")


def reinforce_normalised_discus() -> Found:
    """Gradient descent on ``(mu, sigma^2)`` from normalised values: how often it blows up on Discus (Appendix K).

    Gradients (12), (13) on the diagonal, ``mean h z / sigma`` and ``mean h (z^2 - 1) / (2 sigma^2)``, with
    ``h = (f - mean f) / std f`` (section 6), and at least 1e-3 of each variance kept, as the page says. A run blows up
    that ends a thousand times above its start or is no number.
    """
    settings, cell = common.experiment("ingo_steps"), common.claim("ingo_steps:normalised-stays-discus")
    method, d = settings["methods"]["reinforce_gd_1e_6"], settings["problems"]["discus"]["dim"]
    step = method["options"]["step_size"]
    points = 2 * math.floor(3 + math.floor(3 * math.log(d)) / 2)
    runs, rng = 200, np.random.default_rng(4712)
    scale = np.r_[1e6, np.ones(d - 1)]

    def f(x):
        return (x * x) @ scale

    mu, variance = rng.uniform(size=(runs, d)), np.full((runs, d), 0.5**2)
    start = f(mu)
    for _ in range(method["budget"] // points):
        z, sigma = rng.standard_normal((runs, points, d)), np.sqrt(variance)
        values = f(mu[:, None] + sigma[:, None] * z)
        h = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)
        mu = mu - step * np.einsum("rn,rnd->rd", h, z) / points / sigma  # (12)
        slope = np.einsum("rn,rnd->rd", h, z * z - 1) / points / (2 * variance)  # (13)
        variance = np.maximum(variance - step * slope, 1e-3 * variance)
    blown = ~(f(mu) <= cell["test"]["times"] * start)
    return common.share(blown, note=f"{int(blown.sum())} of {runs} runs")


def half_cheetah(pairs: int = 6) -> Found:
    """Fast-INGO beside ES on HalfCheetah, from episodes of gymnasium: in how many pairs it ends with a higher return.

    Each pair has its own initial state, so the function is not that of the page, where all runs have one. Pairs run in
    as many processes as there are cores.
    """
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        ends = np.array(list(pool.map(half_cheetah_pair, range(pairs))))
    higher = ends[:, 0] > ends[:, 1]
    returns = "; ".join(f"{fast:.0f} and {es:.0f}" for fast, es in ends)
    return common.share(higher, note=f"{int(higher.sum())} of {pairs} pairs; returns of Fast-INGO and ES: {returns}")


def half_cheetah_pair(seed: int) -> list[float]:
    """Returns at the final means of Fast-INGO and of ES, of a policy with 16 tanh units.

    Fast-INGO is (18), (19) on the diagonal with normalised values ``h``; ES steps along ``mean h z / sigma`` of
    antithetic points, by 0.01 (section 6).
    """
    import gymnasium

    settings = common.experiment("ingo_rl")
    problem = settings["problems"]["half_cheetah"]
    beta, points = settings["methods"]["fast_ingo"]["options"]["beta"], problem["population"]
    made = gymnasium.make("HalfCheetah-v5", disable_env_checker=True)
    env, length = made.unwrapped, made.spec.max_episode_steps  # an episode never ends before
    seen, moves = env.observation_space.shape[0], env.action_space.shape[0]
    d = 16 * (seen + 1) + moves * 17
    high = env.action_space.high.astype(float)

    def episode(x):
        first, second = x[: 16 * (seen + 1)].reshape(16, -1), x[16 * (seen + 1) :].reshape(moves, -1)
        state, total = env.reset(seed=seed)[0], 0.0
        for _ in range(length):
            units = np.tanh(first[:, :-1] @ state + first[:, -1])
            action = high * np.tanh(second[:, :-1] @ units + second[:, -1])
            state, reward, *_ = env.step(action)
            total += reward
        return total

    def search(fast):
        rng, mu, sigma = np.random.default_rng([4713, fast, seed]), np.zeros(d), np.full(d, 0.1)
        for _ in range(problem["budget"] // points):
            z = rng.standard_normal((points if fast else points // 2, d))
            z = z if fast else np.concatenate([z, -z])
            f = np.array([-episode(mu + sigma * one) for one in z])
            h = (f - f.mean()) / f.std()
            if fast:
                q = 1 + beta * np.mean(h[:, None] * (z * z - 1), axis=0)  # (18): sigma^2 over the new one
                mu, sigma = mu - beta * sigma * (h @ z) / points / q, sigma / np.sqrt(q)  # (19)
            else:
                mu = mu - 0.01 * (h @ z) / points / sigma
        return float(episode(mu))

    return [search(fast) for fast in (1, 0)]
