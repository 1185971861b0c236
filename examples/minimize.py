"""Robust regression by black-box search: coefficients that minimise the sum of the smallest squared residuals.

Least trimmed squares (Rousseeuw, 1984) ignores the worst quarter of the rows, whichever they are: its loss has many
minima and no gradient where rows change sides, so that values are all that a search can use.

    python examples/minimize.py  # with scikit-learn, for the data
"""

import numpy as np
from sklearn.datasets import load_diabetes

import lowvar

KEPT = 0.75  # share of the rows that count


def spoiled(seed=0):
    """Diabetes progression, standardised, with a fifth of the targets replaced; ``x, y``, and which rows are sound."""
    rng = np.random.default_rng(seed)
    x, y = load_diabetes(return_X_y=True)
    x, y = np.column_stack([np.ones(len(x)), x / x.std(axis=0)]), (y - y.mean()) / y.std()
    sound = rng.random(len(y)) > 0.2
    return x, np.where(sound, y, 8 + 2 * x[:, 3]), sound


def loss(x, y):
    """``(n, dim) -> (n,)``: the mean of the smallest squared residuals, for a whole generation of coefficients."""
    kept = int(KEPT * len(y))

    def values(w):
        squares = (w @ x.T - y[None, :]) ** 2
        return np.partition(squares, kept, axis=1)[:, :kept].mean(axis=1)

    return values


def main():
    x, y, sound = spoiled()
    least_squares = np.linalg.lstsq(x, y)[0]
    result = lowvar.minimize(loss(x, y), np.zeros(x.shape[1]), 0.5, budget=10_000, batched=True)
    print(result)
    for name, w in (("least squares", least_squares), ("trimmed", result.x)):
        errors = np.abs(x @ w - y)[sound]
        print(f"{name:13}  loss {loss(x, y)(w[None, :])[0]:.3f}, median error on sound rows {np.median(errors):.3f}")
    sound_only = np.linalg.lstsq(x[sound], y[sound])[0]
    print(f"{'sound rows':13}  median error {np.median(np.abs(x @ sound_only - y)[sound]):.3f}, if one knew them")


if __name__ == "__main__":
    main()
