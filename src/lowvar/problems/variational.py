"""A variational objective over data: the negative ELBO of a model whose likelihood is a sum over rows.

In the notation of Wang, Geffner and Domke: with ``k_n(z) = -N log p(x_n | z) - log p(z)`` the objective is
``f(w) = E_n E_eps k_n(T_w(eps)) - H(w)``, the negative ELBO in nats.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lowvar.backends import Backend
from lowvar.problems.guide import MeanField

_CHUNK = 1024  # data rows that a full pass holds at a time


@dataclass(frozen=True, eq=False)
class VariationalProblem:
    """The negative ELBO of a model, and the derivatives that estimators are made of.

    Attributes:
        name: what reports call it.
        backend: the array library that the functions below are written in.
        N: number of data rows.
        dim: dimension of the unconstrained latent vector ``z``.
        log_likelihood: ``(z (dim,), index (B,)) -> (B,)``, nats.
        log_prior: ``z (dim,) -> ()``, nats; with the Jacobians of the constrained sites.
        exact_elbo: ``params -> ()``, nats, where a quadrature knows it.
        sites: which entries of ``z`` are which latent site, ``{name: slice}``.
        dtype: floating type of the model's data.
    """

    name: str
    backend: Backend
    N: int
    dim: int
    log_likelihood: Callable[[Any, Any], Any]
    log_prior: Callable[[Any], Any]
    exact_elbo: Callable[[Any], Any] | None = None
    sites: Mapping[str, slice] = field(default_factory=dict)
    dtype: Any = np.float64

    @cached_property
    def guide(self) -> MeanField:
        """The variational family."""
        return MeanField(self.dim, self.backend)

    def energy(self, z, index, weight):
        """``sum_i weight_i k_index_i(z)``, nats: an unbiased estimate of ``-log p(x, z)`` from a batch."""
        xp = self.backend.xp
        return -self.N * xp.sum(weight * self.log_likelihood(z, index)) - self.log_prior(z)

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``."""
        return self.backend.grad(self.energy)(z, index, weight)

    def gradient_and_hvp(self, z, direction, index, weight):
        """The gradient of ``energy`` and its Hessian times ``direction``, both ``(dim,)``."""
        return self.backend.jvp(lambda z: self.gradient(z, index, weight), (z,), (direction,))

    def gradient_and_hvp_by_row(self, z, direction, index):
        """As ``gradient_and_hvp`` for one row at a time, each at its own point.

        Args:
            z: points, ``(B, dim)``.
            direction: a vector for each, ``(B, dim)``.
            index: the rows, ``(B,)``.

        Returns:
            ``grad k_n(z_n)`` and ``hess k_n(z_n) direction_n``, each ``(B, dim)``.
        """

        def energy(z, row):
            return -self.N * self.log_likelihood(z, row[None])[0] - self.log_prior(z)

        gradient = self.backend.vmap(self.backend.grad(energy))
        return self.backend.jvp(lambda z: gradient(z, index), (z,), (direction,))

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)``, ``(dim,)``: a pass over all rows."""
        xp = self.backend.xp
        chunks = self.chunks
        if len(chunks["index"]) == 1:
            return self.gradient(z, chunks["index"][0], chunks["weight"][0])

        def add(total, chunk):
            energy = lambda z: -self.N * xp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))  # noqa: E731
            return total + self.backend.grad(energy)(z)

        return self.backend.scan_or_loop(add, -self.backend.grad(self.log_prior)(z), chunks)

    @property
    def chunks(self):
        """Row numbers and weights of a full pass, ``(chunks, rows)``; the last chunk is padded by weight zero."""
        steps = -(-self.N // _CHUNK)
        size = -(-self.N // steps)
        order = np.arange(steps * size)
        weight = np.where(order < self.N, 1 / self.N, 0.0).astype(self.dtype)
        index = np.minimum(order, self.N - 1).astype(np.int32)
        chunks = {"index": index.reshape(steps, size), "weight": weight.reshape(steps, size)}
        return {name: self.backend.asarray(value) for name, value in chunks.items()}

    def full_energy(self, z):
        """``-log p(x, z)``, nats: a pass over all rows."""
        xp = self.backend.xp

        def add(total, chunk):
            return total - self.N * xp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))

        return self.backend.scan_or_loop(add, -self.log_prior(z), self.chunks)

    def elbo(self, params, eps=None) -> Any:
        """The ELBO in nats, and its standard error.

        Args:
            params: the guide's.
            eps: base noise ``(S, dim)``; without it the value must be known exactly.

        Returns:
            ``(value, standard_error)``, the error zero where the value is exact.
        """
        xp = self.backend.xp
        if eps is None:
            if self.exact_elbo is None:
                raise ValueError(f"{self.name}: no exact ELBO; pass eps")
            value = self.exact_elbo(params)
            return value, xp.zeros_like(value)

        def term(values, eps):
            return [*values, self.full_energy(self.guide.transform(params, eps))]

        if self.backend.name == "jax":
            import jax

            values = -jax.lax.map(lambda eps: self.full_energy(self.guide.transform(params, eps)), eps)
        else:
            values = -xp.stack(self.backend.scan_or_loop(term, [], eps))
        return xp.mean(values) + self.guide.entropy(params), xp.std(values) / (len(eps) - 1) ** 0.5
