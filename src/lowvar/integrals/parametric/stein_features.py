"""Functions of zero mean from monomials: the second-order Langevin operator applied to each."""

import itertools

import numpy as np


def monomials(dim: int, order: int) -> np.ndarray:
    """Exponents of all monomials of degree 1 to ``order`` in ``dim`` variables, ``(p, d)``, by degree.

    >>> monomials(2, 2).tolist()
    [[1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    rows = [
        [chosen.count(r) for r in range(dim)]
        for degree in range(1, order + 1)
        for chosen in itertools.combinations_with_replacement(range(dim), degree)
    ]
    return np.array(rows)


def stein_features(exponents: np.ndarray, x: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """``Lap phi + grad phi . l`` for each monomial ``phi``: its mean under the target of ``l`` is zero.

    Args:
        exponents: ``(p, d)``.
        x: points, ``(..., n, d)``.
        scores: ``l``, ``(..., n, d)``.

    Returns:
        ``(..., n, p)``.

    References:
        Assaraf and Caffarel, "Zero-variance principle for Monte Carlo algorithms", 1999; Mira, Solgi and Imparato,
        "Zero variance Markov chain Monte Carlo for Bayesian estimators", 2013; Sun, Barp and Briol, eq. (11).
    """
    powers = [np.ones_like(x)]
    for _ in range(int(exponents.max())):
        powers.append(powers[-1] * x)
    found = np.empty((*x.shape[:-1], len(exponents)))
    for column, row in enumerate(exponents.tolist()):
        active = [r for r, power in enumerate(row) if power]
        total: np.ndarray | float = 0.0
        for r in active:
            slope = row[r] * powers[row[r] - 1][..., r] * scores[..., r]
            if row[r] > 1:
                slope += row[r] * (row[r] - 1) * powers[row[r] - 2][..., r]
            for s in active:
                if s != r:
                    slope *= powers[row[s]][..., s]
            total = total + slope
        found[..., column] = total
    return found
