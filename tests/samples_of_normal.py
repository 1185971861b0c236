"""Samples of a normal distribution, and how many of their intervals must cover."""

import numpy as np
import scipy.signal
import scipy.stats


def normal(m=60, dim=2, seed=0):
    return np.random.default_rng(seed).normal(size=(m, dim))


def autoregression(rng, *shape, keep, axis=-2):
    """Stationary chains along an axis, of N(0, 1) in each coordinate."""
    x = rng.normal(size=shape)
    np.moveaxis(x, axis, 0)[1:] *= np.sqrt(1 - keep**2)
    return scipy.signal.lfilter([1], [1, -keep], x, axis=axis)


def smooth(x):
    return np.column_stack([np.exp(0.3 * x[:, 0]) + x[:, 1], np.sin(x[:, 0]) + x[:, 1] ** 2])


def fewest(number, share=0.9):
    """Intervals that cover at least, of so many, if they do with this probability."""
    return scipy.stats.binom.ppf(0.005, number, share)
