"""A guide with a covariance of low rank plus a diagonal."""

from dataclasses import dataclass

import numpy as np

from lowvar.errors import UserError, whole
from lowvar.vi.guides.guide import Gaussian

_FACTOR = 0.1  # standard deviation of the factor's entries at the start: at 0 its gradient is noise alone


@dataclass(frozen=True)
class LowRank(Gaussian):
    """``z = mu + sigma o (eps_d + W eps_r)``: the covariance is ``D (I + W W') D`` with ``D = diag(sigma)``.

    ``eps`` has ``dim + rank`` entries. The block ``factor`` is ``W (dim, rank)``, row by row.

    Attributes:
        rank: columns of ``W``.

    References:
        Ong, Nott and Smith, "Gaussian variational approximation with a factor covariance structure", 2018.
    """

    rank: int = 1
    name = "low_rank"
    about = "a low-rank"
    misses = ("correlated in more directions than its rank, or skewed",) * 2
    wider = "fit with a larger rank or guide='full_rank', "

    @property
    def noise_dim(self) -> int:
        """See ``Gaussian``."""
        return self.dim + self.rank

    @property
    def shape(self) -> dict[str, int]:
        """See ``Gaussian``."""
        return {"factor": self.dim * self.rank}

    def directions(self, params, eps):
        """``eps_d + W eps_r``."""
        return eps[: self.dim] + self._factor(params) @ eps[self.dim :]

    def shape_gradient(self, params, eps, scaled):
        """``dz_i / dW_ik = sigma_i eps_r,k``."""
        outer = self._noisy(scaled)[:, None] * eps[self.dim :][None, :]
        return {"factor": self.backend.xp.reshape(outer, (-1,))}

    def whitened(self, params, eps):
        """``(I + W W')^-1 u = u - W (I + W'W)^-1 W'u``."""
        W, u = self._factor(params), self._noisy(self.directions(params, eps))
        return u - W @ (self._inner(W) @ (u @ W))

    def widths(self, params):
        """See ``Gaussian``."""
        W = self._factor(params)
        return self.backend.xp.sqrt(1 + self.backend.xp.sum(W * W, axis=1))

    def entropy(self, params):
        """See ``Gaussian``: with ``log det (I + W'W) / 2``."""
        W = self._factor(params)
        return super().entropy(params) + 0.5 * self.backend.xp.linalg.slogdet(self._gram(W))[1]

    def entropy_gradient(self, params):
        """See ``Gaussian``: ``W (I + W'W)^-1`` for ``W``."""
        W = self._factor(params)
        factor = self.backend.xp.reshape(W @ self._inner(W), (-1,))
        return {**super().entropy_gradient(params), "factor": factor}

    def log_density(self, params, eps):
        """See ``Gaussian``."""
        xp, W = self.backend.xp, self._factor(params)
        u = self._noisy(self.directions(params, eps))
        each = self._noisy(params["log_sigma"] + 0.5 * np.log(2 * np.pi))
        square = u @ self.whitened(params, eps)
        return -xp.sum(each) - 0.5 * square - 0.5 * xp.linalg.slogdet(self._gram(W))[1]

    def part(self, block: str, where: slice) -> slice:
        """See ``Gaussian``; of ``factor``, the rows of those coordinates."""
        return slice(where.start * self.rank, where.stop * self.rank) if block == "factor" else where

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """See ``Gaussian``; with a small random ``W``."""
        import jax

        key = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        W = _FACTOR * np.asarray(jax.random.normal(key, (self.dim, self.rank), np.float32), np.float64)
        if self.noiseless is not None:
            W[np.asarray(self.noiseless)] = 0
        log_sigma = log_sigma - 0.5 * np.log1p((W * W).sum(1))  # the standard deviations asked for
        return {**super().start(mu, log_sigma), "factor": W.ravel()}

    def _factor(self, params):
        return self.backend.xp.reshape(params["factor"], (self.dim, self.rank))

    def _gram(self, W):
        """``I + W'W``."""
        return W.T @ W + self.backend.xp.eye(self.rank, dtype=W.dtype)

    def _inner(self, W):
        return self.backend.xp.linalg.inv(self._gram(W))


def low_rank(dim, backend, noiseless, sites, rank: int | None = None) -> LowRank:
    """A diagonal covariance plus one of low rank.

    Args:
        dim: dimension of ``z``.
        backend: the array library.
        noiseless: see ``Gaussian``.
        sites: the latent sites; not used.
        rank: of the second part; the rounded square root of ``dim`` if not given.

    Raises:
        UserError: a rank that is no whole number from 1 to ``dim``.
    """
    rank = max(1, round(dim**0.5)) if rank is None else whole("low_rank: rank", rank, 1)
    if rank > dim:
        raise UserError(f"low_rank: rank {rank}: the model has {dim} dimensions; use at most as many, or full_rank")
    return LowRank(dim, backend, noiseless, rank)
