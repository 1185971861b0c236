"""Many searches at once: all repetitions of one method on one function. A position is a generation.

``CompiledEngine``: for compiled functions, JAX runs any number of generations of all repetitions in one program, and
PyTorch one generation at a time. ``HostedEngine`` asks and tells all repetitions of a compiled solver in one program,
and Python evaluates the function. ``DrivenEngine`` calls a peer's objects in turn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core import backend as backends
from lowvar.core.keys import named_key
from lowvar.core.loop import Runs, geometric
from lowvar.errors import UserError
from lowvar.search.evaluator import Evaluator
from lowvar.search.problem import BlackBoxProblem, Ledger, checked_start, open_ledger, record
from lowvar.search.searcher import make_search, make_solver
from lowvar.search.solvers import SEARCH
from lowvar.search.solvers.base import SearchSolver, generation
from lowvar_studies.functions import catalogue
from lowvar_studies.jobs.search.spec import TARGET_EXPONENTS

TARGETS = 10.0 ** np.array(TARGET_EXPONENTS)  # gaps
_PER_DECADE = 24  # measurements per decade of generations


class SearchEngine(Runs):
    """The common part of all engines: measured generations, the trace, and final values.

    The budget fixes the number of generations, and the last one is measured.
    """

    def __init__(self, problem: BlackBoxProblem, settings, evaluations: int):
        self.problem, self.settings, self.evaluations = problem, settings, evaluations
        generations = settings.budget // evaluations
        if generations < 1:
            raise UserError(f"budget {settings.budget}: one generation takes {evaluations} evaluations")
        self.stops = geometric(generations, _PER_DECADE)
        self.runs = settings.repetitions
        self.targets = TARGETS if problem.optimum is not None else TARGETS[:0]

    def trace(self, stops, measured):
        """A row per measured generation and repetition."""
        import pandas as pd

        shape = measured["f"].shape
        stop, repetition = (axis.ravel() for axis in np.indices(shape))
        generations = np.asarray(stops)[stop]
        flat = {name: values.ravel() for name, values in measured.items()}
        return pd.DataFrame(
            {
                "repetition": repetition,
                "iteration": generations,
                "evaluations": generations * self.evaluations,
                "f": flat["f"],
                "best": flat["best"],
                "sigma": flat["sigma"],
                "condition": flat["condition"],
                "failures": flat["failures"],
                "status": np.where(np.isfinite(flat["f"]), "ok", "diverged"),
            }
        )

    def work(self, stops) -> dict:
        """Generations and evaluations done."""
        return {"iteration": stops, "evaluations": np.asarray(stops) * self.evaluations}

    def ends(self, mean, ledger, met, met_best):
        """Arrays of ``params.npz``, from those of all repetitions."""
        return {
            "mean": mean,
            "best": ledger.best,
            "best_at": ledger.best_at,
            "evaluations": ledger.evaluations,
            "targets": self.targets,
            "met": met,
            "met_best": met_best,
            "budget": np.array(self.settings.budget),
        }


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


class Searches(NamedTuple):
    """The searches of all repetitions by a compiled solver.

    Attributes:
        solver: a ``SearchSolver``.
        keys: a JAX key for the noise of each repetition.
        starts: initial means, a NumPy array ``(repetitions, ...)``.
        sigma0: initial standard deviation.
    """

    solver: SearchSolver
    keys: Any
    starts: np.ndarray
    sigma0: float

    def init(self) -> list[Any]:
        """The solver's state at the start of each repetition."""
        return [self.solver.init(np.asarray(start, float), self.sigma0) for start in self.starts]


class CompiledEngine(SearchEngine):
    """All repetitions of a search as one array program.

    Args:
        problem: a function of the solver's backend.
        searches: the solver, with its noise and starts.
        settings: a ``SearchSettings``.
    """

    def __init__(self, problem, searches: Searches, settings):
        solver = searches.solver
        super().__init__(problem, settings, solver.evaluations)
        self.searches, self.backend = searches, solver.backend
        self._generation = generation(solver, problem.values)
        self._goals = None if problem.optimum is None else self.backend.asarray(problem.optimum + self.targets)
        self._generations = self.backend.repeat(self._one, lambda key, t: solver.draw(jax.random.fold_in(key, t)))
        self._measure = self.backend.jit(self.backend.vmap(self._measure_one))

    def init(self):
        """All repetitions before their first generation."""
        backend, one = self.backend, []
        for state in self.searches.init():
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
            at_mean = self.problem.values(self.searches.solver.mean(state)[None, :])[0]
            met = xp.where(xp.isinf(met) & (at_mean <= self._goals), now, met)
            met_best = xp.where(xp.isinf(met_best) & (ledger.best <= self._goals), now, met_best)
        return Progress(state, ledger, met, met_best)

    def advance(self, state, first: int, count: int):
        """All repetitions ``count`` generations after generation ``first``; a count of 0 only compiles."""
        state = self._generations(state, self.searches.keys, first, count)
        self.backend.wait(state)
        return state

    def _measure_one(self, progress):
        solver = self.searches.solver
        mean = solver.mean(progress.solver)
        sigma, condition = solver.spread(progress.solver)
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
        mean = self.backend.vmap(self.searches.solver.mean)(state.solver)
        return self.ends(*self.backend.to_numpy((mean, state.ledger, state.met, state.met_best)))


