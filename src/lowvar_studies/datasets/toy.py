"""Data simulated from a model, with a seed, in place of a file."""

import math
from pathlib import Path

import numpy as np

from lowvar_studies.datasets.readers import Table

_DIGITS = 9  # decimals kept, since the last digits of sums and exponentials differ between machines


def hlr(raw: str | Path, *, seed: int, rows: int, test_rows: int, features: int, intercepts: str = "variance") -> Table:
    """Draws from a hierarchical linear regression with weights for each row; ``raw`` is not used.

    ``mu_j ~ N(0, 10^2)``, ``log sigma ~ N(0, 0.5^2)``, ``log eps ~ N(0, 0.5^2)``; for each row ``x_ij ~ N(0, 1)``,
    ``b_ij ~ N(mu_j, sigma)`` with variance ``sigma``, and ``y_i ~ N(x_i . b_i, eps^2)``. Appendix F.1 calls
    ``sigma'`` the variance of the intercepts, and does not say what ``eps`` is: it is taken as a standard deviation,
    and LogNormal(0.5) as that of ``log sigma``.

    Test rows are drawn after the others, with the same ``mu``, ``sigma`` and ``eps``, so that all ``rows`` rows can be
    fitted. All numbers are rounded to nine decimals, so that they agree on all machines.

    Args:
        raw: the folder of raw files.
        seed: seed of NumPy's default generator.
        rows: number of rows to fit.
        test_rows: number of test rows.
        features: entries of ``x_i``.
        intercepts: what ``sigma`` is of the ``b_ij``: their ``"variance"`` or their ``"sd"``.

    Returns:
        ``x`` (rows, features) and ``y`` (rows, 1), ``test_x`` and ``test_y`` likewise, all float64; with the seed and
        the true ``mu``, ``sigma`` and ``eps`` as notes.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", JMLR 2021, Appendix F.1.

    >>> hlr("data/raw", seed=0, rows=3, test_rows=2, features=4).arrays["test_x"].shape
    (2, 4)
    """
    spread = {"variance": math.sqrt, "sd": float}[intercepts]
    draw = np.random.default_rng(seed)
    mu = 10.0 * draw.standard_normal(features)
    sigma, eps = (math.exp(0.5 * value) for value in draw.standard_normal(2))
    arrays = {}
    for part, count in (("", rows), ("test_", test_rows)):
        x = draw.standard_normal((count, features))
        b = mu + spread(sigma) * draw.standard_normal((count, features))
        y = (x * b).sum(axis=1) + eps * draw.standard_normal(count)
        arrays |= {f"{part}x": x.round(_DIGITS), f"{part}y": y[:, None].round(_DIGITS)}
    notes = {"seed": seed, "mu": mu.round(_DIGITS).tolist(), "sigma": round(sigma, _DIGITS), "eps": round(eps, _DIGITS)}
    return Table(arrays, tuple(f"x_{j + 1}" for j in range(features)), notes)
