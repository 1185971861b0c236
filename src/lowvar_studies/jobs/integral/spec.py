"""Specs of the family ``integral``: expectations with control variates, from the same points for all methods."""

from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, check_known
from lowvar_studies.jobs.common_spec import (
    Cost,
    Count,
    Data,
    Different,
    ExperimentSpec,
    Name,
    Seed,
    Strict,
    different,
    merged,
)


def _sizes(given: Any) -> Any:
    """Checks sizes: different integers, or lists of integers with equal lengths."""
    entries = list(given) if isinstance(given, (list, tuple)) else []
    lists = [entry for entry in entries if isinstance(entry, (list, tuple))]
    numbers = [n for entry in entries for n in (entry if isinstance(entry, (list, tuple)) else [entry])]
    if not entries or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in numbers):
        raise ValueError(f"{given!r}: it must be a list of positive integers, or of lists with one for each task")
    if len({len(entry) for entry in lists}) > 1 or (lists and not lists[0]):
        raise ValueError(f"{given!r}: every list must have a number for each task")
    tasks = len(lists[0]) if lists else 1
    spread = [tuple(entry) if isinstance(entry, (list, tuple)) else (entry,) * tasks for entry in entries]
    if len(set(spread)) < len(spread):
        raise ValueError(f"{given!r}: a size occurs twice")
    return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in entries)


def _checked_methods(given: Any) -> Any:
    """Checks methods: a list of names, or a mapping from names to options."""
    if given is None:
        return None
    options = given.values() if isinstance(given, dict) else ()
    if not isinstance(given, (dict, list, tuple)) or not all(isinstance(one, (dict, type(None))) for one in options):
        raise ValueError(f"{given!r}: it must be a list of methods, or a mapping from methods to options")
    if not given or not all(isinstance(name, str) for name in given):
        raise ValueError(f"{given!r}: it must name at least one method")
    return given if isinstance(given, dict) else different(tuple(given))


Sizes = Annotated[tuple[pydantic.StrictInt | tuple[pydantic.StrictInt, ...], ...], pydantic.BeforeValidator(_sizes)]
Methods = Annotated[
    dict[str, dict[str, Any] | None] | tuple[str, ...] | None, pydantic.BeforeValidator(_checked_methods)
]
Sampler = Literal["iid", "rqmc", "nuts", "tempered", "published"]


class IntegralProblemSpec(Strict):
    """A problem of the catalogue, and its numbers of points."""

    problem: str | None = Field(None, description="a problem; `lowvar list integrals`")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")
    within: str | None = Field(None, description="in place of `problem`: another one, whose points it uses")
    tasks: Annotated[tuple[str, ...], Field(min_length=1), Different] | None = Field(
        None, description="with `within`: tasks of the other problem to use"
    )
    sampler: Sampler | None = Field(
        None,
        description="sampler of the points (`published`: the exact points of a published experiment); the problem's "
        "own choice if null",
    )
    sizes: Sizes = Field(description="numbers of points: one for all tasks, or a list with one for each task")
    methods: Methods = Field(
        None, description="the methods that run on it; a mapping gives them options for this problem; all if null"
    )
    repetitions: Count | None = Field(None, description="in place of `estimation.repetitions`")
    truth_effort: Count = Field(1, description="multiple of the default work spent on an inexact truth")

    @pydantic.model_validator(mode="after")
    def _one_origin(self):
        if (self.problem is None) == (self.within is None):
            raise ValueError("exactly one of 'problem' and 'within' must be given")
        if (self.within is None) != (self.tasks is None):
            raise ValueError("'tasks' and 'within' go together")
        own = [key for key in ("options", "sampler", "repetitions", "truth_effort") if key in self.model_fields_set]
        if self.within is not None and own:
            raise ValueError(f"{own[0]!r} comes from the problem named by 'within'")
        if self.sampler == "published" and len(self.sizes) > 1:
            raise ValueError("sizes: the published points differ between sizes: give one size")
        return self


