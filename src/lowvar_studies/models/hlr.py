"""Hierarchical linear regression with weights for each row: a NumPyro model, and analytic gradients.

``mu_j ~ N(0, 10^2)``, ``sigma ~ LogNormal(0, 0.5)``, ``eps ~ LogNormal(0, 0.5)``, ``b_ij ~ N(mu_j, sigma)`` with
variance ``sigma``, ``y_i ~ N(x_i . b_i, eps^2)``. Appendix F.1 calls ``sigma'`` the variance of the intercepts, and
does not say what ``eps`` is: it is taken as a standard deviation. With ``intercepts="sd"``, ``sigma`` is one too. With
100 rows of 10 features, ``z`` has 1000 + 10 + 2 = 1012 entries.

A test row has its own weights, which the data do not inform. They are integrated out: given the common parameters, its
density is ``y ~ N(x . mu, sigma |x|^2 + eps^2)``.

References:
    Fujisawa and Sato, "Multilevel Monte Carlo variational inference", JMLR 2021, Appendix F.1.
"""

import math
from dataclasses import dataclass
from typing import Any

from lowvar.core.backend import get
from lowvar.errors import unknown_name
from lowvar.vi.variational import HeldOut, VariationalProblem
from lowvar_studies.models.checks import features, responses
from lowvar_studies.models.split import test_part

_LOG_2PI = math.log(2 * math.pi)
_MEAN_SD, _LOG_SD = 10.0, 0.5  # prior standard deviations of `mu`, and of `log sigma` and `log eps`

_POWERS = {"variance": 1, "sd": 2}  # of `sigma` in the variance of the rows' weights

DATA = ("x", "y")  # arrays that the model needs


def model(x, y=None, batch_size=None, intercepts="variance"):
    """The NumPyro model; the weights of all rows are one site, indexed by the data plate.

    Args:
        x: features, ``(N, d)``.
        y: responses, ``(N,)`` or ``(N, 1)``.
        batch_size: rows of a mini-batch; all of them if not given.
        intercepts: what ``sigma`` is of the rows' weights: their ``"variance"`` or their ``"sd"``.
    """
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    N, d = x.shape
    mu: Any = numpyro.sample("mu", dist.Normal(0, _MEAN_SD).expand([d]).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(0, _LOG_SD))
    eps = numpyro.sample("eps", dist.LogNormal(0, _LOG_SD))
    b: Any = numpyro.sample("b", dist.Normal(mu, sigma ** (_POWERS[intercepts] / 2)).expand([N, d]).to_event(2))
    with numpyro.plate("data", N, subsample_size=batch_size) as index:
        observed = None if y is None else y.reshape(-1)[index]
        numpyro.sample("y", dist.Normal(jnp.sum(x[index] * b[index], axis=1), eps), obs=observed)


def problem(arrays, backend: str = "jax", name: str = "hlr", intercepts: str = "variance") -> "Hierarchical":
    """The model on data ``{"x": (N, d) floating, "y": (N,) or (N, 1)}``, in either backend.

    ``z`` is all ``b``, ``log eps``, ``mu``, then ``log sigma``. ``test_x`` and ``test_y`` in the data are the test
    rows. ``intercepts`` is as for ``model``.

    Raises:
        UserError: arrays of other shapes, or no such reading of ``sigma``.
    """
    if intercepts not in _POWERS:
        raise unknown_name("intercepts", intercepts, _POWERS)
    k = _POWERS[intercepts]
    ops, x = get(backend), features(arrays["x"], name)
    y = responses(arrays["y"], x, name)
    (N, d), test = x.shape, test_part(arrays, ("x", "y"), name)
    cells = N * d
    sites = {
        "b": slice(0, cells),
        "eps": slice(cells, cells + 1),
        "mu": slice(cells + 1, cells + 1 + d),
        "sigma": slice(cells + 1 + d, cells + d + 2),
    }
    X, Y, xp = ops.asarray(x), ops.asarray(y), ops.xp

    def log_likelihood(z, index):
        rows = ops.take(X, index)
        b, u = ops.take(xp.reshape(z[:cells], (N, d)), index), z[cells]
        apart = ops.take(Y, index) - xp.sum(rows * b, axis=1)
        return -0.5 * (apart * apart * xp.exp(-2 * u) + _LOG_2PI) - u

    def log_prior(z):
        b, u, mu, s = _parts(xp, z, N)
        of_scales = -0.5 / _LOG_SD**2 * (u * u + s * s)
        of_mu = -0.5 / _MEAN_SD**2 * xp.sum(mu * mu)
        return (
            _constant(N, d)
            + of_scales
            + of_mu
            - cells * k / 2 * s
            - 0.5 * xp.exp(-k * s) * xp.sum((b - mu[None, :]) ** 2)
        )

    held_out = None
    if test is not None:
        where = f"{name}, test part"
        density = _predictive(ops, cells, k, features(test["x"], where), responses(test["y"], test["x"], where))
        held_out = HeldOut(len(test["x"]), density)
    return Hierarchical(
        name, ops, N, cells + d + 2, log_likelihood, log_prior, sites=sites, dtype=x.dtype, held_out=held_out,
        x=X, y=Y, k=k,
    )  # fmt: skip


