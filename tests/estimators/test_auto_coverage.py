"""Intervals of ``auto`` on targets that are not kind, from 50 to 4000 points: ``pytest -m long`` runs them."""

import functools

import numpy as np
import pytest
import scipy.stats
from test_auto import PEAK, above, autoregression, banana, funnel, hash_of, normal, student

from lowvar.estimators.integral.auto import auto
from lowvar.problems.integrals.samples import Samples

REPETITIONS = {50: 60, 200: 40, 1000: 12, 4000: 5}
NEAR = 1e-3  # of Monte Carlo's expected error, that a repetition may be off by whatever its interval


def mala(rngs, m, step=0.35, warmup=100):
    """Langevin chains on the banana, all repetitions at once, started at draws: ``(R, m, 2)`` and scores."""

    def log_density(x):
        return -0.5 * x[:, 0] ** 2 - 2 * (x[:, 1] - x[:, 0] ** 2) ** 2

    def slope(x):
        rest = (x[:, 1] - x[:, 0] ** 2) / 0.25
        return np.column_stack([2 * rest * x[:, 0] - x[:, 0], -rest])

    x = np.concatenate([banana(rng, 1)[0] for rng in rngs])
    noise = np.stack([rng.normal(size=(m + warmup, 2)) for rng in rngs])
    uniform = np.stack([rng.random(m + warmup) for rng in rngs])
    states, score, level = [], slope(x), log_density(x)
    for i in range(m + warmup):
        proposed = x + step**2 / 2 * score + step * noise[:, i]
        there, its_level = slope(proposed), log_density(proposed)
        forth = ((proposed - x - step**2 / 2 * score) ** 2).sum(1)
        back = ((x - proposed - step**2 / 2 * there) ** 2).sum(1)
        accepted = np.log(uniform[:, i]) < its_level - level + (forth - back) / (2 * step**2)
        x, score = np.where(accepted[:, None], proposed, x), np.where(accepted[:, None], there, score)
        level = np.where(accepted, its_level, level)
        states.append((x, score))
    return tuple(np.stack(of[warmup:], axis=1) for of in zip(*states, strict=True))


def each(draw):
    """Repetitions one after the other."""

    def drawn(rngs, m):
        return tuple(np.stack(of) for of in zip(*[draw(rng, m) for rng in rngs], strict=True))

    return drawn


def gaussian(mean, precision, keep=0.0):
    """Independent points of a normal, or an autoregression along them."""

    def draw(rng, m):
        x, _ = autoregression(rng, m, keep)
        x = mean + x[:, :1] / precision**0.5
        return x, -(x - mean) * precision

    return draw


PRECISIONS = np.array([1.0, 2.5, 12.0])
MEANS = (PRECISIONS - 1) / PRECISIONS
LADDER = np.exp(-2 / PRECISIONS) * np.cos(2 * MEANS)
CHAIN = {"chain": True}
# one sampler, or one for each task; integrand; truth
CASES = {
    "banana, a square": (each(banana), lambda x: x[..., 1] ** 2, 3.25, {}),
    "banana, a probability": (each(banana), lambda x: 1.0 * (x[..., 1] > 2), above(2.0), {}),
    "funnel, its neck": (each(funnel), lambda x: x[..., 0] ** 2, 9.0, {}),
    "funnel, heavy": (each(funnel), lambda x: np.abs(x[..., 1]), np.sqrt(2 / np.pi) * np.exp(9 / 8), {}),
    "t(5), variance": (each(student), lambda x: x[..., 0] ** 2, 5 / 3, {}),
    "t(5), smooth": (each(student), lambda x: 1 / (1 + x[..., 0] ** 2), None, {}),
    "normal, peak": (each(normal(2)), lambda x: np.exp(-2 * ((x - 0.5) ** 2).sum(-1)), PEAK, {}),
    "normal, kink": (each(normal(1)), lambda x: np.abs(x[..., 0]), np.sqrt(2 / np.pi), {}),
    "normal, jump": (each(normal(5)), lambda x: 1.0 * (x.sum(-1) > 1), scipy.stats.norm.sf(1 / np.sqrt(5)), {}),
    "chain, smooth": (each(autoregression), lambda x: x[..., 0] ** 2 + np.sin(x[..., 1]), 1.0, CHAIN),
    "chain, a jump": (each(autoregression), lambda x: 1.0 * (x[..., 0] > 1), scipy.stats.norm.sf(1), CHAIN),
    "MALA, a square": (mala, lambda x: x[..., 1] ** 2, 3.25, CHAIN),
    "MALA, a probability": (mala, lambda x: 1.0 * (x[..., 1] > 2), above(2.0), CHAIN),
    "ladder": (
        tuple(each(gaussian(*of)) for of in zip(MEANS, PRECISIONS, strict=True)),
        lambda x: np.cos(2 * x[..., 0]), LADDER, {},
    ),
    "ladder of chains": (
        tuple(each(gaussian(*of, 0.8)) for of in zip(MEANS, PRECISIONS, strict=True)),
        lambda x: np.cos(2 * x[..., 0]), LADDER, CHAIN,
    ),
}  # fmt: skip


@functools.cache
def measured(case: str, m: int) -> dict:
    """Of all repetitions and tasks: whether covered, told, the errors and Monte Carlo's."""
    samplers, integrand, truth, options = CASES[case]
    truth = scipy.stats.t(5).expect(lambda z: 1 / (1 + z * z)) if truth is None else truth
    repetitions = REPETITIONS[m]
    apart = isinstance(samplers, tuple)
    drawn = [
        draw([np.random.default_rng((hash_of(case), m, t, r)) for r in range(repetitions)], m)
        for t, draw in enumerate(samplers if apart else (samplers,))
    ]
    points, scores = zip(*drawn, strict=True)
    values = tuple(integrand(x) for x in points)
    samples = Samples(points, scores, values, shared=not apart, **options)
    found = auto().integrate(samples, np.zeros(repetitions, int))
    error = found.value - truth
    told = found.flags["few_carriers"] | found.flags["short_chain"]
    return {
        "covered": np.abs(error) < 1.96 * found.standard_error,
        "told": np.repeat(told[:, None], len(drawn), axis=1),
        "error": error,
        "monte_carlo": found.info["monte_carlo"] - truth,
        "stated": found.standard_error / found.info["monte_carlo_error"],
        "choices": dict(zip(*np.unique(found.info["choice"], return_counts=True), strict=True)),
    }


def summary(case, m):
    found = measured(case, m)
    ratio = np.sqrt((found["error"] ** 2).mean(0) / (found["monte_carlo"] ** 2).mean(0)).max()
    covered, told, stated = found["covered"].mean(), found["told"].mean(), np.median(found["stated"])
    choices = {str(name): int(count) for name, count in found["choices"].items()}
    return f"{case}, m = {m}: covered {covered:.3f}, told {told:.2f}, error {ratio:.3f}, stated {stated:.3f}, {choices}"