class IntegralMethodSpec(Strict):
    """An integrator and its options."""

    integrator: str = Field(
        description="an integrator (`lowvar list integrators`, or `module:function`); if missing, the method's name"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")


class EstimationSpec(Strict):
    """Repetitions of all estimates."""

    repetitions: Count = Field(description="independent sets of points, shared by the methods")
    chunk: Count = Field(25, description="maximum number of repetitions computed at once, and between checkpoints")


class Illustrations(Strict):
    """Computations for figures only."""

    fits: dict[str, Annotated[tuple[str, ...], Different]] = Field(
        default_factory=dict, description="one-dimensional problems, and the methods whose fitted functions are drawn"
    )
    stein_kernels: pydantic.StrictBool = Field(False, description="matrix-valued Stein kernels on a grid")
    epochs: dict[str, Annotated[tuple[str, ...], Different]] = Field(
        default_factory=dict,
        description="problems, and the stochastic methods (with the option `record`) drawn by epoch",
    )
    power_scores: str | None = Field(None, description="a problem with power posteriors, to draw their scores")
    predictive: str | None = Field(None, description="a problem whose posterior predicts observed series, to draw")


class IntegralExperiment(ExperimentSpec):
    """An experiment at one scale: every method on the same points of every problem."""

    family: Literal["integral"]
    problems: Annotated[dict[Name, IntegralProblemSpec], Field(min_length=1)]
    methods: Annotated[dict[Name, IntegralMethodSpec], Field(min_length=1)]
    estimation: EstimationSpec
    illustrate: Illustrations = Illustrations()  # type: ignore[call-arg]
    draw: Annotated[tuple[str, ...], Field(min_length=1), Different] = Field(
        ("errors", "boxes", "split", "seconds"), description="figures; the first opens the report"
    )
    figure_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="keyword arguments of figures, such as `boxes: {of: absolute}`; see their docstrings",
    )

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends of all integrators."""
        return ("torch",)

    def methods_on(self, problem: str) -> dict[str, IntegralMethodSpec]:
        """The methods that run on a problem, with their options for it."""
        chosen = self.problems[problem].methods
        if chosen is None:
            return self.methods
        changed = chosen if isinstance(chosen, dict) else dict.fromkeys(chosen)
        return {
            name: self.methods[name].model_copy(update={"options": merged(self.methods[name].options, options or {})})
            for name, options in changed.items()
        }

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run."""
        return [(problem, method, "torch") for problem in self.problems for method in self.methods_on(problem)]

    def samples(self) -> list[str]:
        """Problems whose points are drawn once, for all methods."""
        return [name for name, spec in self.problems.items() if spec.within is None]

    def drawn_from(self, problem: str) -> str:
        """The problem whose points a problem's runs read: itself, or the one that it is within."""
        return self.problems[problem].within or problem

    def data(self, problem: str) -> Data | None:
        """The prepared data of a problem, None without data."""
        from lowvar_studies.integrals.catalogue import dataset_of

        spec = self.problems[self.drawn_from(problem)]
        dataset = dataset_of(spec.problem or "", spec.options)
        return Data(dataset=dataset, scaling="none") if dataset else None

    def repetitions(self, problem: str) -> int:
        """Independent sets of points of a problem."""
        return self.problems[self.drawn_from(problem)].repetitions or self.estimation.repetitions

    def run(self, problem: str, method: str, backend: str) -> "IntegralRunSpec":
        """The spec of the job that runs ``method`` on ``problem``.

        Raises:
            UserError: this experiment has no such problem, method or backend, or does not combine them.
        """
        self._check(problem=problem, method=method, backend=backend)
        methods = self.methods_on(problem)
        if method not in methods:
            raise UserError(f"experiment {self.name!r} does not run {method!r} on {problem!r}")
        return IntegralRunSpec(
            seed=self.seed,
            name=problem,
            tasks=self.problems[problem].tasks,
            sizes=self.problems[problem].sizes,
            method=methods[method],
            repetitions=self.repetitions(problem),
            chunk=self.estimation.chunk,
        )

    def sample(self, problem: str) -> "SampleSpec":
        """The spec of the job that draws the points of ``problem``.

        Raises:
            UserError: this experiment has no such problem, or it is within another.
        """
        self._check(problem=problem)
        spec = self.problems[problem]
        if spec.problem is None:
            raise UserError(f"experiment {self.name!r}: {problem!r} uses the points of {spec.within!r}: draw those")
        return SampleSpec(
            seed=self.seed,
            name=problem,
            problem=spec.problem,
            options=spec.options,
            sampler=spec.sampler,
            sizes=_largest(spec.sizes),
            repetitions=self.repetitions(problem),
            truth_effort=spec.truth_effort,
        )

    def decompose(self, problem: str) -> Strict:
        """Raises UserError: ``lowvar table`` decomposes errors."""
        raise UserError(f"experiment {self.name!r}: the errors of integrals are decomposed by: lowvar table")

    def run_cost(self, problem: str, method: str, backend: str) -> Cost:
        """A few hundred factorisations of the Gram matrix of all points; stochastic methods take as long."""
        spec = self.problems[problem]
        m = _most(spec.sizes)
        tasks = len(spec.sizes[0]) if isinstance(spec.sizes[0], tuple) else 2
        runs = self.repetitions(problem) * len(spec.sizes)
        return Cost(operations=runs * 200 * (m * tasks) ** 2 * 10, memory=self.estimation.chunk * 12 * (m * tasks) ** 2)

    def sample_cost(self, problem: str) -> Cost:
        """Direct draws are cheap; every step of a Markov chain solves differential equations."""
        m = _most(self.problems[problem].sizes)
        chain = self.data(problem) is not None
        return Cost(operations=self.repetitions(problem) * m * (2e6 if chain else 1e4), memory=1e7)

    def check_names(self, where: str) -> None:
        """Raises UserError for unknown names and unsupported combinations; ``where`` begins the message."""
        from lowvar.integrals import INTEGRAL
        from lowvar_studies.integrals.catalogue import PROBLEMS

        for name, problem in self.problems.items():
            if problem.within is not None:
                known = self.samples()
                check_known("problem", problem.within, known, where=f"{where}: problems.{name}.within")
                size, drawn = _most(problem.sizes), _most(self.problems[problem.within].sizes)
                if size > drawn:
                    raise UserError(
                        f"{where}: problems.{name}.sizes: {size} points, but {problem.within} draws only {drawn}"
                    )
            else:
                origin = problem.problem or ""
                PROBLEMS.entry(origin, where=f"{where}: problems.{name}.problem")
                PROBLEMS.check_options(origin, problem.options, where=f"{where}: problems.{name}.options")
            for method in problem.methods or ():
                check_known("method", method, self.methods, where=f"{where}: problems.{name}.methods")
        for name, method in self.methods.items():
            INTEGRAL.entry(method.integrator, where=f"{where}: methods.{name}")
            INTEGRAL.check_options(method.integrator, method.options, where=f"{where}: methods.{name}.options")
        for name in self.problems:
            for method, spec in self.methods_on(name).items():
                INTEGRAL.check_options(
                    spec.integrator, spec.options, where=f"{where}: problems.{name}.methods.{method}"
                )
        for kind in ("fits", "epochs"):
            for name, methods in getattr(self.illustrate, kind).items():
                self._check_illustrated(name, methods, f"{where}: illustrate.{kind}")
        for kind in ("power_scores", "predictive"):
            if name := getattr(self.illustrate, kind):
                self._check_illustrated(name, (), f"{where}: illustrate.{kind}")
        for figure in self.figure_options:
            check_known("figure", figure, self.draw, where=f"{where}: figure_options")

    def _check_illustrated(self, problem, methods, where):
        check_known("problem", problem, self.problems, where=where)
        if self.problems[problem].within is not None:
            raise UserError(
                f"{where}: {problem!r} is within {self.problems[problem].within!r}: illustrate that problem"
            )
        for method in methods:
            check_known("method", method, self.methods_on(problem), where=f"{where}.{problem}")


