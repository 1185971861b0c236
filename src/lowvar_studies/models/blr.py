"""Logistic regression with a hierarchical prior on its weights: the NumPyro model, and fused implementations.

``alpha ~ Gamma(0.5, 0.5)``, ``mu ~ N(0, 1)``, ``w_j ~ N(mu, 1 / alpha)``, ``y_n ~ Bernoulli(sigmoid(x_n . w))``, no
intercept. ``1 / alpha`` is a variance: the paper puts an inverse gamma prior on that of the weights.

`blr_softmax` has ``C`` classes and an intercept with the weights' prior: ``y_n ~ Categorical(softmax((x_n, 1) w))``. On
images of 784 pixels in 10 classes ``z`` has 7840 + 10 + 2 = 7852 entries, as in the paper.

``z`` has ``d + 2`` entries for ``d`` features: 32 for the 30 features of the diagnostic breast cancer data. The paper
says 62 in its text and 11 in its appendix. The data set behind the paper's link has 9 features, which gives 11. 62
would need 60 features, as in sonar, or 30 features with weights for each of the two classes: ``blr_softmax`` with
``intercept=False`` on the same data is that model.

References:
    Fujisawa and Sato, "Multilevel Monte Carlo variational inference", JMLR 2021, section 5.2 and Appendix F.2.
"""

import math
from typing import Any

from lowvar.core.backend import get
from lowvar_studies.models.checks import count_classes
from lowvar_studies.models.linear.designs import Affine, Dense
from lowvar_studies.models.linear.problem import LinearProblem
from lowvar_studies.models.logistic_regression import classifier

_LOG_2PI = math.log(2 * math.pi)

DATA = ("x", "y")  # arrays that the models need


def model(x, y=None, batch_size=None):
    """The NumPyro model.

    Args:
        x: features, ``(N, d)``.
        y: labels in {0, 1}, ``(N,)``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    alpha = numpyro.sample("alpha", dist.Gamma(0.5, 0.5))
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    w: Any = numpyro.sample("w", dist.Normal(mu, alpha**-0.5).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        labels = None if y is None else y[index]
        numpyro.sample("y", dist.Bernoulli(logits=x[index] @ w), obs=labels)


def problem(arrays, backend: str = "jax", name: str = "blr") -> LinearProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in {0, 1}}``, in either backend.

    ``z`` is ``log alpha``, ``mu``, then ``w``. ``test_x`` and ``test_y`` in the data are the test rows.

    Raises:
        UserError: arrays of other shapes, or labels other than 0 and 1.
    """
    return _hierarchical(arrays, get(backend), name, None, False)


def softmax_problem(arrays, backend: str = "jax", name: str = "blr_softmax", intercept: bool = True) -> LinearProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in 0 .. C - 1}``, in either backend.

    ``z`` is ``log alpha``, ``mu``, then ``w``, whose last row are the intercepts. Optional data: the number
    ``"classes"`` (the largest label plus one if not given), and the test rows ``test_x`` and ``test_y``.

    Raises:
        UserError: arrays of other shapes, or labels out of range.
    """
    return _hierarchical(arrays, get(backend), name, count_classes(arrays), bool(intercept))


def _hierarchical(arrays, ops, name, classes, intercept) -> LinearProblem:
    """The problem of ``classes`` classes, or of two with one logit if None."""

    def design(x):
        return Affine(Dense(ops, ops.asarray(x), *([classes] if classes else ())), start=2, intercept=intercept)

    count = (arrays["x"].shape[-1] + intercept) * (classes or 1)
    sites = {"alpha": slice(0, 1), "mu": slice(1, 2), "w": slice(2, 2 + count)}
    return classifier(arrays, ops, name, design, classes, _prior(ops, count), sites=sites)


def _prior(ops, count: int):
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
