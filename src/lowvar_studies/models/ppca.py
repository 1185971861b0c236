"""Probabilistic principal components: a NumPyro model, and an implementation with analytic gradients.

``W (D, K) ~ N(0, 1)``, ``x_n ~ N(0, W W' + I)``. With ``A = (I + W'W)^-1``, ``u = A W'x`` and ``v = x - W u`` (so that
``v = (W W' + I)^-1 x``), the gradient of ``x'v / 2`` is ``-v u'`` and that of ``log|W W' + I| / 2`` is ``W A``.
The prior term includes the normalising constants of all rows: the term of a row is ``-x'v / 2``, and a pass over the
data needs only their second moments.

References:
    Tipping and Bishop, "Probabilistic principal component analysis", 1999.
    Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024, section 6.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.variational import VariationalProblem

_LOG_2PI = math.log(2 * math.pi)
_ROWS = 4096  # data rows per sum in float64
_SAMPLES = 50  # latent matrices per evaluation of energies

DATA = ("x",)  # arrays that the model needs


def model(x, components=16, batch_size=None):
    """The NumPyro model.

    Args:
        x: data of mean zero, ``(N, D)``.
        components: ``K``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    D = x.shape[1]
    W = numpyro.sample("W", dist.Normal(0, 1).expand([D, components]).to_event(2))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        of_row = dist.LowRankMultivariateNormal(jnp.zeros(D, W.dtype), W, jnp.ones(D, W.dtype))
        numpyro.sample("x", of_row, obs=x[index])


