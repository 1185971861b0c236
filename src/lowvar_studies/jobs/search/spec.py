"""Specs of the family ``search``: black-box search, and the variance of its gradients."""

import math
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, check_known
from lowvar_studies.jobs.common_spec import (
    BackendName,
    BackendNames,
    Cost,
    Count,
    Different,
    ExperimentSpec,
    Name,
    Positive,
    Scheme,
    Seed,
    Strict,
)

# log10 of the targets (gaps)
TARGET_EXPONENTS = tuple(step / 5 for step in range(20, -51, -1))
TARGET = 10.0 ** TARGET_EXPONENTS[-1]  # the last target, as in the paper's curves

Baseline = Literal["none", "mean", "centre"]
_NO_OPTIONS = {  # arguments of a problem's factory that have keys of their own
    "dim": "give it beside 'function'",
    "name": "the key of a problem is its name",
    "backend": "give it in 'backends'",
}
_POLICY_STEP = 1e6  # operations of an episode of a simulated robot


class SearchProblemSpec(Strict):
    """A function of the catalogue."""

    function: str = Field(description="a function; `lowvar list functions`")
    dim: Count | None = Field(None, description="coordinates of a point; a policy's are implied")
    options: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of its factory: `rotation`, `shift`, ..."
    )
    population: Count | None = Field(None, description="points of a generation, for methods that specify none")
    methods: Annotated[tuple[str, ...], Field(min_length=1), Different] | None = Field(
        None, description="the methods that run on it; all if null"
    )
    budget: Count | None = Field(None, description="evaluations of a run, in place of `search.budget`")


