"""Searches whose function runs on the host, or whose solver is a stateful object: Python evaluates the generations.

``HostedEngine`` asks and tells all repetitions of a compiled solver in one program; ``DrivenEngine`` calls a peer's
objects in turn.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lowvar.core.loop import Runs
from lowvar.search.evaluator import Evaluator
from lowvar.search.problem import BlackBoxProblem, Ledger
from lowvar_studies.jobs.search.counted import SearchEngine


class Progress(NamedTuple):
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


class _Hosted(SearchEngine, Runs):
    """The common part: evaluators, measurements and final values."""

    def __init__(self, problem: BlackBoxProblem, settings, evaluations: int):
        super().__init__(problem, settings, evaluations)
        own = problem.repetition or (lambda r: problem)
        self.problems = [own(r) for r in range(self.runs)]
        self.goals = self.targets if problem.optimum is None else problem.optimum + self.targets

    def begin(self) -> list[Progress]:
        """All repetitions before their first evaluation."""
        never = np.full(len(self.targets), np.inf)
        return [
            Progress(Evaluator(problem, self.settings.budget, "mark"), never.copy(), never.copy())
            for problem in self.problems
        ]

    def measured(self, progress: Sequence[Progress], means, spreads) -> dict[str, np.ndarray]:
        """``f`` at the means ``(repetitions, dim)`` and of the best points, spreads, failures, ``(repetitions,)``."""
        return {
            "f": np.array([one.at(mean) for one, mean in zip(progress, means, strict=True)]),
            "best": np.array([one.evaluator.best for one in progress]),
            "sigma": np.array([sigma for sigma, _ in spreads], float),
            "condition": np.array([condition for _, condition in spreads], float),
            "failures": np.array([one.evaluator.failures for one in progress]),
        }

    def all_met(self, progress: Sequence[Progress]) -> bool:
        """Whether every repetition has met the last target."""
        return self.settings.early_stop and len(self.targets) > 0 and all(np.isfinite(one.met[-1]) for one in progress)

    def ended(self, progress: Sequence[Progress], means) -> dict[str, np.ndarray]:
        """Means, best points, and the evaluations at which targets were met."""
        ledgers = [one.ledger(mean) for one, mean in zip(progress, means, strict=True)]
        together = Ledger(*map(np.stack, zip(*ledgers, strict=True)))
        met, met_best = (np.stack([getattr(one, name) for one in progress]) for name in ("met", "met_best"))
        return self.ends(np.stack(means), together, met, met_best)


class _State(NamedTuple):
    solver: Any  # of all repetitions, stacked
    progress: list[Progress]


class HostedEngine(_Hosted):
    """All repetitions of a compiled solver, on a function that Python evaluates.

    Args:
        problem: a function of no backend.
        solver: a ``SearchSolver``.
        settings: a ``SearchSettings``; its budget is that of each repetition's evaluator.
        keys: a JAX key for the noise of each repetition.
        starts: initial means, a NumPy array ``(repetitions, ...)``.
        sigma0: initial standard deviation.
    """

    def __init__(self, problem, solver, settings, keys, starts, sigma0):
        super().__init__(problem, settings, solver.evaluations)
        self.solver, self.keys, self.starts, self.sigma0 = solver, keys, starts, sigma0
        self.backend = backend = solver.backend
        each = jax.vmap(lambda key, t: solver.draw(jax.random.fold_in(key, t)), (0, None))
        self._draw = jax.jit(each)

        def turn(state, noise, points, values, following):
            state = solver.tell(state, noise, points, values)
            return state, solver.ask(state, following), solver.mean(state)

        def look(state):
            return solver.mean(state), *solver.spread(state)

        self._ask, self._turn, self._look = (
            backend.compile(backend.vmap(function)) for function in (solver.ask, turn, look)
        )

    def init(self):
        """All repetitions before their first generation."""
        backend, xp = self.backend, self.backend.xp
        states = [self.solver.init(np.asarray(start, float), self.sigma0) for start in self.starts]
        return _State(backend.tree_map(lambda *leaves: xp.stack(leaves), *states), self.begin())

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
        return self.backend.from_jax(self._draw(self.keys, t))

    def _looked(self, state):
        means, sigmas, conditions = self.backend.to_numpy(self._look(state.solver))
        return means, list(zip(sigmas, conditions, strict=True))

    def measure(self, state, position: int) -> dict[str, np.ndarray]:
        """``f`` at the mean and of the best point, spread, failures, each ``(repetitions,)``."""
        return self.measured(state.progress, *self._looked(state))

    def finished(self, state) -> bool:
        """Whether every repetition has met the last target."""
        return self.all_met(state.progress)

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """Means, best points, and the evaluations at which targets were met."""
        return self.ended(state.progress, self._looked(state)[0])

    def flatten(self, state) -> list[np.ndarray]:
        """The arrays of the solver and of all repetitions."""
        leaves = list(self.backend.leaves(state.solver))
        for one, mean in zip(state.progress, self._looked(state)[0], strict=True):
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
        return list(zip(searches, self.begin(), strict=True))

    def advance(self, state, first, count):
        """Proposes, evaluates and learns, one repetition after another."""
        for _ in range(count):
            for search, one in state:
                points = search.propose()
                search.learn(points, one.evaluator(points))
                if len(self.targets):
                    one.look(search.mean, self.goals)
        return state

    def measure(self, state, position: int) -> dict[str, np.ndarray]:
        """``f`` at the mean and of the best point, spread, failures, each ``(repetitions,)``."""
        searches, progress = zip(*state, strict=True)
        return self.measured(progress, [one.mean for one in searches], [one.spread for one in searches])

    def finished(self, state) -> bool:
        """Whether every repetition has met the last target."""
        return self.all_met([one for _, one in state])

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """Means, best points, and the evaluations at which targets were met."""
        searches, progress = zip(*state, strict=True)
        return self.ended(progress, [np.asarray(one.mean) for one in searches])

    def flatten(self, state) -> None:
        """Nothing: the state of a peer is not accessible."""

    def unflatten(self, leaves):
        """Not called, because nothing is stored."""
        raise NotImplementedError