class Reached(NamedTuple):
    """What one repetition has evaluated and met.

    Attributes:
        evaluator: of its function, with the budget.
        met: evaluations at which ``f`` at the mean first met each target, infinite before; ``(T,)``.
        met_best: the same for the best evaluated point.
    """

    evaluator: Evaluator
    met: np.ndarray
    met_best: np.ndarray

    def at(self, mean: np.ndarray) -> float:
        """``f`` at the mean, without noise, not counted as an evaluation."""
        return float(self.evaluator.measure(np.asarray(mean)[None, :])[0])

    def look(self, mean: np.ndarray, goals: np.ndarray) -> None:
        """Notes the targets met, of the values ``goals (T,)``."""
        now = self.evaluator.evaluations
        if np.isinf(self.met).any():
            self.met[np.isinf(self.met) & (self.at(mean) <= goals)] = now
        self.met_best[np.isinf(self.met_best) & (self.evaluator.nearest <= goals)] = now

    def ledger(self, mean: np.ndarray) -> Ledger:
        """The evaluator's record as arrays; before the first value, the best point is the mean."""
        ledger = self.evaluator.ledger
        return Ledger(*map(np.array, ledger if np.isfinite(ledger.best) else ledger._replace(best_at=mean)))


class _State(NamedTuple):
    solver: Any  # of all repetitions, stacked; or their searches
    progress: list[Reached]


class _Hosted(SearchEngine):
    """The common part: evaluators, measurements and final values."""

    def __init__(self, problem: BlackBoxProblem, settings, evaluations: int):
        super().__init__(problem, settings, evaluations)
        own = problem.repetition or (lambda r: problem)
        self.problems = [own(r) for r in range(self.runs)]
        self.goals = self.targets if problem.optimum is None else problem.optimum + self.targets

    def _look(self, solver) -> tuple[Sequence[np.ndarray], Sequence[tuple[float, float]]]:
        """Means and spreads of all repetitions."""
        raise NotImplementedError

    def begin(self) -> list[Reached]:
        """All repetitions before their first evaluation."""
        never = np.full(len(self.targets), np.inf)
        return [
            Reached(Evaluator(problem, self.settings.budget, "mark"), never.copy(), never.copy())
            for problem in self.problems
        ]

    def measure(self, state: _State, position: int) -> dict[str, np.ndarray]:
        """``f`` at the mean and of the best point, spread, failures, each ``(repetitions,)``."""
        means, spreads = self._look(state.solver)
        return {
            "f": np.array([one.at(mean) for one, mean in zip(state.progress, means, strict=True)]),
            "best": np.array([one.evaluator.best for one in state.progress]),
            "sigma": np.array([sigma for sigma, _ in spreads], float),
            "condition": np.array([condition for _, condition in spreads], float),
            "failures": np.array([one.evaluator.failures for one in state.progress]),
        }

    def finished(self, state: _State) -> bool:
        """Whether every repetition has met the last target."""
        watched = self.settings.early_stop and len(self.targets) > 0
        return watched and all(np.isfinite(one.met[-1]) for one in state.progress)

    def params(self, state: _State, measured) -> dict[str, np.ndarray]:
        """Means, best points, and the evaluations at which targets were met."""
        means = [np.asarray(mean) for mean in self._look(state.solver)[0]]
        ledgers = [one.ledger(mean) for one, mean in zip(state.progress, means, strict=True)]
        together = Ledger(*map(np.stack, zip(*ledgers, strict=True)))
        met, met_best = (np.stack([getattr(one, name) for one in state.progress]) for name in ("met", "met_best"))
        return self.ends(np.stack(means), together, met, met_best)


