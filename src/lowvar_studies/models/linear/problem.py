"""Models whose likelihood depends on a few linear predictors per data row, with fused gradients.

``a_n = X_n z`` with ``C`` predictors: generalised linear models, paired comparisons, rows of grouped regressions.
A design defines ``X_n``, a link ``log p(y_n | a_n)``. Gradients are then two products with ``X``. Under a mean-field
guide the predictors are Gaussian with known mean and variance, and independent of each other if no two of them share
an entry of ``z``: the ELBO is a sum of ``C``-dimensional integrals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.core.backend import Backend
from lowvar.vi.variational import HeldOut, VariationalProblem


@dataclass(frozen=True, eq=False)
class LinearProblem(VariationalProblem):
    """A ``VariationalProblem`` whose likelihood depends on ``z`` through linear predictors.

    Attributes:
        design: the map from ``z`` to predictors: ``Dense``, ``Affine``, ``Pairs`` or ``Grouped``.
        link: the map from predictors to ``log p``: ``Bernoulli`` or ``Categorical``.
    """

    design: Any = None
    link: Any = None

    def __post_init__(self):
        if self.exact_elbo is None and self.guide.factorised:
            object.__setattr__(self, "exact_elbo", self.quadrature_elbo)

    def _prior_gradient_and_hvp(self, z, direction):
        return self.backend.jvp(self.prior_gradient, (z,), (direction,))

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``."""
        residual = self.link.residual(self.design.forward(z, index), index)
        return self.N * self.design.back(weight[:, None] * residual, index) + self.prior_gradient(z)

    def gradient_and_hvp(self, z, direction, index, weight):
        """The gradient of ``energy`` and its Hessian times ``direction``, both ``(dim,)``."""
        forward, back = self.design.forward, self.design.back
        a, t = forward(z, index), forward(direction, index)
        prior, prior_hvp = self._prior_gradient_and_hvp(z, direction)
        gradient = self.N * back(weight[:, None] * self.link.residual(a, index), index) + prior
        return gradient, self.N * back(weight[:, None] * self.link.curvature(a, t, index), index) + prior_hvp

    def approximation_by_row(self, points, noise):
        """As in ``VariationalProblem``; without storing a gradient for each row."""
        xp, index = self.backend.xp, noise.index
        z, step = points["mu"], self.guide.steps(points, xp.mean(noise.eps, axis=0))
        a, t = self.design.forward_by_row(z, index), self.design.forward_by_row(step, index)
        prior, prior_hvp = self.backend.vmap(self._prior_gradient_and_hvp)(z, step)
        mean, deviation = (
            self.N * self.design.back(noise.weight[:, None] * r, index) + noise.weight @ of_prior
            for r, of_prior in ((self.link.residual(a, index), prior), (self.link.curvature(a, t, index), prior_hvp))
        )
        return {"mu": mean}, {"mu": deviation}

    def approximation_mean_by_row(self, points, index, weight):
        """As in ``VariationalProblem``; without storing a gradient for each row."""
        a = self.design.forward_by_row(points["mu"], index)
        prior = self.backend.vmap(self.prior_gradient)(points["mu"])
        return {"mu": self.N * self.design.back(weight[:, None] * self.link.residual(a, index), index) + weight @ prior}

    def likelihood_at_rows(self, z, step, index, weight):
        """As in ``VariationalProblem``; without storing a gradient for each row."""
        a, t = self.design.forward_by_row(z, index), self.design.forward(step, index)
        gradient = self.design.back(weight[:, None] * self.link.residual(a, index), index)
        return self.N * gradient, self.N * self.design.back(weight[:, None] * self.link.curvature(a, t, index), index)

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)``, ``(dim,)``: a pass over all rows."""
        residual = self.link.residual(self.design.forward(z, None), None)
        return self.design.back(residual, None) + self.prior_gradient(z)

    def full_energy(self, z):
        """``-log p(x, z)``, nats: a pass over all rows."""
        return -self.backend.xp.sum(self.link.log(self.design.forward(z, None), None)) - self.log_prior(z)

    def expectedlog_likelihood(self, params):
        """``E log p(x | z)`` under the guide, nats, from the predictors' means and standard deviations."""
        xp = self.backend.xp
        mean = self.design.forward(params["mu"], None)
        variance = self.design.forward_squares(xp.exp(2 * params["log_sigma"]), None)
        sd = xp.sqrt(variance + 1e-30)
        take = self.backend.take

        def add(total, chunk):
            index = chunk["index"]
            values = self.link.expected_log(take(mean, index), take(sd, index), index)
            return total + self.N * xp.sum(chunk["weight"] * values)

        return self.backend.scan_or_loop(add, 0 * mean[0, 0], self.chunks)

    def quadrature_elbo(self, params):
        """The ELBO, nats, to the accuracy of ``link.expected_log``."""
        prior: Any = self.expected_log_prior
        return self.expectedlog_likelihood(params) + prior(params) + self.guide.entropy(params)


def linear(
    name: str,
    N: int,
    dtype,
    design,
    link,
    log_prior,
    expected_log_prior,
    sites=None,
    quadratic_prior=False,
    held_out: HeldOut | None = None,
) -> LinearProblem:
    """The ``LinearProblem`` with this design, link and prior.

    Args:
        name: name in reports.
        N: number of data rows.
        dtype: floating type of the data.
        design: ``Dense``, ``Affine``, ``Pairs`` or ``Grouped``.
        link: ``Bernoulli`` or ``Categorical``.
        log_prior: ``z (dim,) -> ()``, nats.
        expected_log_prior: its mean under the mean-field guide, ``params -> ()``.
        sites: the slice of ``z`` for each latent site; one site ``z`` if not given.
        quadratic_prior: see ``VariationalProblem``.
        held_out: see ``VariationalProblem``.
    """
    backend, dim = design.backend, design.dim
    return LinearProblem(
        name, backend, N, dim, log_likelihood(design, link), log_prior, sites=sites or {"z": slice(0, dim)},
        dtype=dtype, design=design, link=link, expected_log_prior=expected_log_prior, quadratic_prior=quadratic_prior,
        held_out=held_out,
    )  # fmt: skip


def log_likelihood(design: Any, link: Any) -> Callable[[Any, Any], Any]:
    """``(z (dim,), index (B,)) -> (B,)``, nats."""
    return lambda z, index: link.log(design.forward(z, index), index)


def standard_normal(backend: Backend, dim: int):
    """``log p(z)`` of ``N(0, I)``, and its mean under a mean-field guide, as functions."""
    xp = backend.xp

    def log_prior(z):
        return -0.5 * xp.sum(z * z) - 0.5 * dim * np.log(2 * np.pi)

    def expected_log_prior(params):
        second_moment = params["mu"] ** 2 + xp.exp(2 * params["log_sigma"])
        return -0.5 * xp.sum(second_moment) - 0.5 * dim * np.log(2 * np.pi)

    return log_prior, expected_log_prior
