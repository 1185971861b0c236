"""The genetic algorithm of pymoo, for binary and categorical points."""

from typing import Any

import numpy as np
from pymoo.algorithms.soo.nonconvex.ga import GA, comp_by_cv_and_fitness
from pymoo.config import Config
from pymoo.core.mutation import Mutation
from pymoo.core.problem import Problem
from pymoo.core.sampling import Sampling
from pymoo.core.termination import NoTermination
from pymoo.operators.crossover.ux import UniformCrossover
from pymoo.operators.mutation.bitflip import BitflipMutation
from pymoo.operators.selection.tournament import TournamentSelection

from lowvar.errors import UserError
from lowvar.registry import declares
from lowvar.search.problem import Domain
from lowvar_studies.peers.driven import Driven

Config.warnings["not_compiled"] = False  # a hint that pymoo prints


class _FromProbabilities(Sampling):
    """Initial points from the probabilities ``x0``: at one half, pymoo's ``BinaryRandomSampling``."""

    def __init__(self, x0: np.ndarray):
        super().__init__()
        self.x0 = x0

    def _do(self, problem, n_samples, *args, random_state, **kwargs):
        if self.x0.ndim == 1:
            return random_state.random((n_samples, len(self.x0))) < self.x0
        steps = np.cumsum(self.x0, 1)[None, :, :-1]
        return (random_state.random((n_samples, len(self.x0), 1)) >= steps).sum(-1)


class _OtherChoice(Mutation):
    """Each coordinate changes to one of the other choices with probability ``1 / d``: a generalised bit flip."""

    def _do(self, problem, X, *args, random_state, **kwargs):
        choices = int(problem.xu[0]) + 1
        change = random_state.random(X.shape) < self.get_prob_var(problem, size=(len(X), 1))
        return np.where(change, (X + random_state.integers(1, choices, X.shape)) % choices, X)


@declares(packages=("pymoo",), extra="peers", backends=("jax",), driven=True, domains=("binary", "categorical"))
class pymoo_ga(Driven):
    """``pymoo``'s ``GA`` with its defaults: binary tournaments, elitist survival, no duplicates; the budget ends it.

    Uniform crossover, and each coordinate mutates with probability ``1 / d``. If pymoo finds fewer than
    ``population`` new points (it drops duplicates), the generation is padded with repeated points, whose evaluations
    are wasted.

    Args:
        domain: a binary or categorical one.
        x0: probabilities of a one ``(dim,)``, or of the choices ``(dim, K)``, in the first generation.
        sigma0: not used.
        population: points of a generation; pymoo's default is 100.
        seed: of its draws.

    Raises:
        UserError: a real domain, or a setting out of range.

    References:
        Blank and Deb, IEEE Access 8 (2020), 89497-89509.
    """

    def __init__(self, domain: Domain, x0: Any, sigma0: float = 0.0, population: int | None = None, seed: int = 0):
        if domain.kind == "real":
            raise UserError("pymoo_ga searches binary and categorical domains, not real ones")
        if domain.dim < 1:
            raise UserError(f"dim {domain.dim}: it must be at least 1")
        super().__init__("pymoo_ga", domain, 100 if population is None else population, seed)
        binary = domain.kind == "binary"
        self._x0 = np.array(x0, float)
        operators: dict[str, Any] = {
            "sampling": _FromProbabilities(self._x0),
            "selection": TournamentSelection(func_comp=comp_by_cv_and_fitness),
            "crossover": UniformCrossover(),
            "mutation": BitflipMutation() if binary else _OtherChoice(),
        }
        self._ga: Any = GA(pop_size=self.population, **operators)
        upper, kind = (1, bool) if binary else (domain.choices - 1, int)
        problem = Problem(n_var=domain.dim, n_obj=1, xl=0, xu=upper, vtype=kind)
        self._ga.setup(problem, termination=NoTermination(), seed=seed)
        self._asked: Any = None

    def propose(self) -> np.ndarray:
        """See ``Driven``."""
        self._asked = self._ga.ask()
        source = self._asked if self._asked is not None and len(self._asked) else self._ga.pop
        points = source.get("X").astype(np.int32)
        return np.resize(points, (self.population, self.domain.dim))  # cyclic repetition

    def update(self, points: np.ndarray, values: np.ndarray) -> None:
        """See ``Driven``."""
        if self._asked is None or not len(self._asked):
            self._ga.termination.force_termination = False  # set by pymoo when it finds no new point
            return
        self._asked.set("F", values[: len(self._asked), None])
        self._ga.tell(infills=self._asked)

    @property
    def mean(self) -> np.ndarray:
        """The best individual, ``(dim,)``; before the first generation is told, the mode of ``x0``."""
        if self._ga.opt is None:
            mode = self._x0 > 0.5 if self._x0.ndim == 1 else self._x0.argmax(1)
            return mode.astype(np.int32)
        return self._ga.opt[0].X.astype(np.int32)
