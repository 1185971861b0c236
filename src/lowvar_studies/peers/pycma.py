"""CMA-ES of the package ``cma``."""

import warnings
from typing import Any

import cma
import numpy as np

from lowvar.registry import declares
from lowvar.search.problem import Domain
from lowvar_studies.peers.driven import Gaussian

_SILENT = {"verbose": -9, "verb_log": 0, "verb_disp": 0, "verb_plot": 0, "signals_filename": ""}


@declares(packages=("cma",), extra="peers", backends=("jax",), driven=True)
class pycma(Gaussian):
    """``cma.CMAEvolutionStrategy`` with its own defaults except for the population.

    Only its ``stop``, which is never called, checks its tolerances. It writes no files, and has its own random
    generator instead of NumPy's global one.

    Args:
        domain: a real one.
        x0: the mean at the start, ``(dim,)``.
        sigma0: standard deviation at the start.
        population: ``N``; lowvar's default if not given.
        seed: of its draws.
        diagonal: the covariance stays diagonal (``CMA_diagonal``).

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Hansen, Akimoto and Baudis, CMA-ES/pycma, doi:10.5281/zenodo.2559634; Hansen, arXiv:1604.00772; Ros and
        Hansen, PPSN 2008, for the diagonal one.
    """

    def __init__(
        self,
        domain: Domain,
        x0: Any,
        sigma0: float,
        population: int | None = None,
        seed: int = 0,
        diagonal: bool = False,
    ):
        super().__init__("pycma", domain, sigma0, population, seed)
        options = {
            **_SILENT,
            "popsize": self.population,
            "CMA_diagonal": diagonal,
            "randn": np.random.RandomState(seed).randn,
            "seed": np.nan,  # does not seed NumPy's global generator
        }
        self._strategy: Any = cma.CMAEvolutionStrategy(np.array(x0, float), sigma0, options)
        self._asked: list[np.ndarray] = []

    def propose(self) -> np.ndarray:
        """See ``Driven``."""
        self._asked = self._strategy.ask()
        return np.array(self._asked)

    def update(self, points: np.ndarray, values: np.ndarray) -> None:
        """See ``Driven``."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="cma")  # warnings on steps that it clips
            self._strategy.tell(self._asked, values.tolist())

    @property
    def mean(self) -> np.ndarray:
        """The distribution's mean, ``(dim,)``.

        Once the condition number of its covariance exceeds 1e12, pycma changes its coordinates, in which it keeps the
        mean.
        """
        return np.array(self._strategy.gp.pheno(self._strategy.mean))

    def scale_and_axes(self) -> tuple[float, np.ndarray]:
        """May lack the last few generations' updates: pycma decomposes its covariance lazily."""
        strategy = self._strategy
        scaling = strategy.sigma_vec.scaling
        if strategy.gp.isidentity:
            return strategy.sigma, strategy.D * scaling
        columns = np.reshape(scaling, (-1, 1)) * strategy.B * strategy.D
        return strategy.sigma, np.linalg.svd(np.stack([strategy.gp.pheno(one) for one in columns.T]), compute_uv=False)
