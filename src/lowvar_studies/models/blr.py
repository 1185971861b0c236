"""Binary logistic regression with a hierarchical prior on its weights: a NumPyro model, and its fused implementation.

``alpha ~ Gamma(0.5, 0.5)``, ``mu ~ N(0, 1)``, ``w_j ~ N(mu, 1 / alpha)``, ``y_n ~ Bernoulli(sigmoid(x_n . w))``, no
intercept. ``1 / alpha`` is a variance: the paper puts an inverse gamma prior on that of the weights.

``z`` has ``d + 2`` entries for ``d`` features: 32 for the 30 features of the diagnostic breast cancer data. The paper
says 62 in its text and 11 in its appendix. The data set behind the paper's link has 9 features, which gives 11. 62
would need 60 features, as in sonar, or 30 features with weights for each of the two classes: ``blr_softmax`` with
``intercept=False`` on the same data is that model.

References:
    Fujisawa and Sato, "Multilevel Monte Carlo variational inference", JMLR 2021, Appendix F.2.
"""

import math
from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.designs import Affine, Dense
from lowvar.vi.linear import LinearProblem, linear
from lowvar.vi.links import Bernoulli
from lowvar_studies.models.split import TEST, held_out

_LOG_2PI = math.log(2 * math.pi)

DATA = ("x", "y")  # arrays that the model needs


def model(x, y=None, batch_size=None):
    """The NumPyro model.

    Args:
        x: features, ``(N, d)``.
        y: labels in {0, 1}, ``(N,)``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    w = weights(numpyro.sample, dist, [x.shape[1]])
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        labels = None if y is None else y[index]
        numpyro.sample("y", dist.Bernoulli(logits=x[index] @ w), obs=labels)


def problem(arrays, backend: str = "jax", name: str = "blr") -> LinearProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in {0, 1}}``, in either backend.

    ``z`` is ``log alpha``, ``mu``, then ``w``. ``test_x`` and ``test_y`` in the data are the test rows.

    Raises:
        UserError: arrays of other shapes, or labels other than 0 and 1.
    """
    ops = get(backend)
    x = features(arrays["x"], name)

    def design(x):
        return Affine(Dense(ops, ops.asarray(x)), start=2, intercept=False)

    def link(y, key="y", rows=None):
        return Bernoulli(ops, ops.asarray(_sign(y, rows, x.dtype, name, key)))

    test = held_out(arrays, name, design, lambda y: link(y, f"{TEST}y"))
    d = x.shape[1]
    return linear(
        name, len(x), x.dtype, design(x), link(arrays["y"], rows=len(x)), *prior(ops, d), sites=sites(d), held_out=test
    )


# --- shared with the model of several classes -----------------------------------------------------------------------


def weights(sample, dist, shape) -> Any:
    """The weights of a NumPyro model with their hyperpriors, an array of that shape."""
    alpha = sample("alpha", dist.Gamma(0.5, 0.5))
    mu = sample("mu", dist.Normal(0, 1))
    return sample("w", dist.Normal(mu, alpha**-0.5).expand(shape).to_event(len(shape)))


def sites(count: int) -> dict[str, slice]:
    """The slices of ``z`` by site, with ``count`` weights."""
    return {"alpha": slice(0, 1), "mu": slice(1, 2), "w": slice(2, 2 + count)}


def prior(ops, count: int):
    """``log p(log alpha, mu, w)`` with the logarithm's Jacobian, and its mean under a mean-field guide."""
    xp = ops.xp
    constant = 0.5 * math.log(0.5) - math.lgamma(0.5) - 0.5 * (count + 1) * _LOG_2PI

    def log_prior(z):
        u, mu, w = z[0], z[1], z[2:]
        squares = xp.sum((w - mu) ** 2)
        return constant + 0.5 * (1 + count) * u - 0.5 * (xp.exp(u) * (1 + squares) + mu * mu)

    def expected_log_prior(params):
        m, v = params["mu"], xp.exp(2 * params["log_sigma"])
        squares = xp.sum((m[2:] - m[1]) ** 2 + v[2:]) + count * v[1]
        alpha = xp.exp(m[0] + 0.5 * v[0])
        return constant + 0.5 * (1 + count) * m[0] - 0.5 * (alpha * (1 + squares) + m[1] ** 2 + v[1])

    return log_prior, expected_log_prior


def features(x, name: str) -> np.ndarray:
    """Features, checked.

    Raises:
        UserError: not a floating matrix.
    """
    x = np.asarray(x)
    if x.ndim != 2 or x.dtype.kind != "f" or not x.size:
        raise UserError(f"{name}: x must be a floating array (N, d), not {x.dtype} of shape {x.shape}")
    return x


def _sign(y, rows, dtype, name, key):
    y = np.asarray(y)
    if y.ndim != 1 or (rows is not None and len(y) != rows):
        wanted = "one label for each row" if rows is None else f"({rows},), a label for each row of x"
        raise UserError(f"{name}: {key} has shape {y.shape}; it must be {wanted}")
    if wrong := [value for value in np.unique(y) if value not in (0, 1)]:
        raise UserError(f"{name}: {key} must hold labels 0 and 1; it has {wrong[0]}")
    return np.where(y == 1, 1.0, -1.0).astype(dtype)
