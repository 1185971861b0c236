"""Hierarchical model of film ratings with coefficients for each user: a NumPyro model, and its fused implementation.

``mu_ij, s_ij ~ N(0, 1)`` for ``d`` genres and ``C`` ratings; user ``m`` has ``Z_m (d, C) ~ N(mu, exp(s)^2)``; user
``m`` rates a film with genres ``x_n`` as ``y_n ~ Categorical(softmax(x_n Z_m))``.

References:
    Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024, Appendix.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar_studies.models.checks import count_classes, numbers
from lowvar_studies.models.linear.designs import Grouped
from lowvar_studies.models.linear.links import Categorical
from lowvar_studies.models.linear.problem import LinearProblem, linear

_LOG_2PI = math.log(2 * math.pi)

DATA = ("user", "x", "y", "users")  # arrays that the model needs


def model(user, x, users, classes, y=None, batch_size=None):
    """The NumPyro model.

    Args:
        user: the user of each rating, ``(N,)`` integers from 0.
        x: genres of the film, ``(N, d)``.
        users: number of users.
        classes: number of possible ratings.
        y: ratings in ``0 .. classes - 1``, ``(N,)``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    shape = [x.shape[1], classes]
    mu = numpyro.sample("mu", dist.Normal(0, 1).expand(shape).to_event(2))
    s = numpyro.sample("s", dist.Normal(0, 1).expand(shape).to_event(2))
    Z: Any = numpyro.sample("Z", dist.Normal(mu, jnp.exp(s)).expand([users, *shape]).to_event(3))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        rows = x[index]
        logits = jnp.sum(rows[:, :, None] * Z[user[index]], axis=1)
        rating: Any = dist.Categorical(logits=logits)
        numpyro.sample("y", rating, obs=None if y is None else y[index])


def problem(arrays, backend: str = "jax", name: str = "movielens") -> LinearProblem:
    """The model on ``{"user": (N,), "x": (N, d) floating, "y": (N,) in 0 .. C - 1, "users": ()}``, in either backend.

    ``z`` is all ``Z``, then ``mu``, then ``s``. The data may include the number ``"classes"``.
    """
    ops = get(backend)
    x, users, classes = np.asarray(arrays["x"]), int(arrays["users"]), count_classes(arrays)
    user = numbers(arrays["user"], len(x), users, name, "user")
    y = numbers(arrays["y"], len(x), classes, name, "y")
    cells = x.shape[1] * classes
    of_users = users * cells
    design = Grouped(ops, ops.asarray(x), ops.asarray(user), users, classes, start=0, dim=of_users + 2 * cells)
    link = Categorical(ops, ops.asarray(y), classes)
    sites = {
        "Z": slice(0, of_users),
        "mu": slice(of_users, of_users + cells),
        "s": slice(of_users + cells, of_users + 2 * cells),
    }
    base = linear(name, len(x), x.dtype, design, link, *_prior(ops, users, cells), sites=sites)
    return Ratings(**{field.name: getattr(base, field.name) for field in fields(base)})


@dataclass(frozen=True, eq=False)
class Ratings(LinearProblem):
    """A ``LinearProblem`` with an analytic gradient of the users' prior.

    It treats the entries of ``z`` as a matrix, a row for each user, not as one vector: XLA then makes one pass over
    them, without an integer division for every entry. Its derivatives are faster too.
    """

    def prior_gradient(self, z):
        """The gradient of ``-log p(z)``, ``(dim,)``."""
        xp, users = self.backend.xp, self.design.groups
        rows = xp.reshape(z, (users + 2, -1))
        Z, mu, s = rows[:users], rows[users], rows[users + 1]
        apart, precision = Z - mu[None, :], xp.exp(-2 * s)
        of_mu = mu - precision * xp.sum(apart, axis=0)
        of_s = s + users - precision * xp.sum(apart * apart, axis=0)
        return xp.reshape(xp.concat([apart * precision[None, :], of_mu[None, :], of_s[None, :]]), (-1,))


def _prior(ops, users, cells):
    """``log p(Z, mu, s)``, and its mean under a mean-field guide, as functions."""
    xp = ops.xp
    constant = -0.5 * (users + 2) * cells * _LOG_2PI

    def parts(z):
        own, common = z[: users * cells], z[users * cells :]
        return xp.reshape(own, (users, cells)), common[:cells], common[cells:]

    def log_prior(z):
        Z, mu, s = parts(z)
        squares = xp.sum((Z - mu[None, :]) ** 2, axis=0)
        return constant - xp.sum(users * s + 0.5 * (mu**2 + s**2 + xp.exp(-2 * s) * squares))

    def expected_log_prior(params):
        (Z, mu, s), variances = parts(params["mu"]), parts(xp.exp(2 * params["log_sigma"]))
        own, of_mu, of_s = variances
        squares = xp.sum((Z - mu[None, :]) ** 2 + own, axis=0) + users * of_mu
        precision = xp.exp(-2 * s + 2 * of_s)
        return constant - xp.sum(users * s + 0.5 * (mu**2 + of_mu + s**2 + of_s + precision * squares))

    return log_prior, expected_log_prior
