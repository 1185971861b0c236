"""lowvar's searches for studies of Optuna: ``LowvarSampler``."""

import math
import threading
import warnings
import zlib
from typing import Any

import numpy as np

from lowvar.errors import UserError, require, whole
from lowvar.search.searcher import Searcher

require("LowvarSampler", "optuna", "optuna")
from optuna.distributions import (  # noqa: E402
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.samplers import BaseSampler, TPESampler  # noqa: E402
from optuna.search_space import IntersectionSearchSpace  # noqa: E402
from optuna.study import StudyDirection  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

__all__ = ["LowvarSampler"]
_PLACE = "lowvar:place"  # of a trial: a digest of the parameters, and numbers of the search, generation and point
_SHARE = 1 / 6  # the standard deviation to start from, as a share of a range
# differences of values, as shares of their range or, on a log scale, of themselves
_SAME = 1e-9  # of a value that was read from a storage, computed on another machine
_NARROW = 1e-6  # of the points of a search that has converged
_LOCK = threading.Lock()  # of `n_jobs`: two threads must not take the same point


class LowvarSampler(BaseSampler):
    """Chooses the parameters of Optuna's trials by a ``Searcher``.

    Real parameters, on a log scale too, and integers are coordinates of the search; so is each choice of a categorical
    parameter, and the choice with the largest coordinate is taken. ``independent_sampler`` draws the first trial, whose
    parameters are not known before it, and parameters that not all trials have.

    The state of the search is computed from the trials of the study: a study that is loaded from its storage goes on as
    if it had never stopped. A trial that failed or was pruned counts as the worst of its generation. While the last
    points of a generation are evaluated, further workers get points of a second search, which starts elsewhere; so does
    the search that follows one that has converged. A point is asked again if its trial still runs when as many later
    trials have ended as a generation has. The search does not learn from trials that were enqueued or added.

    Args:
        seed: seed of the points. By default the study's name gives it, so that all processes of a study agree.
        method: as for ``Searcher``: a search over real numbers.
        population: points of a generation, best several times ``n_jobs``; the method's default if not given.
        noisy: whether repeated evaluations of the same parameters differ.
        independent_sampler: one of Optuna; a ``TPESampler`` if not given.
        **options: options of the method.

    Raises:
        UserError: Optuna is not installed, or the search refuses a setting, as ``Searcher`` does, or one that
            the study has: ``bounds``, ``integers``, ``domain``, ``dim``, ``choices``, ``x0``, ``sigma0``.

    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=LowvarSampler(seed=0))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 2) ** 2, n_trials=100)
    >>> round(study.best_params["x"], 2)
    2.0
    """

    def __init__(
        self, *, seed: int | None = None, method: Any = "auto", population: int | None = None, noisy: bool = False,
        independent_sampler: BaseSampler | None = None, **options: Any,
    ):  # fmt: skip
        self._seed = None if seed is None else whole("seed", seed, 0)
        for name in ("bounds", "integers", "domain", "dim", "choices", "x0", "sigma0"):
            if name in options:
                raise UserError(f"{name}: the parameters of the study have it already; leave it out")
        if noisy not in (True, False):
            raise UserError(f"noisy = {noisy!r}: it must be True or False")
        self._settings = {"method": method, "population": population, "noisy": noisy, **options}
        Searcher([0.0], 1.0, **self._settings)  # refuses a wrong setting now, not in a trial
        self._independent = independent_sampler or TPESampler(seed=seed)
        self._warned = False
        self._forget(None)

    def _forget(self, study: Any) -> None:
        """Drops what was computed from the trials of another study."""
        self._study, self._common = study, IntersectionSearchSpace()
        self._space: dict[str, BaseDistribution] = {}
        self._searches: list[_Search] = []

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_study": None, "_common": IntersectionSearchSpace(), "_space": {}, "_searches": []}

    def infer_relative_search_space(self, study, trial) -> dict[str, BaseDistribution]:
        """The parameters that all completed trials have, but those with one value."""
        with _LOCK:
            if self._study != (study._storage, study._study_id):
                self._forget((study._storage, study._study_id))
            return {name: one for name, one in self._common.calculate(study).items() if not one.single()}

    def sample_relative(self, study, trial, search_space) -> dict[str, Any]:
        """The next point of a search; nothing for a trial that was enqueued."""
        self._raise_error_if_multi_objective(study)
        if not search_space or "fixed_params" in trial.system_attrs:
            return {}
        with _LOCK:
            if self._space != search_space:
                self._space, self._searches = search_space, []
            seed = zlib.crc32(study.study_name.encode()) if self._seed is None else self._seed
            trials, asked = study.get_trials(deepcopy=False), {}
            for one in trials:
                asked.setdefault(tuple(one.system_attrs.get(_PLACE, ())), []).append(one)
            ended = np.array([one.number for one in trials if one.state.is_finished()])
            sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
            number, row = -1, None
            while row is None:
                number += 1
                if number == len(self._searches):
                    self._searches.append(_Search(search_space, number, seed, self._settings))
                row = self._searches[number].next(asked, ended, sign)
            search = self._searches[number]
            study._storage.set_trial_system_attr(trial._trial_id, _PLACE, [*search.place, row])
            return search.points[row]

    def sample_independent(self, study, trial, param_name, param_distribution) -> Any:
        """A value of the independent sampler, with a warning if the trials differ in this parameter."""
        self._raise_error_if_multi_objective(study)
        if not self._warned:
            complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            self._warned = any(one.distributions.get(param_name) != param_distribution for one in complete)
            if self._warned:
                warnings.warn(
                    f"{param_name}: not all trials have this parameter, or its range changes, so the search leaves it, "
                    f"and others like it, to {type(self._independent).__name__}",
                    stacklevel=2,
                )
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """New random numbers of the independent sampler, for a worker."""
        self._independent.reseed_rng()

    def before_trial(self, study, trial) -> None:
        """Tells the independent sampler."""
        self._independent.before_trial(study, trial)

    def after_trial(self, study, trial, state, values) -> None:
        """Tells the independent sampler."""
        if trial.constraints:
            warnings.warn("constraints: LowvarSampler does not use them", stacklevel=2)
        self._independent.after_trial(study, trial, state, values)


class _Search:
    """A ``Searcher`` whose coordinates are parameters: steps of 1 where they have steps, else all ranges equally wide.

    Attributes:
        points: the parameters of this generation's points.
    """

    def __init__(self, space: dict[str, Any], number: int, seed: int, settings: dict[str, Any]):
        self._space, self._number = space, number
        self._digest = zlib.crc32("".join(name + distribution_to_json(one) for name, one in space.items()).encode())
        levels = np.array([_levels(one) for one in space.values()])
        sizes = [len(one.choices) if isinstance(one, CategoricalDistribution) else 1 for one in space.values()]
        self._width, self._ends = max(1, levels.max()), np.cumsum(sizes)[:-1]
        high = np.repeat(np.where(levels > 0, levels - 1, self._width), sizes).astype(float)
        elsewhere = np.random.default_rng([seed, number]).uniform(0, high)
        start = np.where(np.repeat(sizes, sizes) > 1, high / 2, elsewhere) if number else high / 2
        own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        self._searcher = Searcher(
            start, _SHARE * self._width, seed=own, bounds=(np.zeros_like(high), high),
            integers=np.repeat(levels > 0, sizes), **settings,
        )  # fmt: skip
        self._ask()

    @property
    def place(self) -> tuple[int, int, int]:
        """A digest of the parameters, and numbers of the search and of its generation."""
        return self._digest, self._number, self._searcher.iteration

    def next(self, asked: dict, ended: np.ndarray, sign: float) -> int | None:
        """The row of the next point to evaluate; None if all are being evaluated, or the search has converged.

        Args:
            asked: the trials of each place.
            ended: numbers of all trials that have ended.
            sign: of the values that the search minimises.
        """
        while not self._converged():
            values = [self._value(asked.get((*self.place, i), ()), one, ended) for i, one in enumerate(self.points)]
            if None in values:
                return values.index(None)
            if "running" in values:
                return None
            self._searcher.tell([sign * one for one in values])
            self._ask()
        return None

    def _ask(self) -> None:
        parts = [np.split(point, self._ends) for point in self._searcher.ask()]
        kinds, width = self._space.values(), self._width
        values = [[_parameter(one, at, width) for one, at in zip(kinds, row, strict=True)] for row in parts]
        self.points = [dict(zip(self._space, row, strict=True)) for row in values]

    def _value(self, trials, point, ended) -> Any:
        """The value of a point, NaN for a failure, ``"running"``, or None if nobody evaluates it."""
        own = [one for one in trials if self._same(one.params, point)]
        complete = [one for one in own if one.state == TrialState.COMPLETE]
        if complete:
            return min(complete, key=lambda one: one.datetime_complete).value
        if any(not one.state.is_finished() and np.sum(ended > one.number) < len(self.points) for one in trials):
            return "running"
        if own and any(one.state.is_finished() for one in own):
            return math.nan
        if any(one.state == TrialState.COMPLETE for one in trials):
            warnings.warn(
                "sampler: the study has trials of a LowvarSampler with other settings or of another version; this one "
                "starts anew, and does not learn from them",
                stacklevel=2,
            )
        return None

    def _same(self, params, point, share=_SAME) -> bool:
        """Whether parameters, perhaps not all of a trial that failed, are those of a point."""
        return all(_close(self._space[key], params[key], one, share) for key, one in point.items() if key in params)

    def _converged(self) -> bool:
        return self._searcher.spent or all(self._same(one, self.points[0], _NARROW) for one in self.points)


def _levels(one: Any) -> int:
    """The number of values of a parameter with steps, 0 for others."""
    if isinstance(one, CategoricalDistribution) or one.step is None or one.log:
        return 0
    return round((one.high - one.low) / one.step) + 1


def _parameter(one: Any, at: np.ndarray, width: float) -> Any:
    """The value of a parameter at its coordinates."""
    if isinstance(one, CategoricalDistribution):
        return one.choices[int(np.argmax(at))]
    if _levels(one):
        value = one.low + one.step * round(at[0])
    elif one.log:
        half = 0.5 * isinstance(one, IntDistribution)
        low, high = math.log(one.low - half), math.log(one.high + half)
        value = math.exp(low + (high - low) * at[0] / width)
    else:
        value = one.low + (one.high - one.low) * at[0] / width
    value = round(value) if isinstance(one, IntDistribution) else value
    return min(max(value, one.low), one.high)


def _close(one: Any, a: Any, b: Any, share: float) -> bool:
    if isinstance(one, (CategoricalDistribution, IntDistribution)):
        return a == b or (a != a and b != b)  # NaN is a choice, too
    return math.isclose(
        a, b, rel_tol=share if one.log else 1e-15, abs_tol=0.0 if one.log else share * (one.high - one.low)
    )
