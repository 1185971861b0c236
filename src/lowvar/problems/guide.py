"""The mean-field Gaussian guide, ``q(z) = N(mu, diag(sigma^2))``, with parameters ``(mu, log sigma)``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.backends import Backend

BLOCKS = ("mu", "log_sigma")  # the parameter blocks, in the order in which gradients are laid out


@dataclass(frozen=True)
class MeanField:
    """A factorised Gaussian over R^dim.

    Parameters are a dict ``{"mu": (dim,), "log_sigma": (dim,)}``. Another guide offers the same methods;
    the control variates in ``estimators.gradient`` also use that ``mu`` and ``log_sigma`` mean what they say.
    """

    dim: int
    backend: Backend

    def transform(self, params, eps):
        """``z = mu + sigma eps``, for one ``eps (dim,)``."""
        return params["mu"] + self.backend.xp.exp(params["log_sigma"]) * eps

    def pull_back(self, params, eps, gradient):
        """The gradient for ``(mu, log sigma)`` from one for ``z``, ``(dim,)``, at ``z = transform(params, eps)``."""
        return {"mu": gradient, "log_sigma": gradient * self.backend.xp.exp(params["log_sigma"]) * eps}

    def path_score(self, params, eps):
        """``grad_z log q(z)`` at ``z = transform(params, eps)``, ``(dim,)``."""
        return -eps / self.backend.xp.exp(params["log_sigma"])

    def entropy(self, params):
        """The entropy of ``q``, in nats."""
        return self.backend.xp.sum(params["log_sigma"]) + 0.5 * self.dim * (1 + np.log(2 * np.pi))

    def entropy_gradient(self, params):
        """The gradient of ``entropy``: zero for ``mu``, one for ``log sigma``."""
        xp = self.backend.xp
        return {"mu": xp.zeros_like(params["mu"]), "log_sigma": xp.ones_like(params["log_sigma"])}


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
