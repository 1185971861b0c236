"""What ``lowvar.vi`` asks of a guide."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from lowvar.core.backend import Backend


class Guide(Protocol):
    """A variational distribution ``q(z)`` over R^dim, whose draws are a function of base noise ``eps ~ N(0, I)``.

    Parameters are a dict of vectors, among them ``mu`` and ``log_sigma``. Estimators read them through the methods
    below only. ``gaussian.Gaussian`` has most of these for any Gaussian.

    Attributes:
        name: as in the registry, and in files.
        autoguide: the class in ``numpyro.infer.autoguide`` that writes it: its parameters have the names of that class.
        amortised: whether rows have a function of their data in place of parameters, of which memories consist.
        estimator: name of its default gradient estimator.
        factorised: whether coordinates are independent, as closed forms of the catalogue's models assume.
        about: a few words for messages, such as ``a low-rank``.
        misses: words for posteriors that it cannot fit, where importance sampling works and where it fails.
        wider: words for a better guide, the beginning of a sentence; may be empty.
    """

    name: Any
    autoguide: Any
    amortised: Any
    estimator: Any
    factorised: Any
    about: Any
    misses: Any
    wider: Any

    @property
    def dim(self) -> int:
        """Dimension of ``z``."""
        ...

    @property
    def backend(self) -> "Backend":
        """The array library."""
        ...

    @property
    def noiseless(self) -> Any:
        """Which coordinates are point estimates, ``(dim,)`` booleans, or None: ``z = mu`` there, without entropy."""
        ...

    @property
    def noise_dim(self) -> int:
        """Dimension of ``eps``."""
        ...

    @property
    def blocks(self) -> dict[str, int]:
        """The parameter blocks and their lengths, in the order in which gradients are laid out."""
        ...

    def part(self, block: str, where: slice) -> slice:
        """The entries of a block that belong to the coordinates ``where`` of ``z``."""
        ...

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """Starting parameters as NumPy arrays, with those means and standard deviations.

        Args:
            mu: means, ``(dim,)``.
            log_sigma: ``(dim,)``.
            key: a JAX key, for guides whose start is random.
        """
        ...

    def transform(self, params, eps) -> Any:
        """``z (dim,)``, for one ``eps (noise_dim,)``."""
        ...

    def point(self, params) -> Any:
        """The part of the parameters that ``step`` needs, and the mean of ``z`` as ``mu``."""
        ...

    def step(self, point, eps) -> Any:
        """``z - mu``, ``(dim,)``, which is linear in ``eps``; without regard to point estimates."""
        ...

    def steps(self, points, eps) -> Any:
        """``step`` at several points for one ``eps``, ``(B, dim)``."""
        ...

    def pull_back(self, params, eps, gradient) -> dict[str, Any]:
        """The gradient in the parameters from that in ``z``, ``(dim,)``, at ``z = transform(params, eps)``."""
        ...

    @property
    def controlled(self) -> dict[str, int]:
        """The blocks that ``controls`` gives, with the number of controls of each."""
        ...

    def first_order(self, params, eps, gradient) -> dict[str, Any]:
        """The scale parameters' gradient with the energy replaced by its first-order expansion at ``mu``; mean zero.

        Args:
            params: the parameters.
            eps: particles, ``(S, noise_dim)``, over which it is averaged.
            gradient: the energy's gradient at ``mu``, or any fixed vector, ``(dim,)``.

        Returns:
            The blocks that are controlled, or none.
        """
        ...

    def controls(self, params, eps, gradient) -> dict[str, list[Any]]:
        """Control variates of mean zero for the scale parameters, ``{block: [control, ...]}``.

        An estimator chooses their coefficients.

        Args:
            params: as for ``first_order``.
            eps: as for ``first_order``.
            gradient: as for ``first_order``.
        """
        ...

    def path_score(self, params, eps) -> Any:
        """``grad_z log q(z)`` at ``z = transform(params, eps)``, ``(dim,)``."""
        ...

    def log_density(self, params, eps) -> Any:
        """``log q(z)`` at ``z = transform(params, eps)``, nats, over the coordinates with noise."""
        ...

    def entropy(self, params) -> Any:
        """The entropy of ``q``, in nats."""
        ...

    def entropy_gradient(self, params) -> dict[str, Any]:
        """The gradient of ``entropy``."""
        ...

    def scale(self, params) -> Any:
        """The standard deviations of ``z``, ``(dim,)``; those of point estimates are below rounding."""
        ...

    def matrix(self, params) -> np.ndarray:
        """``A`` with ``z = mu + A eps``, ``(dim, noise_dim)``, NumPy."""
        ...