class HostedEngine(_Hosted):
    """All repetitions of a compiled solver, on a function that Python evaluates.

    Args:
        problem: a function of no backend.
        searches: the solver, with its noise and starts.
        settings: a ``SearchSettings``; its budget is that of each repetition's evaluator.
    """

    def __init__(self, problem, searches: Searches, settings):
        solver = searches.solver
        super().__init__(problem, settings, solver.evaluations)
        self.searches, self.backend = searches, (backend := solver.backend)
        each = jax.vmap(lambda key, t: solver.draw(jax.random.fold_in(key, t)), (0, None))
        self._draw = jax.jit(each)

        def turn(state, noise, points, values, following):
            state = solver.tell(state, noise, points, values)
            return state, solver.ask(state, following), solver.mean(state)

        def place(state):
            return solver.mean(state), *solver.spread(state)

        self._ask, self._turn, self._place = (
            backend.compile(backend.vmap(function)) for function in (solver.ask, turn, place)
        )

    def init(self):
        """All repetitions before their first generation."""
        backend, xp = self.backend, self.backend.xp
        states = backend.tree_map(lambda *leaves: xp.stack(leaves), *self.searches.init())
        return _State(states, self.begin())

    def advance(self, state, first, count):
        """Asks and tells all repetitions at once."""
        solver, progress = state
        noise = self._noise(first)
        points = self._ask(solver, noise)
        if count == 0:  # compiles
            values = self.backend.asarray(np.zeros(points.shape[:2]), points)
            self._turn(solver, noise, points, values, noise)
        for t in range(first, first + count):
            asked = self.backend.to_numpy(points)
            values = np.stack([one.evaluator(part) for one, part in zip(progress, asked, strict=True)])
            following = self._noise(t + 1)
            solver, points, means = self._turn(solver, noise, points, self.backend.asarray(values, points), following)
            noise = following
            if len(self.targets):
                for one, mean in zip(progress, self.backend.to_numpy(means), strict=True):
                    one.look(mean, self.goals)
        return _State(solver, progress)

    def _noise(self, t):
        return self.backend.from_jax(self._draw(self.searches.keys, t))

    def _look(self, solver):
        means, sigmas, conditions = self.backend.to_numpy(self._place(solver))
        return means, list(zip(sigmas, conditions, strict=True))

    def flatten(self, state) -> list[np.ndarray]:
        """The arrays of the solver and of all repetitions."""
        leaves = list(self.backend.leaves(state.solver))
        for one, mean in zip(state.progress, self._look(state.solver)[0], strict=True):
            leaves += [*one.ledger(mean), np.array(one.evaluator.nearest), one.met, one.met_best]
        return leaves

    def unflatten(self, leaves):
        """The state whose arrays are ``leaves``."""
        solver, progress = self.init()
        each = len(Ledger._fields) + 3
        own = len(leaves) - each * len(progress)
        for r, one in enumerate(progress):
            *ledger, nearest, met, met_best = leaves[own + r * each : own + (r + 1) * each]
            one.evaluator.ledger, one.evaluator.nearest = Ledger(*ledger), float(nearest)
            one.met[:], one.met_best[:] = met, met_best
        return _State(self.backend.rebuilt(leaves[:own], solver), progress)


class DrivenEngine(_Hosted):
    """All repetitions of a peer that is driven from Python.

    Args:
        problem: any function.
        make: ``repetition -> search``, an object with ``propose``, ``learn``, ``mean`` and ``spread``.
        settings: a ``SearchSettings``; its budget is that of each repetition's evaluator.
    """

    def __init__(self, problem, make, settings):
        self._make = make
        self._first = [make(r) for r in range(settings.repetitions)]
        super().__init__(problem, settings, self._first[0].population)

    def init(self):
        """All repetitions before their first generation."""
        searches = self._first or [self._make(r) for r in range(self.runs)]
        self._first = []  # searches are stateful, so each is used once
        return _State(searches, self.begin())

    def advance(self, state, first, count):
        """Proposes, evaluates and learns, one repetition after another."""
        for _ in range(count):
            for search, one in zip(*state, strict=True):
                points = search.propose()
                search.learn(points, one.evaluator(points))
                if len(self.targets):
                    one.look(search.mean, self.goals)
        return state

    def _look(self, solver):
        return [one.mean for one in solver], [one.spread for one in solver]

    def flatten(self, state) -> None:
        """Nothing: the state of a peer is not accessible."""

    def unflatten(self, leaves):
        """Not called, because nothing is stored."""
        raise NotImplementedError


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
        return HostedEngine(problem, Searches(solver, keys, np.stack(starts), sigma0), settings)
    keys = jnp.stack([named_key(spec.seed, spec.name, "noise", r) for r in repetitions])
    return CompiledEngine(problem, Searches(solver, keys, np.stack(starts), sigma0), settings)