class SearchMethodSpec(Strict):
    """A solver and its options."""

    solver: str = Field(
        description="a search, ours or a peer (`lowvar list searches`, or `module:function`); if missing, the method's "
        "name"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")
    budget: Count | None = Field(None, description="evaluations of a run, in place of the problem's")
    repetitions: Count | None = Field(None, description="in place of `search.repetitions`, for a slow method")


class SearchSettings(Strict):
    """Settings of all runs."""

    budget: Count = Field(description="evaluations of a run")
    repetitions: Count = Field(1, description="independent noise and starts, shared by the methods")
    sigma0: Positive | None = Field(None, description="initial standard deviation; the problem's if null")
    target: Positive = Field(TARGET, description="gap that counts as solved, in `ends` and `metrics.json`")
    early_stop: pydantic.StrictBool = Field(
        True, description="end when every repetition has met the last target, 1e-10"
    )

    @pydantic.model_validator(mode="after")
    def _watched(self):
        exponent = math.log10(self.target)
        if not any(math.isclose(exponent, one, abs_tol=2e-7) for one in TARGET_EXPONENTS):
            first, second, *_, last = TARGET_EXPONENTS
            raise ValueError(
                f"target {self.target:g}: it must be 1e{first:g}, .., 1e{last:g} in steps of 10^{first - second:.1g}, "
                "as the targets of runs"
            )
        return self


class GradientVarianceSpec(Strict):
    """Decomposition of the variance of search gradients under Gaussians."""

    problems: Annotated[tuple[str, ...], Field(min_length=1), Different] = Field(
        description="the problems on which the variance of the gradient is decomposed"
    )
    sigmas: Annotated[tuple[Positive, ...], Field(min_length=1), Different] = Field(
        (0.5, 0.05, 0.005), description="standard deviations of the distribution"
    )
    populations: Annotated[tuple[Annotated[int, Field(ge=2, strict=True)], ...], Field(min_length=1), Different] = (
        Field(description="points of a generation; even with `antithetic`")
    )
    schemes: Annotated[tuple[Scheme, ...], Different] = Field(
        ("iid", "antithetic", "orthogonal", "rqmc"), description="noise schemes; `iid` must be among them"
    )
    baselines: Annotated[tuple[Baseline, ...], Different] = Field(
        ("none", "mean", "centre"), description="baselines subtracted from the values"
    )
    replicates: Annotated[int, Field(ge=50, strict=True)] = Field(
        2000, description="independent estimates of each combination"
    )

    @pydantic.model_validator(mode="after")
    def _compared(self):
        if not self.baselines:
            raise ValueError("baselines: it must name at least one")
        if "iid" not in self.schemes:
            raise ValueError("schemes: iid is required, because the others are compared with it")
        if "antithetic" in self.schemes and any(n % 2 for n in self.populations):
            raise ValueError("populations: they must be even, because antithetic points come in pairs")
        return self


class RatesSpec(Strict):
    """Rates of convergence: slopes of log error against the log of the number of generations."""

    first: Annotated[int, Field(ge=2, strict=True)] = Field(
        description="generation from which slopes of log error against log generations are fitted"
    )


class SearchExperiment(ExperimentSpec):
    """An experiment at one scale: methods that minimise functions."""

    family: Literal["search"]
    problems: Annotated[dict[Name, SearchProblemSpec], Field(min_length=1)]
    backends: BackendNames = Field(
        ("jax",), description="array libraries of our searches; a peer runs once, under its own first one"
    )
    methods: Annotated[dict[Name, SearchMethodSpec], Field(min_length=1)]
    search: SearchSettings
    decomposition: GradientVarianceSpec | None = Field(None, description="of the search gradient; none if null")
    rates: RatesSpec | None = Field(None, description="fits rates of convergence, on problems with known optimum")
    groups: dict[str, Annotated[tuple[str, ...], Field(min_length=1), Different]] | None = Field(
        None, description="problems that the figure `groups` pools, by the name of a group"
    )
    draw: Annotated[tuple[str, ...], Different] = Field(
        ("effort", "curves", "profiles", "seconds"), description="figures; the first opens the report"
    )

    @pydantic.model_serializer(mode="wrap")
    def _without_groups(self, handler):
        """Omits ``groups`` where there are none: the hashes of experiments without them stay as they were."""
        return {key: value for key, value in handler(self).items() if key != "groups" or value is not None}

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run; a search without any of ``backends`` runs on its own first one."""
        chosen = {method: self._backends(method) for method in self.methods}
        return [
            (name, method, backend)
            for name, problem in self.problems.items()
            for method in problem.methods or self.methods
            for backend in chosen[method]
        ]

    def _backends(self, method: str) -> list[str]:
        from lowvar.search.solvers import SEARCH

        known = SEARCH.about(self.methods[method].solver).backends
        return [backend for backend in self.backends if backend in known] or list(known[:1])

    def decompositions(self) -> list[str]:
        """Problems whose gradient variance is decomposed."""
        return list(self.decomposition.problems) if self.decomposition else []

    def budget(self, problem: str, method: str) -> int:
        """Evaluations of a run: the method's budget, else the problem's, else the experiment's."""
        return self.methods[method].budget or self.problems[problem].budget or self.search.budget

    def repetitions(self, method: str) -> int:
        """Repetitions of a method on a problem."""
        return self.methods[method].repetitions or self.search.repetitions

    def run(self, problem: str, method: str, backend: str) -> "SearchRunSpec":
        """The spec of the job that runs ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: this experiment has no such problem, method or backend, or does not combine them.
        """
        self._check(problem=problem, method=method)
        if method not in (self.problems[problem].methods or self.methods) or backend not in self._backends(method):
            if backend not in {of for *_, of in self.runs()}:
                self._check(backend=backend)
            raise UserError(f"experiment {self.name!r} does not run {method!r} on {problem!r} in {backend}")
        return SearchRunSpec(
            seed=self.seed,
            name=problem,
            problem=self.problems[problem].model_copy(update={"methods": None, "budget": None}),
            method=self.methods[method].model_copy(update={"budget": None, "repetitions": None}),
            backend=backend,  # type: ignore[arg-type]
            search=self.search.model_copy(
                update={"budget": self.budget(problem, method), "repetitions": self.repetitions(method)}
            ),
        )

    def decompose(self, problem: str) -> "GradientVarianceJob":
        """The spec of the job that decomposes the variance of the search gradient on ``problem``.

        Raises:
            UserError: this experiment does not decompose it.
        """
        self._check(problem=problem)
        if self.decomposition is None or problem not in self.decomposition.problems:
            raise UserError(f"experiment {self.name!r}: decomposition.problems does not have {problem!r}")
        return GradientVarianceJob(
            seed=self.seed,
            name=problem,
            problem=self.problems[problem].model_copy(update={"methods": None, "budget": None}),
            decomposition=self.decomposition.model_copy(update={"problems": (problem,)}),
        )

    def run_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Each evaluation reads every coordinate a few times; an episode of a robot costs far more."""
        dim = self.problems[problem].dim
        each = 20 * dim if dim else _POLICY_STEP
        slower = 20 if backend == "torch" else 1
        runs = self.repetitions(method)
        return Cost(operations=slower * runs * self.budget(problem, method) * each, memory=runs * (dim or 1000) ** 2)

    def decompose_cost(self, problem: str) -> Cost:
        """Every estimate of every combination, twice (odd and even part)."""
        d, dim = self.decomposition, self.problems[problem].dim or 1000
        if d is None:
            return Cost(operations=0, memory=0)
        kinds = len(d.schemes) * len(d.baselines) * len(d.sigmas)
        return Cost(operations=kinds * sum(d.populations) * d.replicates * dim * 40, memory=1e7)

    def check_names(self, where: str) -> None:
        """Raises UserError for unknown names and unsupported combinations; ``where`` begins the message."""
        from lowvar.search.solvers import SEARCH
        from lowvar_studies.functions.catalogue import FUNCTIONS

        for name, problem in self.problems.items():
            FUNCTIONS.entry(problem.function, where=f"{where}: problems.{name}.function")
            for key, instead in _NO_OPTIONS.items():
                if key in problem.options:
                    raise UserError(f"{where}: problems.{name}.options: {key!r} is not an option: {instead}")
            FUNCTIONS.check_options(problem.function, problem.options, where=f"{where}: problems.{name}.options")
            for method in problem.methods or ():
                check_known("method", method, self.methods, where=f"{where}: problems.{name}.methods")
        for group, members in (self.groups or {}).items():
            for member in members:
                check_known("problem", member, self.problems, where=f"{where}: groups.{group}")
        for name, method in self.methods.items():
            SEARCH.entry(method.solver, where=f"{where}: methods.{name}.solver")
            SEARCH.check_options(method.solver, method.options, where=f"{where}: methods.{name}.options")
        for name, problem in self.problems.items():
            kind, program = FUNCTIONS.about(problem.function).domain, FUNCTIONS.about(problem.function).program
            for method in problem.methods or self.methods:
                searched = SEARCH.about(self.methods[method].solver).domains
                if kind not in searched:
                    raise UserError(
                        f"{where}: problems.{name}: method {method!r} searches {' and '.join(searched)} domains, and "
                        f"{problem.function} has a {kind} one: list the methods to run in problems.{name}.methods"
                    )
                if SEARCH.about(self.methods[method].solver).gradients and not program:
                    raise UserError(
                        f"{where}: problems.{name}: method {method!r} needs gradients, and {problem.function} has "
                        f"values from a simulator: list the methods to run in problems.{name}.methods"
                    )
        for name in self.decompositions():
            check_known("problem", name, self.problems, where=f"{where}: decomposition.problems")
            about = FUNCTIONS.about(self.problems[name].function)
            if about.domain != "real" or not about.program:
                what = f"a {about.domain} domain" if about.domain != "real" else "values from a simulator"
                raise UserError(
                    f"{where}: decomposition.problems: {name!r} has {what}: the decomposition needs a function of "
                    "real numbers that is an array program"
                )


class SearchRunSpec(Strict):
    """A job: one method on one function, all repetitions."""

    seed: Seed
    name: str
    problem: SearchProblemSpec
    method: SearchMethodSpec
    backend: BackendName
    search: SearchSettings


class GradientVarianceJob(Strict):
    """A job: the variance of the search gradient on one function."""

    seed: Seed
    name: str
    problem: SearchProblemSpec
    decomposition: GradientVarianceSpec
