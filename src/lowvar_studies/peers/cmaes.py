"""CMA-ES and separable CMA-ES of the package ``cmaes``."""

from typing import Any

import numpy as np
from cmaes import CMA, SepCMA

from lowvar.registry import declares
from lowvar.search.problem import Domain
from lowvar_studies.peers.driven import Gaussian


class _Cmaes(Gaussian):
    def __init__(self, name, optimizer, domain, x0, sigma0, population, seed, **options):
        super().__init__(name, domain, sigma0, population, seed)
        start = np.array(x0, float)
        self._optimizer = optimizer(start, sigma0, seed=seed, population_size=self.population, **options)

    def propose(self) -> np.ndarray:
        """See ``Driven``."""
        return np.array([self._optimizer.ask() for _ in range(self.population)])

    def update(self, points: np.ndarray, values: np.ndarray) -> None:
        """See ``Driven``."""
        self._optimizer.tell(list(zip(points, values.tolist(), strict=True)))

    @property
    def mean(self) -> np.ndarray:
        """The distribution's mean, ``(dim,)``."""
        return np.array(self._optimizer.mean)

    def scale_and_axes(self) -> tuple[float, np.ndarray]:
        """From the eigendecomposition, which its next ``ask`` needs anyway and reuses."""
        axes = self._optimizer._eigen_decomposition()
        return self._optimizer._sigma, axes[1] if isinstance(axes, tuple) else axes


@declares(packages=("cmaes",), extra="peers", backends=("jax",), driven=True)
class cmaes(_Cmaes):
    """``cmaes.CMA`` with its own defaults except for the population. Its ``should_stop`` is never called.

    Args:
        domain: a real one.
        x0: the mean at the start, ``(dim,)``.
        sigma0: standard deviation at the start.
        population: ``N``; lowvar's default if not given.
        seed: of its draws.
        lr_adapt: adapt the learning rates (LRA-CMA-ES).

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Nomura and Shibata, arXiv:2402.01373; Hansen, arXiv:1604.00772.
    """

    def __init__(
        self,
        domain: Domain,
        x0: Any,
        sigma0: float,
        population: int | None = None,
        seed: int = 0,
        lr_adapt: bool = False,
    ):
        super().__init__("cmaes", CMA, domain, x0, sigma0, population, seed, lr_adapt=lr_adapt)


@declares(packages=("cmaes",), extra="peers", backends=("jax",), driven=True)
class sep_cmaes(_Cmaes):
    """``cmaes.SepCMA``, whose covariance is diagonal, with its own defaults except for the population.

    Args:
        domain: a real one.
        x0: the mean at the start, ``(dim,)``.
        sigma0: standard deviation at the start.
        population: ``N``; lowvar's default if not given.
        seed: of its draws.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Nomura and Shibata, arXiv:2402.01373; Ros and Hansen, PPSN 2008.
    """

    def __init__(self, domain: Domain, x0: Any, sigma0: float, population: int | None = None, seed: int = 0):
        super().__init__("sep_cmaes", SepCMA, domain, x0, sigma0, population, seed)
