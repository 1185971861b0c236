"""Data without a raw file: simulated from a model with a seed, published as a few numbers, or in another package."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from lowvar_studies.datasets.readers import Table

_DIGITS = 9  # decimals of simulated data: the last digits of sums and exponentials differ between machines
# u_1 at s = 0, 1, .., 10: parameter 1, u(0) = (0, 2), noise of standard deviation 0.1
_VAN_DER_POL = (
    -0.06490137651912407, 2.0253794833657275, 1.5234675467282532, 0.436423900725732, -1.7752475581746274,
    -1.8770352953664626, -1.0546515194496622, 0.9592328217532438, 1.9585505961295833, 1.4065533263342098,
    -0.15664748180816496,
)  # fmt: skip


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


def van_der_pol(raw: str | Path) -> Table:
    """Noisy observations of a van der Pol oscillator; ``raw`` is not used.

    Returns:
        ``x`` (11, 1), the times 0 to 10, and ``y`` (11, 1), the first coordinate; both float64.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", JRSS B 2017, who drew them; the
        values are those of ``TI_Example/data.mat`` in github.com/jz-fun/Vector-valued-Control-Variates-Code.
    """
    y = np.array(_VAN_DER_POL)[:, None]
    return Table({"x": np.arange(len(y), dtype=float)[:, None], "y": y}, ("time",))


def breast_cancer(raw: str | Path) -> Table:
    """Scikit-learn's copy of the Wisconsin diagnostic data; ``raw`` is not used.

    >>> cells = breast_cancer("data/raw")
    >>> cells.arrays["x"].shape, int(cells.arrays["y"].sum()), cells.names[0]
    ((569, 30), 357, 'mean radius')
    """
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    x, y = np.asarray(data.data, dtype=np.float64), np.asarray(data.target, dtype=np.int64)
    return Table({"x": x, "y": y}, tuple(map(str, data.feature_names)))