class IntegralRunSpec(Strict):
    """A job: one method on one problem, all sizes and repetitions."""

    seed: Seed
    name: str
    tasks: tuple[str, ...] | None
    sizes: Sizes
    method: IntegralMethodSpec
    repetitions: Count
    chunk: Count

    def values_of(self, key: str) -> list[Any]:
        """As ``Strict.values_of``, with sizes as tables have them."""
        return [label(size) for size in self.sizes] if key == "sizes" else super().values_of(key)


def label(size: int | tuple[int, ...]) -> str:
    """The label of a size in tables: ``"20"``, or ``"40/20"`` if tasks differ.

    >>> label(20), label((20, 20)), label((40, 20))
    ('20', '20', '40/20')
    """
    sizes = size if isinstance(size, tuple) else (size,)
    return str(sizes[0]) if len(set(sizes)) == 1 else "/".join(map(str, sizes))


class SampleSpec(Strict):
    """A job: the points of one problem, and the truth of its integrals."""

    seed: Seed
    name: str
    problem: str
    options: dict[str, Any]
    sampler: Sampler | None
    sizes: Count | tuple[Count, ...]
    repetitions: Count
    truth_effort: Count


def _largest(sizes):
    """The largest number of points of each task in ``sizes``: one number, or one for each task."""
    lists = [one if isinstance(one, tuple) else (one,) for one in sizes]
    tasks = max(map(len, lists))
    most = tuple(max(one[t % len(one)] for one in lists) for t in range(tasks))
    return most if tasks > 1 else most[0]


def _most(sizes) -> int:
    """The largest number of points of any task."""
    return max(max(one) if isinstance(one, tuple) else one for one in sizes)