def problem(arrays, backend: str = "jax", name: str = "ppca", components: int = 16) -> "Ppca":
    """The model on data ``{"x": (N, D) floating}``, in either backend.

    The number ``"components"`` in the data overrides the argument.
    """
    ops, x = get(backend), np.asarray(arrays["x"])
    K = int(arrays.get("components", components))
    if x.ndim != 2 or x.dtype.kind != "f":
        raise UserError(f"{name}: x must be a floating array (N, D), not {x.dtype} of shape {x.shape}")
    if K < 1:
        raise UserError(f"{name}: components = {K}; it must be 1 or more")
    N, D = x.shape
    moments = np.zeros((D, D))
    for start in range(0, N, _ROWS):
        part = x[start : start + _ROWS].astype(np.float64)
        moments += part.T @ part
    x, moments = ops.asarray(x), ops.asarray(moments.astype(x.dtype))
    xp = ops.xp

    def log_likelihood(z, index):
        rows, W = ops.take(x, index), xp.reshape(z, (D, K))
        projected = rows @ W
        return -0.5 * (xp.sum(rows * rows, axis=1) - xp.sum(projected * (projected @ _inverse(xp, W)), axis=1))

    def log_prior(z):
        W = xp.reshape(z, (D, K))
        return -0.5 * (xp.sum(z * z) + N * _log_determinant(xp, W) + (D * K + N * D) * _LOG_2PI)

    return Ppca(
        name, ops, N, D * K, log_likelihood, log_prior, sites={"W": slice(0, D * K)}, dtype=np.dtype(arrays["x"].dtype),
        x=x, moments=moments, components=K,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ppca(VariationalProblem):
    """A ``VariationalProblem`` with the gradients of probabilistic PCA.

    A Hessian-vector product at one point is the forward derivative of the gradient, as fast as an analytic one. For
    rows with their own points it is analytic, which is twice as fast.

    Attributes:
        x: the data, ``(N, D)``.
        moments: ``x'x``, ``(D, D)``.
        components: ``K``; ``z`` holds the entries of ``W (D, K)``.
    """

    x: Any = None
    moments: Any = None
    components: int = 0

    def prior_gradient(self, z):
        """The gradient of ``-log p(z)``, with the normalising constants of all rows."""
        W = self._matrix(z)
        return self._flat(W + self.N * (W @ _inverse(self.backend.xp, W)))

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``."""
        W, x = self._matrix(z), self.backend.take(self.x, index)
        A = _inverse(self.backend.xp, W)
        u = x @ W @ A
        wu = weight[:, None] * u
        return self._flat(W + self.N * (W @ (A + u.T @ wu) - x.T @ wu))

    def approximation_by_row(self, points, noise):
        """As in ``VariationalProblem``; without storing a gradient for each row."""
        step = self.guide.steps(points, self.backend.xp.mean(noise.eps, axis=0))
        mean, deviation = self._at_rows(points["mu"], step, noise.index, noise.weight, prior=True)
        return {"mu": mean}, {"mu": deviation}

    def approximation_mean_by_row(self, points, index, weight):
        """As in ``VariationalProblem``; without storing a gradient for each row."""
        return {"mu": self._at_rows(points["mu"], None, index, weight, prior=True)[0]}

    def likelihood_at_rows(self, z, step, index, weight):
        """As in ``VariationalProblem``; without storing a gradient for each row."""
        steps = self.backend.xp.broadcast_to(step[None, :], z.shape)
        return self._at_rows(z, steps, index, weight, prior=False)

    def _at_rows(self, z, step, index, weight, *, prior):
        """Weighted sums over rows, each at its own point, of the gradient and of its derivative along ``step``."""
        xp, N = self.backend.xp, self.N
        x = self.backend.take(self.x, index)
        W = self._matrices(z)
        if step is None:
            A, T, dA = _inverse(xp, W), None, None
        else:
            T = self._matrices(step)
            A, dA = _inverse_and_change(xp, W, T)
        projected = xp.matmul(x[:, None, :], W)  # (B, 1, K)
        u = xp.matmul(projected, A)
        outer = xp.matrix_transpose(u) * u

        def total(W, M):
            return xp.tensordot(W, weight[:, None, None] * M, axes=((0, 2), (0, 1)))

        def back(u):
            return x.T @ (weight[:, None] * u[:, 0, :])

        identity = self.backend.asarray(np.eye(self.components, dtype=self.dtype))
        M = N * (outer + A) + identity[None, :, :] if prior else N * outer
        mean = total(W, M) - N * back(u)
        if T is None:
            return self._flat(mean), None
        du = xp.matmul(projected, dA) + xp.matmul(xp.matmul(x[:, None, :], T), A)
        half = xp.matrix_transpose(u) * du
        dM = N * (half + xp.matrix_transpose(half) + dA) if prior else N * (half + xp.matrix_transpose(half))
        return self._flat(mean), self._flat(total(T, M) + total(W, dM) - N * back(du))

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)``, ``(dim,)``, from the second moments."""
        W = self._matrix(z)
        A = _inverse(self.backend.xp, W)
        SWA = self.moments @ (W @ A)  # sum_n x_n u_n'
        return self._flat(W + W @ (self.N * A + A @ (W.T @ SWA)) - SWA)

    def full_energy(self, z):
        """``-log p(x, z)``, nats, from the second moments."""
        return self.energies(z[None, :])[0]

    def energies(self, z):
        """``-log p(x, z)`` of several ``z (S, dim)``, ``(S,)``, nats: one product with the second moments."""
        xp, K = self.backend.xp, self.components
        W = self._matrices(z)
        side_by_side = xp.reshape(xp.permute_dims(W, (1, 0, 2)), (-1, len(z) * K))
        SW = xp.permute_dims(xp.reshape(self.moments @ side_by_side, (-1, len(z), K)), (1, 0, 2))
        fitted = xp.sum(_inverse(xp, W) * _gram(xp, W, SW), axis=(1, 2))
        D = self.dim // K
        constant = (self.dim + self.N * D) * _LOG_2PI + xp.linalg.trace(self.moments)
        return 0.5 * (constant - fitted + xp.sum(z * z, axis=1) + self.N * _log_determinant(xp, W))

    def elbo(self, params, eps=None) -> Any:
        """As in ``VariationalProblem``, for ``_SAMPLES`` particles at a time."""
        if eps is None:
            return super().elbo(params, eps)
        xp, S = self.backend.xp, len(eps)
        groups = max(1, S // _SAMPLES)
        even = S // groups * groups

        def energies(eps):
            return self.energies(self.backend.vmap(lambda eps: self.guide.transform(params, eps))(eps))

        inside = xp.reshape(eps[:even], (groups, -1, self.noise_dim))
        values = xp.reshape(self.backend.map(energies, inside), (-1,))
        if even < S:
            values = xp.concat([values, energies(eps[even:])])
        return self.guide.entropy(params) - xp.mean(values), xp.std(values) / (S - 1) ** 0.5

    def _matrix(self, z):
        return self.backend.xp.reshape(z, (-1, self.components))

    def _matrices(self, z):
        return self.backend.xp.reshape(z, (z.shape[0], -1, self.components))

    def _flat(self, W):
        return self.backend.xp.reshape(W, (-1,))


def _gram(xp, W, T):
    """``W'T``, for one pair or several."""
    return xp.einsum("...dk,...dl->...kl", W, T)


def _plus_identity(xp, W):
    """``I + W'W``."""
    gram = _gram(xp, W, W)
    identity = xp.eye(gram.shape[-1], dtype=gram.dtype)
    return xp.broadcast_to(identity, gram.shape) + gram


def _inverse(xp, W):
    """``A = (I + W'W)^-1`` of one ``W (D, K)`` or several, ``(..., K, K)``."""
    return xp.linalg.inv(_plus_identity(xp, W))


def _inverse_and_change(xp, W, T):
    """``A`` and its derivative along ``T``, ``-A (T'W + W'T) A``."""
    A, half = _inverse(xp, W), _gram(xp, W, T)
    return A, -xp.matmul(xp.matmul(A, half + xp.matrix_transpose(half)), A)


def _log_determinant(xp, W):
    """``log|I + W'W|``, which is ``log|I + W W'|``."""
    return xp.linalg.slogdet(_plus_identity(xp, W))[1]
