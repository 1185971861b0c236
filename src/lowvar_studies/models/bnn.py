"""Regression by a Bayesian neural network with one hidden layer: a NumPyro model, and its fused implementation.

``alpha, tau ~ Gamma(1, 0.1)`` (rate 0.1), all weights and biases ``w ~ N(0, 1 / alpha)``, ``y_n ~ N(f(x_n, w),
1 / tau)`` with ``f`` a layer of rectified linear units and one output; ``1 / alpha`` and ``1 / tau`` are variances.
With 11 features and 50 units ``w`` has 651 entries, and ``z`` has 653.

``y`` is standardised by the mean and standard deviation (divisor N) of the fitted rows; all densities, also of test
rows, are those of the standardised ``y``. Features are used as given and should be standardised as well.

The start ``"origin"`` draws the means of ``w`` from ``N(0, 0.3^2)``: at ``w = 0`` all units are equal and have zero
gradient.

References:
    Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", NIPS 2017.
    Fujisawa and Sato, "Multilevel Monte Carlo variational inference", JMLR 2021, Appendix F.3.
"""

import math
from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.variational import HeldOut, VariationalProblem
from lowvar_studies.models.checks import features, responses
from lowvar_studies.models.split import test_part

_LOG_2PI = math.log(2 * math.pi)
_RATE = 0.1  # rate of the precisions' priors
_SPREAD = 0.3  # standard deviation of the weights' initial means

DATA = ("x", "y")  # arrays that the model needs


def model(x, y=None, hidden=50, batch_size=None):
    """The NumPyro model.

    Args:
        x: features, ``(N, d)``.
        y: responses, ``(N,)`` or ``(N, 1)``, which the model standardises.
        hidden: number of hidden units.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    N, d = x.shape
    alpha = numpyro.sample("alpha", dist.Gamma(1.0, _RATE))
    tau = numpyro.sample("tau", dist.Gamma(1.0, _RATE))
    count = (d + 2) * hidden + 1
    w: Any = numpyro.sample("w", dist.Normal(0, alpha**-0.5).expand([count]).to_event(1))
    inside, bias, out, last = jnp.split(w, [d * hidden, (d + 1) * hidden, (d + 2) * hidden])
    if y is not None:
        y = (y.reshape(-1) - y.mean()) / y.std()
    with numpyro.plate("data", N, subsample_size=batch_size) as index:
        units = jnp.maximum(x[index] @ inside.reshape(d, hidden) + bias, 0.0)
        observed = None if y is None else y[index]
        numpyro.sample("y", dist.Normal(units @ out + last, tau**-0.5), obs=observed)


def problem(arrays, backend: str = "jax", name: str = "bnn", hidden: int = 50) -> VariationalProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) or (N, 1)}``, in either backend.

    ``z`` is ``log alpha``, ``log tau``, then ``w``: the hidden layer's weights ``(d, hidden)`` and biases, the output's
    weights and its bias. ``test_x`` and ``test_y`` in the data are the test rows.

    Raises:
        UserError: arrays of other shapes, constant responses, or no hidden unit.
    """
    ops, x = get(backend), features(arrays["x"], name)
    if not isinstance(hidden, int | np.integer) or hidden < 1:
        raise UserError(f"{name}: hidden = {hidden!r}; the number of units must be 1 or more")
    test, xp, d = test_part(arrays, ("x", "y"), name), ops.xp, x.shape[1]
    count = (d + 2) * hidden + 1
    y = responses(arrays["y"], x, name).astype(np.float64)
    if y.min() == y.max():  # whose standard deviation may be above zero by rounding
        raise UserError(f"{name}: y is {y[0]:g} in all {len(x)} rows to fit; it must vary to be standardised")
    mean, sd = y.mean(), y.std()

    def log_likelihood_of(x, y):
        X, Y = ops.asarray(x), ops.asarray(((y - mean) / sd).astype(x.dtype))

        def log_likelihood(z, index):
            u, w = z[1], z[2:]
            inside, bias = xp.reshape(w[: d * hidden], (d, hidden)), w[d * hidden : (d + 1) * hidden]
            units = ops.relu(ops.take(X, index) @ inside + bias[None, :])
            apart = ops.take(Y, index) - units @ w[(d + 1) * hidden : (d + 2) * hidden] - w[count - 1]
            return 0.5 * (u - _LOG_2PI - xp.exp(u) * apart * apart)

        return log_likelihood

    held_out = None
    if test is not None:
        of_test = features(test["x"], f"{name}, test part")
        held_out = HeldOut(
            len(of_test), log_likelihood_of(of_test, responses(test["y"], of_test, f"{name}, test part"))
        )
    log_prior, expected_log_prior = _prior(ops, count)
    return VariationalProblem(
        name, ops, len(x), count + 2, log_likelihood_of(x, y), log_prior, expected_log_prior=expected_log_prior,
        sites={"alpha": slice(0, 1), "tau": slice(1, 2), "w": slice(2, count + 2)}, dtype=x.dtype, held_out=held_out,
        spread=np.concatenate([np.zeros(2), np.full(count, _SPREAD)]),
    )  # fmt: skip


def _prior(ops, count):
    """``log p(log alpha, log tau, w)`` with the logarithms' Jacobians, and its mean under a mean-field guide."""
    xp = ops.xp
    constant = 2 * math.log(_RATE) - 0.5 * count * _LOG_2PI

    def log_prior(z):
        u, t, w = z[0], z[1], z[2:]
        alpha = xp.exp(u)
        return constant + (1 + 0.5 * count) * u + t - _RATE * (alpha + xp.exp(t)) - 0.5 * alpha * xp.sum(w * w)

    def expected_log_prior(params):
        m, v = params["mu"], xp.exp(2 * params["log_sigma"])
        alpha, tau = xp.exp(m[0] + 0.5 * v[0]), xp.exp(m[1] + 0.5 * v[1])
        squares = xp.sum(m[2:] ** 2 + v[2:])
        return constant + (1 + 0.5 * count) * m[0] + m[1] - _RATE * (alpha + tau) - 0.5 * alpha * squares

    return log_prior, expected_log_prior
