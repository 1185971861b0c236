"""Samples of a normal distribution, with their scores."""

import numpy as np


def normal(m=60, dim=2, seed=0):
    return np.random.default_rng(seed).normal(size=(m, dim))


def smooth(x):
    return np.column_stack([np.exp(0.3 * x[:, 0]) + x[:, 1], np.sin(x[:, 0]) + x[:, 1] ** 2])
