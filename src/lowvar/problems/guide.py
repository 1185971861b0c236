"""The mean-field Gaussian guide, ``q(z) = N(mu, diag(sigma^2))``, with parameters ``(mu, log sigma)``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.backends import Backend

NO_NOISE = -40.0  # log sigma of a point estimate: in every precision, sigma is positive and below rounding
BLOCKS = ("mu", "log_sigma")  # the parameter blocks, in the order in which gradients are laid out


@dataclass(frozen=True)
class MeanField:
    """A factorised Gaussian over R^dim.

    Parameters are a dict ``{"mu": (dim,), "log_sigma": (dim,)}``. Other guides need the same methods; the control
    variates in ``estimators.gradient`` also assume that ``mu`` and ``log_sigma`` are the mean and log scale of ``z``.

    Attributes:
        dim: dimension of ``z``.
        backend: the array library.
        noiseless: which coordinates are point estimates, ``(dim,)`` booleans: ``z = mu`` there, without noise or
            entropy. Their ``log_sigma`` stays at ``NO_NOISE``: its gradient is zero.
    """

    dim: int
    backend: Backend
    noiseless: Any = None

    def transform(self, params, eps):
        """``z = mu + sigma eps``, for one ``eps (dim,)``."""
        return params["mu"] + self._noisy(self.backend.xp.exp(params["log_sigma"]) * eps)

    def pull_back(self, params, eps, gradient):
        """The gradient in ``(mu, log sigma)`` from that in ``z``, ``(dim,)``, at ``z = transform(params, eps)``."""
        along = gradient * self.backend.xp.exp(params["log_sigma"]) * eps
        return {"mu": gradient, "log_sigma": self._noisy(along)}

    def path_score(self, params, eps):
        """``grad_z log q(z)`` at ``z = transform(params, eps)``, ``(dim,)``."""
        return self._noisy(-eps / self.backend.xp.exp(params["log_sigma"]))

    def entropy(self, params):
        """The entropy of ``q``, in nats."""
        count = self.dim if self.noiseless is None else self.dim - int(np.sum(self.noiseless))
        return self.backend.xp.sum(self._noisy(params["log_sigma"])) + 0.5 * count * (1 + np.log(2 * np.pi))

    def entropy_gradient(self, params):
        """The gradient of ``entropy``: zero for ``mu``, one for ``log sigma``."""
        xp = self.backend.xp
        return {"mu": xp.zeros_like(params["mu"]), "log_sigma": self._noisy(xp.ones_like(params["log_sigma"]))}

    def log_density(self, params, eps):
        """``log q(z)`` at ``z = transform(params, eps)``, nats, over the coordinates with noise."""
        xp = self.backend.xp
        return -xp.sum(self._noisy(params["log_sigma"] + 0.5 * eps**2 + 0.5 * np.log(2 * np.pi)))

    def _noisy(self, values):
        """``values (dim,)``, with zeros at the point estimates."""
        if self.noiseless is None:
            return values
        return self.backend.xp.where(self.backend.asarray(self.noiseless), self.backend.xp.zeros_like(values), values)


def initial_params(kind: str, dim: int, key, scale: float = 0.1) -> dict[str, Any]:
    """Starting parameters as NumPy arrays, ``{"mu": (dim,), "log_sigma": (dim,)}``.

    Args:
        kind: ``"standard"`` draws every parameter from N(0, 1), as the joint control variate's paper does;
            ``"origin"`` sets ``mu = 0`` and ``sigma = scale``, the usual start of a library; ``"unit"`` draws ``mu``
            from N(0, 0.01^2) and sets ``sigma = exp(0.001)``, as that paper's code does.
        dim: dimension of the latent space.
        key: a JAX key (unused by ``"origin"``).
        scale: see ``kind``.
    """
    if kind == "origin":
        return {"mu": np.zeros(dim), "log_sigma": np.full(dim, np.log(scale))}
    import jax

    if kind == "unit":
        return {"mu": 0.01 * np.asarray(jax.random.normal(key, (dim,))), "log_sigma": np.full(dim, 0.001)}
    mu, log_sigma = np.asarray(jax.random.normal(key, (2, dim)))
    return {"mu": mu, "log_sigma": log_sigma}
