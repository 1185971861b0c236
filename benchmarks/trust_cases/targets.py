"""Targets, samplers and cases of expectations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.integrate
import scipy.stats

from trust_cases.common import generator

BLOCK = 20  # repetitions whose chains are run together


@dataclass(frozen=True)
class Target:
    """A density on R^dim: independent draws `(rng, n) -> (n, dim)`, its logarithm up to a constant, and the score."""

    dim: int
    draw: Callable[[np.random.Generator, int], np.ndarray]
    log_density: Callable[[np.ndarray], np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Integral:
    """A case.

    Attributes:
        name: name of the case, and of its random numbers.
        what: description for the page.
        targets: one target for all tasks, or one for each task.
        sizes: samples of each target.
        values: values of the integrands, for each target `(m, d) -> (m,)` or `(m, T)`.
        truth: the expectations `(T,)`.
        sampler: `(target, rngs, m) -> (R, m, d)`; independent draws by default.
        chain: the argument of `integrate`.
        given: the scores for `integrate` if they are wrong, for each target.
        wrong: the mistake in the inputs.
        jumps: whether an integrand jumps where few samples fall: the note on jumps then counts.
    """

    name: str
    what: str
    targets: tuple[Target, ...]
    sizes: tuple[int, ...]
    values: tuple[Callable[[np.ndarray], np.ndarray], ...]
    truth: Callable[[], np.ndarray]
    sampler: Callable | None = None
    chain: bool = False
    given: Callable[[np.ndarray], np.ndarray] | None = None
    wrong: str = ""
    jumps: bool = False

    def inputs(self, repetitions: int) -> Iterator[tuple]:
        """Samples, scores and values of each repetition."""
        sampler = self.sampler or independent
        for first in range(0, repetitions, BLOCK):
            block = range(first, min(first + BLOCK, repetitions))
            drawn = [
                sampler(target, [generator(self.name, t, r) for r in block], m)
                for t, (target, m) in enumerate(zip(self.targets, self.sizes, strict=True))
            ]
            for r in range(len(block)):
                x = [one[r] for one in drawn]
                scores = [(self.given or target.score)(one) for target, one in zip(self.targets, x, strict=True)]
                values = [value(one) for value, one in zip(self.values, x, strict=True)]
                yield (x[0], scores[0], values[0]) if len(x) == 1 else (x, scores, values)


def independent(target: Target, rngs, m: int) -> np.ndarray:
    return np.stack([target.draw(rng, m) for rng in rngs])


def metropolis(target: Target, rngs, m: int, *, scale: float, warmup: int) -> np.ndarray:
    """Random-walk Metropolis, started at a draw."""
    steps = m + warmup
    noise = scale * np.stack([rng.normal(size=(steps, target.dim)) for rng in rngs], 1)
    coins = np.log(np.stack([rng.random(steps) for rng in rngs], 1))
    x = np.concatenate([target.draw(rng, 1) for rng in rngs])
    density, kept = target.log_density(x), np.empty((steps, *x.shape))
    for s in range(steps):
        proposed = x + noise[s]
        its = target.log_density(proposed)
        moved = coins[s] < its - density
        x, density = np.where(moved[:, None], proposed, x), np.where(moved, its, density)
        kept[s] = x
    return np.swapaxes(kept[warmup:], 0, 1)


def langevin(target: Target, rngs, m: int, *, step: float, warmup: int, chains: int = 1, start=None) -> np.ndarray:
    """Metropolis-adjusted Langevin; several chains are concatenated."""
    if chains > 1:
        parts = [langevin(target, rngs, m // chains, step=step, warmup=warmup, start=start) for _ in range(chains)]
        return np.concatenate(parts, 1)
    steps = m + warmup
    noise = np.stack([rng.normal(size=(steps, target.dim)) for rng in rngs], 1)
    coins = np.log(np.stack([rng.random(steps) for rng in rngs], 1))
    x = np.concatenate([target.draw(rng, 1) for rng in rngs]) if start is None else np.tile(start, (len(rngs), 1))
    density, slope, kept = target.log_density(x), target.score(x), np.empty((steps, *x.shape))
    for s in range(steps):
        proposed = x + step * slope + (2 * step) ** 0.5 * noise[s]
        its, its_slope = target.log_density(proposed), target.score(proposed)
        back = ((x - proposed - step * its_slope) ** 2).sum(1) / (4 * step)
        forth = ((proposed - x - step * slope) ** 2).sum(1) / (4 * step)
        moved = coins[s] < its - density - back + forth
        x, slope = np.where(moved[:, None], proposed, x), np.where(moved[:, None], its_slope, slope)
        density = np.where(moved, its, density)
        kept[s] = x
    return np.swapaxes(kept[warmup:], 0, 1)


def normal(mean, covariance) -> Target:
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    root, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    def score(x):
        return -(x - mean) @ precision

    return Target(
        len(mean), lambda rng, n: mean + rng.normal(size=(n, len(mean))) @ root.T,
        lambda x: 0.5 * ((x - mean) * score(x)).sum(1), score,
    )  # fmt: skip


def product(dim: int, draw, log_density, score) -> Target:
    """A target of independent coordinates with the same density."""
    return Target(dim, lambda rng, n: draw(rng, (n, dim)), lambda x: log_density(x).sum(1), score)


def equal_correlation(dim: int, rho: float) -> np.ndarray:
    return (1 - rho) * np.eye(dim) + rho


def quadrature(f, low=-np.inf, high=np.inf, points=()) -> float:
    """An integral over an interval, cut at `points`."""
    edges = [low, *points, high]
    parts = [scipy.integrate.quad(f, a, b, limit=400, epsabs=1e-13, epsrel=1e-11)[0]
             for a, b in pairwise(edges)]  # fmt: skip
    return float(sum(parts))


def log_gamma(shape: float, dim: int) -> Target:
    """Logarithms of gamma variables, with the Jacobian."""
    return product(
        dim, lambda rng, size: np.log(np.maximum(rng.gamma(shape, size=size), 1e-300)),
        lambda u: shape * u - np.exp(u), lambda u: shape - np.exp(u),
    )  # fmt: skip


phi, sf = scipy.stats.norm.pdf, scipy.stats.norm.sf
THREE = normal([0.5, -1.0, 2.0], np.diag([1.0, 4.0, 0.25]) ** 0.5 @ equal_correlation(3, 0.6) @ np.diag([1, 2, 0.5]))
SIDES = normal([1.0, 2.0], [[1.0, 0.2], [0.2, 0.25]])


def three_values(x):
    return np.stack([np.exp(0.5 * x[:, 0]), x[:, 1] ** 2], 1)


def three_truth():
    return np.array([np.exp(0.25 + 0.125), 5.0])
