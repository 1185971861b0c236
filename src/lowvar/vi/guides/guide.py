"""Gaussian guides ``q(z)``: the interface, and the mean-field guide ``N(mu, diag(sigma^2))``.

Every guide moves base noise ``eps ~ N(0, I)`` to ``z = mu + sigma o u`` with directions ``u`` that are linear in
``eps``: ``u = eps`` for the mean-field guide, ``u = (I + U) eps`` with ``U`` strictly lower triangular
(``guide_triangular``), ``u = eps_d + W eps_r`` (``guide_low_rank``). As the rows of the factor are in units of
``sigma``, its entries have no unit, and one step size suits them whatever the scale of ``z``.

**Control variates of the scale parameters.** With ``g`` the gradient of the energy in ``z``, the gradient in a scale
parameter is ``g(z)`` times a function that is linear in ``eps``. For a general factor, ``z = mu + L eps``, it is
``tril(g(z) eps')``. Around ``mu``, with ``g0 = g(mu)`` and the Hessian ``H``,

    g(z) eps' = g0 eps' + H L eps eps' + ...

The first term has mean exactly zero and no cost: ``g0`` comes with the Hessian-vector product that controls the part
of ``mu``. The second has mean ``tril(H L)``, which costs ``dim`` Hessian-vector products. The precision
of the guide, ``P = (L L')^-1``, can stand in for ``H``: ``P L = L'^-1``, so ``tril(L'^-1 eps eps')`` has mean
``diag(1 / L_ii)``, the gradient of the entropy. Where the posterior is Gaussian and the guide fits it, ``P = H``.

References:
    Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", 2017, section 3, for the
    expansion and diagonal ``L``; Geffner and Domke, "Using large ensembles of control variates for variational
    inference", 2018, for differences of estimates of the entropy's gradient as control variates; Roeder, Wu and
    Duvenaud, "Sticking the landing", 2017, eq. 7, for the estimate with ``P``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.core.backend import Backend

NO_NOISE = -40.0  # log sigma of a point estimate: in every precision, sigma is positive and below rounding


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian over R^dim; subclasses define ``u``, and the parameters that it depends on.

    Parameters are a dict of vectors: ``mu (dim,)``, ``log_sigma (dim,)`` and the blocks of ``shape``. Estimators read
    them through the methods below only.

    Attributes:
        dim: dimension of ``z``.
        backend: the array library.
        noiseless: which coordinates are point estimates, ``(dim,)`` booleans: ``z = mu`` there, without noise or
            entropy. Their ``log_sigma`` stays at ``NO_NOISE``: its gradient is zero.
    """

    dim: int
    backend: Backend
    noiseless: Any = None

    # --- what a guide defines -----------------------------------------------------------------------------------------

    name = ""
    amortised = False  # whether rows have a function of their data in place of parameters, of which memories consist
    estimator = "joint_adaptive"  # the default
    factorised = False  # whether coordinates are independent, as closed forms of the catalogue's models assume
    # words for messages: what it is, which posteriors it is too narrow or wrong for, and a better one
    about = "a Gaussian"
    misses = ("skewed", "skewed or heavy-tailed")
    wider = ""

    @property
    def noise_dim(self) -> int:
        """Dimension of ``eps``."""
        return self.dim

    @property
    def shape(self) -> dict[str, int]:
        """The blocks besides ``mu`` and ``log_sigma``, and their lengths."""
        return {}

    def directions(self, params, eps):
        """``u``, ``(dim,)``, for one ``eps (noise_dim,)``; reads only the blocks of ``shape``."""
        return eps

    def shape_gradient(self, params, eps, scaled):
        """The gradient in the blocks of ``shape``, from ``sigma`` times that in ``z``, ``(dim,)``."""
        return {}

    def whitened(self, params, eps):
        """``C^-1 u`` with ``C`` the covariance of ``u``, ``(dim,)``."""
        return eps

    def widths(self, params):
        """The standard deviations of ``u``, ``(dim,)``."""
        return self.backend.xp.ones_like(params["log_sigma"])

    def matrix(self, params) -> np.ndarray:
        """``A`` with ``z = mu + A eps``, ``(dim, noise_dim)``, NumPy."""
        of_unit = self.backend.vmap(lambda eps: self._noisy(self.step(self.point(params), eps)))
        units = np.eye(self.noise_dim, dtype=self.backend.to_numpy(params["mu"]).dtype)
        return self.backend.to_numpy(of_unit(self.backend.asarray(units))).T

    def part(self, block: str, where: slice) -> slice:
        """The entries of a block that belong to the coordinates ``where`` of ``z``."""
        return where

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """Starting parameters as NumPy arrays, with those means and standard deviations.

        Args:
            mu: means, ``(dim,)``.
            log_sigma: ``(dim,)``.
            key: a JAX key, for guides whose start is random.
        """
        return {"mu": np.asarray(mu), "log_sigma": np.asarray(log_sigma)}

    # --- what follows from it -----------------------------------------------------------------------------------------

    @property
    def blocks(self) -> dict[str, int]:
        """The parameter blocks and their lengths, in the order in which gradients are laid out."""
        return {"mu": self.dim, "log_sigma": self.dim, **self.shape}

    @property
    def controlled(self) -> dict[str, int]:
        """The blocks that ``controls`` gives, with the number of controls of each."""
        return {block: 2 for block in self.blocks if block != "mu"}

    def point(self, params):
        """The part of the parameters that ``step`` needs, and ``mu``."""
        shape = {block: params[block] for block in self.shape}
        return {"mu": params["mu"], "sigma": self.backend.xp.exp(params["log_sigma"]), **shape}

    def step(self, point, eps):
        """``z - mu = sigma o u``, ``(dim,)``, which is linear in ``eps``."""
        return point["sigma"] * self.directions(point, eps)

    def steps(self, points, eps):
        """``step`` at several points for one ``eps``, ``(B, dim)``."""
        return self.backend.vmap(self.step, (0, None))(points, eps)

    def transform(self, params, eps):
        """``z``, for one ``eps (noise_dim,)``."""
        return params["mu"] + self._noisy(self.step(self.point(params), eps))

    def pull_back(self, params, eps, gradient):
        """The gradient in the parameters from that in ``z``, ``(dim,)``, at ``z = transform(params, eps)``."""
        scaled = gradient * self.backend.xp.exp(params["log_sigma"])
        along = scaled * self.directions(params, eps)
        shape = self.shape_gradient(params, eps, scaled)
        return {"mu": gradient, "log_sigma": self._noisy(along), **shape}

    def first_order(self, params, eps, gradient):
        """The scale parameters' gradient with the energy replaced by its first-order expansion at ``mu``; mean zero.

        Args:
            params: the parameters.
            eps: particles, ``(S, noise_dim)``, over which it is averaged.
            gradient: the energy's gradient at ``mu``, or any fixed vector, ``(dim,)``.

        Returns:
            The blocks that are controlled. For the mean-field guide none: the published control variates leave
            ``log_sigma`` alone.
        """
        linear = self.pull_back(params, self.backend.xp.mean(eps, axis=0), gradient)
        return {block: value for block, value in linear.items() if block != "mu"}

    def controls(self, params, eps, gradient):
        """Control variates of mean zero for the scale parameters, whose coefficients an estimator chooses.

        Args:
            params: as for ``first_order``.
            eps: as for ``first_order``.
            gradient: as for ``first_order``.

        Returns:
            ``{block: [first order, second order with the guide's precision in place of the Hessian]}``.
        """
        vmap, mean = self.backend.vmap, self.backend.xp.mean

        def of_point(eps):
            return self.pull_back(params, eps, -self.path_score(params, eps))

        first, entropy = self.first_order(params, eps, gradient), self.entropy_gradient(params)
        second = {block: mean(value, axis=0) for block, value in vmap(of_point)(eps).items()}
        return {block: [first[block], second[block] - entropy[block]] for block in first}

    def scale(self, params):
        """The standard deviations of ``z``, ``(dim,)``; those of point estimates are below rounding."""
        return self.backend.xp.exp(params["log_sigma"]) * self.widths(params)

    def path_score(self, params, eps):
        """``grad_z log q(z)`` at ``z = transform(params, eps)``, ``(dim,)``."""
        return self._noisy(-self.whitened(params, eps) / self.backend.xp.exp(params["log_sigma"]))

    def entropy(self, params):
        """The entropy of ``q``, in nats."""
        return self.backend.xp.sum(self._noisy(params["log_sigma"])) + 0.5 * self._count * (1 + np.log(2 * np.pi))

    def entropy_gradient(self, params):
        """The gradient of ``entropy``: zero for ``mu``, one for ``log sigma``."""
        xp = self.backend.xp
        ones = self._noisy(xp.ones_like(params["log_sigma"]))
        return {block: ones if block == "log_sigma" else xp.zeros_like(params[block]) for block in self.blocks}

    def log_density(self, params, eps):
        """``log q(z)`` at ``z = transform(params, eps)``, nats, over the coordinates with noise."""
        xp = self.backend.xp
        return -xp.sum(self._noisy(params["log_sigma"] + 0.5 * eps**2 + 0.5 * np.log(2 * np.pi)))

    @property
    def _count(self) -> int:
        """Number of coordinates with noise."""
        return self.dim if self.noiseless is None else self.dim - int(np.sum(self.noiseless))

    def _noisy(self, values):
        """``values (dim,)``, with zeros at the point estimates."""
        if self.noiseless is None:
            return values
        return self.backend.xp.where(self.backend.asarray(self.noiseless), self.backend.xp.zeros_like(values), values)


@dataclass(frozen=True)
class MeanField(Gaussian):
    """A factorised Gaussian, ``z = mu + sigma o eps``, with the parameters ``{"mu": (dim,), "log_sigma": (dim,)}``."""

    name = "mean_field"
    factorised = True
    about = "a mean-field"
    misses = ("correlated or skewed", "correlated, skewed or heavy-tailed")
    wider = "fit with guide='full_rank' (in many dimensions, 'low_rank'), "

    @property
    def controlled(self) -> dict[str, int]:
        """See ``Gaussian``."""
        return {"log_sigma": 1}

    def first_order(self, params, eps, gradient):
        """See ``Gaussian``."""
        return {}

    def controls(self, params, eps, gradient):
        """See ``Gaussian``; the first-order one alone."""
        return {"log_sigma": [gradient * self.step(self.point(params), self.backend.xp.mean(eps, axis=0))]}


def initial_params(kind: str, dim: int, key, scale: float = 0.1) -> dict[str, Any]:
    """Starting means and scales as NumPy arrays, ``{"mu": (dim,), "log_sigma": (dim,)}``, see ``Gaussian.start``.

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
