"""Functions of zero mean from monomials: the second-order Langevin operator applied to each."""

import itertools

import torch


def monomials(dim: int, order: int) -> torch.Tensor:
    """Exponents of all monomials of degree 1 to ``order`` in ``dim`` variables, ``(p, d)``, by degree.

    >>> monomials(2, 2).tolist()
    [[1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    rows = [
        [chosen.count(r) for r in range(dim)]
        for degree in range(1, order + 1)
        for chosen in itertools.combinations_with_replacement(range(dim), degree)
    ]
    return torch.tensor(rows, device="cpu")


def stein_features(exponents: torch.Tensor, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
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
    degree = int(exponents.max())
    powers = [torch.ones_like(x)]
    for _ in range(degree):
        powers.append(powers[-1] * x)
    table = torch.stack(powers, -1)  # (..., n, d, degree + 1)
    columns = []
    for row in exponents.tolist():
        column = torch.zeros_like(x[..., 0])
        active = [r for r, power in enumerate(row) if power]
        for r in active:
            rest = torch.ones_like(column)
            for s in active:
                if s != r:
                    rest = rest * table[..., s, row[s]]
            slope = row[r] * table[..., r, row[r] - 1] * scores[..., r]
            curve = row[r] * (row[r] - 1) * table[..., r, row[r] - 2] if row[r] > 1 else 0.0
            column = column + rest * (slope + curve)
        columns.append(column)
    return torch.stack(columns, -1)
