"""Many searches at once: all repetitions of one method on one function.

For compiled functions, JAX runs any number of generations of all repetitions in one program, and PyTorch one generation
at a time. For other functions, and for solvers that are stateful objects, see ``hosted``. A position is a generation.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core import backend as backends
from lowvar.core.keys import named_key
from lowvar.core.loop import Runs
from lowvar.search.problem import Ledger, checked_start, open_ledger, record
from lowvar.search.searcher import make_search, make_solver
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.base import generation
from lowvar_studies.functions import catalogue
from lowvar_studies.jobs.search.counted import SearchEngine
from lowvar_studies.jobs.search.hosted import DrivenEngine, HostedEngine


class Progress(NamedTuple):
    """The state of one repetition.

    Attributes:
        solver: the solver's state.
        ledger: evaluations, failures and the best point so far.
        met: evaluations at which ``f`` at the mean first met each target, infinite before; ``(T,)``.
        met_best: the same for the best evaluated point.
    """

    solver: Any
    ledger: Ledger
    met: Any
    met_best: Any


class CompiledEngine(SearchEngine, Runs):
    """All repetitions of a search as one array program.

    Args:
        problem: a function of a backend.
        solver: a ``SearchSolver`` of that backend.
        settings: a ``SearchSettings``.
        keys: a JAX key for the noise of each repetition.
        starts: initial means, a NumPy array ``(repetitions, ...)``.
        sigma0: initial standard deviation.
    """

    def __init__(self, problem, solver, settings, keys, starts, sigma0):
        super().__init__(problem, settings, solver.evaluations)
        self.solver, self.keys, self.starts, self.sigma0 = solver, keys, starts, sigma0
        self.backend = solver.backend
        self._generation = generation(solver, problem.values)
        self._goals = None if problem.optimum is None else self.backend.asarray(problem.optimum + self.targets)
        self._generations = self.backend.repeat(self._one, lambda key, t: solver.draw(jax.random.fold_in(key, t)))
        self._measure = self.backend.jit(self.backend.vmap(self._measure_one))

    def init(self):
        """All repetitions before their first generation."""
        backend, one = self.backend, []
        for start in self.starts:
            state = self.solver.init(np.asarray(start, float), self.sigma0)
            like = backend.asarray(np.zeros(0))
            never = backend.asarray(np.full(len(self.targets), np.inf))
            ledger = open_ledger(backend, self.problem.domain, like)
            one.append(Progress(state, ledger, never, never))
        return backend.tree_map(lambda *leaves: backend.xp.stack(leaves), *one)

    def _one(self, progress: Progress, noise) -> Progress:
        """One generation of one repetition."""
        backend, xp = self.backend, self.backend.xp
        state, points, values = self._generation(progress.solver, noise)
        ledger = record(backend, progress.ledger, points, values)
        met, met_best = progress.met, progress.met_best
        if self._goals is not None:
            now = xp.astype(ledger.evaluations, met.dtype)
            at_mean = self.problem.values(self.solver.mean(state)[None, :])[0]
            met = xp.where(xp.isinf(met) & (at_mean <= self._goals), now, met)
            met_best = xp.where(xp.isinf(met_best) & (ledger.best <= self._goals), now, met_best)
        return Progress(state, ledger, met, met_best)

    def advance(self, state, first: int, count: int):
        """All repetitions ``count`` generations after generation ``first``; a count of 0 only compiles."""
        state = self._generations(state, self.keys, first, count)
        self.backend.wait(state)
        return state

    def _measure_one(self, progress):
        mean = self.solver.mean(progress.solver)
        sigma, condition = self.solver.spread(progress.solver)
        return {
            "f": self.problem.values(mean[None, :])[0],
            "best": progress.ledger.best,
            "sigma": sigma,
            "condition": condition,
            "failures": progress.ledger.failures,
        }

    def measure(self, state, position: int) -> dict[str, np.ndarray]:
        """``f`` at the mean and of the best point, spread, failures, each ``(repetitions,)``."""
        return self.backend.to_numpy(self._measure(state))

    def finished(self, state) -> bool:
        """Whether every repetition has met the last target."""
        if not (self.settings.early_stop and len(self.targets)):
            return False
        return bool(np.isfinite(self.backend.to_numpy(state.met)[:, -1]).all())

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """Means, best points, and the evaluations at which targets were met."""
        mean = self.backend.vmap(self.solver.mean)(state.solver)
        return self.ends(*self.backend.to_numpy((mean, state.ledger, state.met, state.met_best)))


def build(spec) -> CompiledEngine | DrivenEngine | HostedEngine:
    """The engine of a ``SearchRunSpec``.

    Raises:
        UserError: an invalid option of the function or solver, or a solver that does not support the function.
    """
    backend = backends.get(spec.backend)
    problem = catalogue.build(
        spec.problem.function, backend, dim=spec.problem.dim, name=spec.name, **spec.problem.options
    )
    name, settings = spec.method.solver, spec.search
    options = {"population": spec.problem.population, **spec.method.options}
    repetitions = range(settings.repetitions)
    keys = [named_key(spec.seed, spec.name, "start", r) for r in repetitions]
    domain = problem.domain
    starts = [checked_start("start", problem.start(key), domain.kind, domain.start_shape) for key in keys]
    sigma0 = settings.sigma0 or problem.sigma0
    if SEARCH.about(name).driven:

        def make(r):
            seed = int(jax.random.randint(named_key(spec.seed, spec.name, "peer", r), (), 1, 2**30))
            return make_search(name, backend, domain, starts[r], sigma0, seed, options)

        return DrivenEngine(problem, make, settings)
    solver = make_solver(name, backend, domain, options)
    if problem.backend is None:
        keys = jnp.stack([named_key(spec.seed, f"{spec.name} {r}", "noise") for r in repetitions])
        return HostedEngine(problem, solver, settings, keys, np.stack(starts), sigma0)
    keys = jnp.stack([named_key(spec.seed, spec.name, "noise", r) for r in repetitions])
    return CompiledEngine(problem, solver, settings, keys, np.stack(starts), sigma0)