def _predictive(ops, cells, k, x, y):
    """The log density of rows with their weights integrated out."""
    xp, d = ops.xp, x.shape[1]
    X, Y, squares = ops.asarray(x), ops.asarray(y), ops.asarray((x * x).sum(axis=1))

    def log_likelihood(z, index):
        u, mu, s = z[cells], z[cells + 1 : cells + 1 + d], z[cells + 1 + d]
        variance = xp.exp(k * s) * ops.take(squares, index) + xp.exp(2 * u)
        apart = ops.take(Y, index) - ops.take(X, index) @ mu
        return -0.5 * (apart * apart / variance + xp.log(variance) + _LOG_2PI)

    return log_likelihood


@dataclass(frozen=True, eq=False)
class Hierarchical(VariationalProblem):
    """A ``VariationalProblem`` with the analytic gradient of the hierarchical regression and its closed-form ELBO.

    The prior involves the weights of all rows, so a batch is a vector of weights for all rows, without gathering.

    Attributes:
        x: features, ``(N, d)``.
        y: responses, ``(N,)``.
        k: the variance of the rows' weights is ``sigma^k``.
    """

    x: Any = None
    y: Any = None
    k: int = 1

    def __post_init__(self):
        if self.guide.factorised:
            object.__setattr__(self, "expected_log_prior", self._expected_log_prior)
            object.__setattr__(self, "exact_elbo", self._exact_elbo)

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``."""
        zero = self.backend.xp.zeros((self.N,), dtype=weight.dtype)
        return self._gradient(z, self.N * self.backend.add_rows(zero, index, weight))

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)``, ``(dim,)``: a pass over all rows."""
        return self._gradient(z, self.backend.xp.ones_like(self.y))

    def prior_gradient(self, z):
        """The gradient of ``-log p(z)``, ``(dim,)``."""
        return self._gradient(z, None)

    def _gradient(self, z, weight):
        """The gradient with ``weight (N,)`` on the rows' likelihoods, or None for the prior alone."""
        xp = self.backend.xp
        b, u, mu, s = _parts(xp, z, self.N)
        apart, precision = b - mu[None, :], xp.exp(-self.k * s)
        pull = precision * apart
        of_mu = mu / _MEAN_SD**2 - xp.sum(pull, axis=0)
        of_u = u / _LOG_SD**2
        of_s = s / _LOG_SD**2 + self.k / 2 * (b.shape[0] * b.shape[1] - xp.sum(pull * apart))
        if weight is not None:
            error = xp.sum(self.x * b, axis=1) - self.y
            scaled = weight * error * xp.exp(-2 * u)
            pull = pull + scaled[:, None] * self.x
            of_u = of_u + xp.sum(weight) - xp.sum(scaled * error)
        return xp.concat([xp.reshape(pull, (-1,)), of_u[None], of_mu, of_s[None]])

    def full_energy(self, z):
        """``-log p(x, z)``, nats: a pass over all rows."""
        xp = self.backend.xp
        b, u, _, _ = _parts(xp, z, self.N)
        squares = xp.sum((self.y - xp.sum(self.x * b, axis=1)) ** 2)
        return 0.5 * (squares * xp.exp(-2 * u) + self.N * _LOG_2PI) + self.N * u - self.log_prior(z)

    def _expected_log_prior(self, params):
        """The mean of ``log_prior`` under the guide, nats."""
        xp, (N, d) = self.backend.xp, self.x.shape
        b, u, mu, s = _parts(xp, params["mu"], N)
        vb, vu, vmu, vs = _parts(xp, xp.exp(2 * params["log_sigma"]), N)
        of_scales = -0.5 / _LOG_SD**2 * (u * u + vu + s * s + vs)
        of_mu = -0.5 / _MEAN_SD**2 * xp.sum(mu * mu + vmu)
        squares = xp.sum((b - mu[None, :]) ** 2 + vb) + N * xp.sum(vmu)
        mean_precision = xp.exp(self.k * (self.k / 2 * vs - s))
        return _constant(N, d) + of_scales + of_mu - self.k / 2 * N * d * s - 0.5 * mean_precision * squares

    def _exact_elbo(self, params):
        """The ELBO, nats."""
        xp, N = self.backend.xp, self.N
        b, u, _, _ = _parts(xp, params["mu"], N)
        vb, vu, _, _ = _parts(xp, xp.exp(2 * params["log_sigma"]), N)
        squares = xp.sum((self.y - xp.sum(self.x * b, axis=1)) ** 2) + xp.sum(self.x * self.x * vb)
        of_rows = -0.5 * (xp.exp(2 * (vu - u)) * squares + N * _LOG_2PI) - N * u
        return of_rows + self._expected_log_prior(params) + self.guide.entropy(params)


def _parts(xp, z, N):
    """``b (N, d)``, ``log eps``, ``mu (d,)`` and ``log sigma`` of ``z``."""
    d = (z.shape[0] - 2) // (N + 1)
    cells = N * d
    return xp.reshape(z[:cells], (N, d)), z[cells], z[cells + 1 : cells + 1 + d], z[cells + 1 + d]


def _constant(N, d):
    """The part of the log prior that depends on no parameter."""
    return -0.5 * (N * d + d + 2) * _LOG_2PI - d * math.log(_MEAN_SD) - 2 * math.log(_LOG_SD)
