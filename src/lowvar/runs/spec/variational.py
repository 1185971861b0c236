"""The specs of the family ``variational``: gradient estimators on Bayesian models."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, unknown_name
from lowvar.estimators.gradient.schedules import schedule
from lowvar.runs.spec.common import (
    BackendName,
    Cost,
    Count,
    Data,
    Positive,
    Sparse,
    Strict,
    check_known,
    merged,
    validated,
)


class SplitSpec(Sparse):
    """Rows that are held out, and how many of the others are learnt from."""

    test: Annotated[float, Field(gt=0, lt=1)] = Field(description="share of the rows that is held out")
    train: Annotated[float, Field(gt=0, le=1)] | Annotated[int, Field(ge=2)] | None = Field(
        None, description="share (up to 1.0) or number of the other rows; all of them if not given"
    )


class ModelSpec(Sparse):
    """A model of the catalogue on a prepared dataset."""

    model: str = Field(description="a model of the catalogue")
    dataset: str = Field(description="a dataset of the catalogue")
    scaling: str = Field("minmax", description="of the features")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the model")
    split: SplitSpec | None = Field(None, description="into rows to learn from and rows to predict")


class ProblemSpec(ModelSpec):
    """A model on data, and what is special about its runs."""

    solver: dict[str, Any] = Field(default_factory=dict, description="settings that differ from the experiment's")
    methods: dict[str, dict[str, Any] | None] | None = Field(
        None,
        description="the methods that run on it, each with settings and a tune of its own; all of them if not given",
    )
    decomposition: dict[str, Any] | None = Field(
        default_factory=dict, description="settings that differ from the experiment's; null for none here"
    )


class _Range(Strict):
    """Values that are searched, both ends included."""

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        if not self.low < self.high:  # type: ignore[attr-defined]
            raise ValueError(f"low = {self.low} must be below high = {self.high}")  # type: ignore[attr-defined]
        return self


class StepSizeRange(_Range):
    """Step sizes, searched on a logarithmic scale."""

    low: Positive
    high: Positive


class BetaRange(_Range):
    """Rates of decay of a schedule."""

    low: Annotated[float, Field(gt=0, le=1)]
    high: Annotated[float, Field(gt=0, le=1)]


class PeriodRange(_Range):
    """Whole numbers of steps."""

    low: Count
    high: Count


class TuneSpec(Sparse):
    """Which settings of a method are searched, and where."""

    step_size: StepSizeRange
    beta: BetaRange | None = Field(None, description="of the schedule; kept as it is if not given")
    r: PeriodRange | None = Field(None, description="of a schedule of kind step; kept as it is if not given")

    def lowest(self) -> dict[str, float]:
        """The low ends, by setting: they stand where a spec needs a value before the search has found one."""
        ranges = {"step_size": self.step_size, "beta": self.beta, "r": self.r}
        return {name: one.low for name, one in ranges.items() if one is not None}


class TuningSpec(Sparse):
    """How settings are searched."""

    trials: Count = Field(50, description="runs that are tried, one after another")
    epochs: Count | None = Field(None, description="length of a trial; the solver's if not given")
    repetitions: Count = Field(2, description="independent noise and starts of a trial, apart from those of the runs")


class MethodSpec(Sparse):
    """An estimator, or a solver of its own, with its options."""

    estimator: str
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")
    solver: dict[str, Any] | None = Field(None, description="settings of the solver that go with it")
    tune: TuneSpec | None = Field(None, description="what is searched in place of the solver's settings")


class ScheduleSpec(Sparse):
    """How step sizes fall from one step to the next."""

    kind: Literal["time", "step", "exponential", "piecewise"]
    beta: float | None = Field(None, description="rate of decay, in (0, 1]; not for piecewise")
    r: int | None = Field(None, description="steps between drops, for step")
    values: tuple[tuple[int, float], ...] | None = Field(
        None, description="for piecewise: steps, and the factor from each on"
    )
    rounded: bool | None = Field(
        None, description="whether numbers of points are rounded up to one of some twenty; smooth schedules always are"
    )

    @pydantic.model_validator(mode="after")
    def _possible(self):
        try:
            self.make()
        except UserError as error:
            raise ValueError(str(error)) from error
        return self

    def make(self):
        """The schedule as estimators and optimizers know it."""
        return schedule(self.kind, self.beta, self.r, self.values or (), bool(self.rounded))


class DiagnosticsSpec(Strict):
    """How the error of gradients is measured along a run."""

    draws: Annotated[int, Field(ge=4)] = Field(64, description="fresh estimates at every stop")
    reference: Annotated[int, Field(ge=16)] = Field(
        4096, description="noise points of the gradient that they are compared with, on all the data"
    )


class SolverSpec(Sparse):
    """How a method is run: optimizer, noise, length, repetitions."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    step_sizes: Annotated[tuple[Positive, ...], Field(min_length=1)]
    batch_size: Count
    batches: Literal["reshuffled", "iid", "fixed"] = "reshuffled"
    eps: Literal["iid", "antithetic", "orthogonal", "rqmc"] = "iid"
    samples: Count = Field(1, description="noise points per batch")
    initial: Literal["standard", "origin", "unit"] = Field(
        "standard", description="N(0, 1) parameters, mu = 0 and a small sigma, or mu near 0 and sigma near 1"
    )
    epochs: Count
    repetitions: Count = Field(1, description="independent noise and starts, shared by the methods")
    dtype: Literal["float64", "float32"] = "float64"
    per_decade: Count = Field(12, description="measurements of the ELBO in each decade of epochs")
    elbo_samples: Annotated[int, Field(ge=2)] = Field(
        1000, description="noise points of an ELBO that has no exact form, and of a test log-likelihood"
    )
    schedule: ScheduleSpec | None = Field(None, description="of the step sizes; constant if not given")
    per_row: bool | None = Field(
        None, description="whether step sizes are meant for the ELBO divided by the number of rows; matters to sgd"
    )
    diagnostics: DiagnosticsSpec | None = Field(
        None, description="measures the error of the gradients at every stop; not if not given"
    )

    @pydantic.model_validator(mode="after")
    def _pairs(self):
        if self.eps == "antithetic" and self.samples % 2:
            raise ValueError(f"eps: antithetic needs an even number of samples, not {self.samples}")
        return self


class NoiseSpec(Strict):
    """A way of drawing the noise points of a batch."""

    eps: Literal["iid", "antithetic", "orthogonal", "rqmc"]
    samples: Count


class DecompositionSpec(Strict):
    """Where along which run the gradient variance is taken apart, and how finely."""

    leader: str = Field("joint", description="the method whose run is followed")
    step_size: Positive
    epochs: Count = Field(description="length of the run")
    points_along: Count = Field(6, description="moments of the run, geometrically spaced, besides its end")
    replicates: Annotated[int, Field(ge=4)] = Field(32, description="independent designs; the interval's sample")
    columns: Annotated[int, Field(ge=2)] = Field(8, description="noise points in a design")
    rows: Annotated[int, Field(ge=2)] | None = Field(
        None, description="data rows in a design; all of them if not given"
    )
    methods: tuple[str, ...] | None = Field(
        None, description="which methods; all estimators but recursive ones if not given"
    )
    noises: Annotated[dict[str, NoiseSpec], Field(min_length=1)] | None = Field(
        None, description="noise under which the variance is taken apart; the solver's if not given"
    )


class VariationalExperiment(Strict):
    """One experiment at one scale: every method on every problem, and the variance of their gradients."""

    TABLES: ClassVar = (
        "optimum", "convergence", "best", "ends", "paths", "table2", "table3", "decomposition", "table1", "schemes",
        "measured", "diagnostics", "repair", "fractions", "sensitivity", "selected", "pace",
    )  # fmt: skip
    FIGURES: ClassVar = {
        "shares": "decomposition",
        "along": "decomposition",
        "split_along": "decomposition",
        "convergence": "convergence",
        "iterations": "convergence",
        "steps": "convergence",
        "schemes": "schemes",
        "variance": "diagnostics",
        "snr": "diagnostics",
        "points": "diagnostics",
        "test": "diagnostics",
        "rates": "diagnostics",
        "work": "convergence",
        "sizes": "fractions",
        "sensitivity": "sensitivity",
        "cost": "seconds",
        "seconds": "seconds",
    }

    name: str
    title: str
    family: Literal["variational"] = "variational"
    seed: int = 0
    problems: Annotated[dict[str, ProblemSpec], Field(min_length=1)]
    backends: Annotated[tuple[BackendName, ...], Field(min_length=1)] = ("jax",)
    methods: Annotated[dict[str, MethodSpec], Field(min_length=1)]
    solver: SolverSpec
    decomposition: DecompositionSpec | None = None
    tuning: TuningSpec | None = Field(None, description="how what methods tune is searched")

    @pydantic.model_serializer(mode="wrap")
    def _without_tuning(self, handler):
        dumped = handler(self)
        return {key: value for key, value in dumped.items() if key != "tuning" or value is not None}

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that its runs are gathered into."""
        there = {
            "decomposition": bool(self.decompositions()), "table1": bool(self.decompositions()),
            "schemes": self._noises(),
        }  # fmt: skip
        looked_at = self._looked_at()
        there |= dict.fromkeys(("measured", "diagnostics", "repair"), bool(looked_at))
        there |= dict.fromkeys(("selected", "pace"), "points" in looked_at)
        there |= {name: name in looked_at for name in ("fractions", "sensitivity")}
        return tuple(name for name in self.TABLES if there.get(name, True))

    @property
    def figures(self) -> dict[str, str]:
        """Its figures, and the table that each is drawn from."""
        looked_at = self._looked_at()
        there = {name: name in looked_at for name in ("points", "test", "rates")}
        there |= dict.fromkeys(("variance", "snr"), "errors" in looked_at)
        there |= {"work": bool(looked_at), "cost": "points" in looked_at}
        of_tables = {kind: of for kind, of in self.FIGURES.items() if of in (*self.tables, "seconds")}
        return {kind: of for kind, of in of_tables.items() if there.get(kind, True)}

    def _looked_at(self) -> set[str]:
        """What is measured of runs beside the ELBO: ``errors`` of gradients, ``points``, ``test`` rows.

        And what varies: ``rates`` says that several step sizes are tried on rows for a test, ``fractions`` that several
        shares of one dataset are learnt from, ``sensitivity`` that there are several schedules on one problem.
        """
        solvers = {(p, m): self.solver_on(p, m) for p in self.problems for m in self.methods_on(p)}
        splits = [(spec.model, spec.dataset, spec.split.train) for spec in self.problems.values() if spec.split]
        plans = {(p, solver.schedule) for (p, _), solver in solvers.items() if solver.schedule is not None}
        found = {"errors"} if any(solver.diagnostics for solver in solvers.values()) else set()
        found |= {"points"} if plans else set()
        found |= {"test"} if splits else set()
        found |= {"rates"} if splits and any(len(solver.step_sizes) > 1 for solver in solvers.values()) else set()
        found |= {"fractions"} if len(set(splits)) > len({one[:2] for one in splits}) else set()
        per_problem = [sum(p == problem for p, _ in plans) for problem in self.problems]
        return found | ({"sensitivity"} if max(per_problem) > 3 else set())

    def _noises(self) -> bool:
        """Whether any variance is taken apart under several ways of drawing noise."""
        return any(self.decomposition_on(problem).noises for problem in self.decompositions())

    @property
    def headline(self) -> str:
        """The figure that answers its question at a glance."""
        if self.decompositions():
            return "shares"
        looked_at = self._looked_at()
        chosen = {"fractions": "sizes", "sensitivity": "sensitivity", "errors": "variance"}
        return next((kind for what, kind in chosen.items() if what in looked_at), "convergence")

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run."""
        return [(p, m, b) for p in self.problems for m in self.methods_on(p) for b in self.backends]

    def methods_on(self, problem: str) -> list[str]:
        """The methods that run on a problem, in the experiment's order."""
        chosen = self.problems[problem].methods
        return [method for method in self.methods if chosen is None or method in chosen]

    def samples(self) -> list[str]:
        """Problems whose points are drawn beforehand: none, runs draw their noise by name."""
        return []

    def drawn_from(self, problem: str) -> None:
        """The problem whose points a problem's runs read: none."""

    def studies(self) -> list[tuple[str, str, str]]:
        """The runs whose settings are searched for first."""
        return [(p, m, b) for p, m, b in self.runs() if self.tune_on(p, m) is not None]

    def tune_on(self, problem: str, method: str) -> TuneSpec | None:
        """What a method searches on a problem, if anything.

        Raises:
            UserError: a range that is out of range, or no range of step sizes; the message says where it stands.
        """
        general, own = self.methods[method].tune, (self.problems[problem].methods or {}).get(method) or {}
        values = own.get("tune", general)
        if values is None or isinstance(values, TuneSpec):
            return values
        if general and isinstance(values, Mapping):
            values = merged(general.model_dump(), values)
        return validated(TuneSpec, values, where=f"problems.{problem}.methods.{method}.tune")

    def decompositions(self) -> list[str]:
        """Problems whose gradient variance is taken apart."""
        if self.decomposition is None:
            return []
        return [name for name, problem in self.problems.items() if problem.decomposition is not None]

    def data(self, problem: str) -> Data:
        """The prepared data of a problem."""
        spec = self.problems[problem]
        return Data(dataset=spec.dataset, scaling=spec.scaling)

    def dtype(self, problem: str) -> str:
        """The floating type that a problem's jobs compute in."""
        return self.solver_on(problem).dtype

    def model(self, problem: str) -> ModelSpec:
        """The model and data of a problem."""
        spec = self.problems[problem]
        return ModelSpec(**{key: getattr(spec, key) for key in ModelSpec.model_fields})

    def solver_on(self, problem: str, method: str | None = None) -> SolverSpec:
        """The settings of a problem's runs, or of those of one method.

        Settings that the method tunes are at their low ends.

        Raises:
            UserError: a setting that does not exist or is out of range; the message says where it stands.
        """
        spec, values, where = self.problems[problem], self.solver.model_dump(), f"problems.{problem}.solver"
        values = merged(values, spec.solver)
        if method and (of_method := self.methods[method].solver):
            values, where = merged(values, of_method), f"methods.{method}.solver"
        own = {key: value for key, value in ((spec.methods or {}).get(method or "") or {}).items() if key != "tune"}
        if own:
            values, where = merged(values, own), f"problems.{problem}.methods.{method}"
        if method and (tune := self.tune_on(problem, method)):
            values = _with_choice(values, tune.lowest(), where=f"problems.{problem}.methods.{method}.tune")
        return validated(SolverSpec, values, where=where)

    def decomposition_on(self, problem: str) -> DecompositionSpec:
        """The settings of a problem's decomposition.

        Raises:
            UserError: as ``solver_on``.
        """
        general = self.decomposition.model_dump() if self.decomposition else {}
        values = merged(general, self.problems[problem].decomposition or {})
        return validated(DecompositionSpec, values, where=f"problems.{problem}.decomposition")

    def decomposed_methods(self, problem: str) -> list[str]:
        """The methods whose variance is taken apart on a problem."""
        from lowvar.estimators import GRADIENT, RECURSIVE

        chosen = self.decomposition_on(problem).methods
        methods = self.methods_on(problem) if chosen is None else chosen
        return [name for name in methods if self.methods[name].estimator in set(GRADIENT) - RECURSIVE]

    def run(self, problem: str, method: str, backend: str) -> "RunSpec":
        """The spec of the job that runs ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: this experiment has no such problem, method or backend, or the method does not run on it.
        """
        check_known(self, problem=problem, method=method, backend=backend)
        if method not in self.methods_on(problem):
            raise unknown_name("method", method, self.methods_on(problem), where=f"problems.{problem}.methods")
        return RunSpec(
            seed=self.seed,
            name=problem,
            problem=self.model(problem),
            method=self._method(method),
            backend=backend,  # type: ignore[arg-type]
            solver=self.solver_on(problem, method),
            study=self.tune(problem, method, backend).hash if self.tune_on(problem, method) else None,
        )

    def tune(self, problem: str, method: str, backend: str) -> "TuneJob":
        """The spec of the job that searches settings of ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: as ``run``, or the method tunes nothing there.
        """
        check_known(self, problem=problem, method=method, backend=backend)
        if method not in self.methods_on(problem):
            raise unknown_name("method", method, self.methods_on(problem), where=f"problems.{problem}.methods")
        ranges, tuning = self.tune_on(problem, method), self.tuning or TuningSpec()  # type: ignore[call-arg]
        if ranges is None:
            raise UserError(f"experiment {self.name!r} tunes nothing of {method!r} on {problem!r}: no key 'tune'")
        solver = self.solver_on(problem, method)
        alone = {"repetitions": tuning.repetitions, "per_decade": 1, "diagnostics": None}
        return TuneJob(
            seed=self.seed,
            name=problem,
            problem=self.model(problem),
            method=self._method(method),
            backend=backend,  # type: ignore[arg-type]
            solver=solver.model_copy(update={**alone, "epochs": tuning.epochs or solver.epochs}),
            ranges=ranges,
            trials=tuning.trials,
        )

    def _method(self, name):
        """A method alone: its settings are the run's solver's, what it tunes is no part of a run."""
        return self.methods[name].model_copy(update={"tune": None, "solver": None})

    def decompose(self, problem: str) -> "DecompositionJob":
        """The spec of the job that decomposes the variance of every method on ``problem``.

        Raises:
            UserError: this experiment has no such problem, or no decomposition of it.
        """
        check_known(self, problem=problem)
        if problem not in self.decompositions():
            raise UserError(f"experiment {self.name!r} takes no variance apart on {problem!r}")
        spec = self.decomposition_on(problem)
        alone = {"step_sizes": (spec.step_size,), "epochs": spec.epochs, "repetitions": 1, "elbo_samples": 2}
        return DecompositionJob(
            seed=self.seed,
            name=problem,
            problem=self.model(problem),
            methods={name: self._method(name) for name in (*self.decomposed_methods(problem), spec.leader)},
            solver=self.solver_on(problem, spec.leader).model_copy(update=alone),
            decomposition=spec,
        )

    def run_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Every lane (step size x repetition) sees the data once an epoch."""
        cells, solver = _cells(self.problems[problem]), self.solver_on(problem, method)
        lanes = len(solver.step_sizes) * solver.repetitions
        slower = 20 if backend == "torch" else 1
        return Cost(operations=slower * lanes * solver.epochs * solver.samples * cells, memory=40 * cells)

    def tune_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Trials are runs of their own, one after another."""
        job, run = self.tune(problem, method, backend), self.run_cost(problem, method, backend)
        solver = self.solver_on(problem, method)
        lengths = job.solver.epochs * job.solver.repetitions / (solver.epochs * solver.repetitions)
        return Cost(operations=job.trials * lengths * run.operations, memory=run.memory)

    def decompose_cost(self, problem: str) -> Cost:
        """The run that is followed, then every design of every method at every point."""
        cells, d = _cells(self.problems[problem]), self.decomposition_on(problem)
        designs = len(self.decomposed_methods(problem)) * (d.points_along + 1) * d.replicates * d.columns
        return Cost(operations=(d.epochs + designs) * cells, memory=400 * cells)

    def check_names(self, where: str) -> None:
        """Refuses models, datasets, methods and settings that do not exist; ``where`` starts the message."""
        from lowvar.datasets.catalogue import DATASETS
        from lowvar.datasets.prepare import SCALINGS
        from lowvar.estimators import GRADIENT
        from lowvar.problems.catalogue import MODELS
        from lowvar.solvers import OWN

        for name, problem in self.problems.items():
            here = f"{where}: problems.{name}"
            for kind, value, known in (
                ("problem", problem.model, MODELS),
                ("dataset", problem.dataset, DATASETS),
                ("scaling", problem.scaling, SCALINGS),
            ):
                if value not in known:
                    key = "model" if kind == "problem" else kind
                    raise unknown_name(kind, value, known, where=f"{here}.{key}")
            for method in problem.methods or {}:
                if method not in self.methods:
                    raise unknown_name("method", method, self.methods, where=f"{here}.methods")
        for name, method in self.methods.items():
            if method.estimator not in (known := {**GRADIENT, **OWN}):
                raise unknown_name("estimator", method.estimator, known, where=f"{where}: methods.{name}.estimator")
        try:
            for problem, method, _ in self.runs():
                self.solver_on(problem, method)
            for problem in self.decompositions():
                self._check_decomposition(problem)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error.__cause__

    def _check_decomposition(self, problem: str) -> None:
        from lowvar.estimators import GRADIENT, RECURSIVE

        spec = self.decomposition_on(problem)
        for key, names in (("leader", (spec.leader,)), ("methods", spec.methods or ())):
            for name in names:
                if name not in self.methods:
                    raise unknown_name("method", name, self.methods, where=f"decomposition.{key}")
                if self.methods[name].estimator in RECURSIVE:
                    raise UserError(
                        f"decomposition.{key}: {name!r} keeps errors of its past, which no variance shows; "
                        "measure its error along its own run, with solver.diagnostics"
                    )
        if self.methods[spec.leader].estimator not in GRADIENT:
            raise UserError(f"decomposition.leader: {spec.leader!r} is no estimator, but a solver of its own")
        if (tune := self.tune_on(problem, spec.leader)) and (tune.beta or tune.r):
            raise UserError(f"decomposition.leader: {spec.leader!r} tunes its schedule on {problem!r}; take another")


class RunSpec(Sparse):
    """A job: one method on one problem, all step sizes and repetitions.

    Attributes:
        study: hash of the job that searches its settings; until it is there, they are at their low ends.
    """

    seed: int
    name: str
    problem: ModelSpec
    method: MethodSpec
    backend: BackendName
    solver: SolverSpec
    study: str | None = None

    def at(self, choice: Mapping[str, float]) -> "RunSpec":
        """With the settings that a study chose."""
        return self.model_copy(update={"solver": _at(self.solver, choice)})


class TuneJob(Strict):
    """A job: the settings of one method on one problem, by trials."""

    seed: int
    name: str
    problem: ModelSpec
    method: MethodSpec
    backend: BackendName
    solver: SolverSpec
    ranges: TuneSpec
    trials: int

    def trial(self, choice: Mapping[str, float]) -> RunSpec:
        """The run that tries a choice: under a name of its own, so its noise and starts are not those of the runs.

        Numbers of points are rounded up to a few, for which programs are made once.
        """
        solver = _at(self.solver, choice)
        if solver.schedule is not None:
            schedule = solver.schedule.model_copy(update={"rounded": True})
            solver = solver.model_copy(update={"schedule": schedule})
        return RunSpec(
            seed=self.seed,
            name=f"{self.name}/tuning",
            problem=self.problem,
            method=self.method,
            backend=self.backend,
            solver=solver,
        )


class DecompositionJob(Strict):
    """A job: the variance of every method along one run on one problem."""

    seed: int
    name: str
    problem: ModelSpec
    methods: dict[str, MethodSpec]
    solver: SolverSpec
    decomposition: DecompositionSpec


def _at(solver, choice):
    """A solver's settings at a choice of them."""
    return validated(SolverSpec, _with_choice(solver.model_dump(), choice, where="study"), where="study")


def _with_choice(values, choice, *, where):
    """The values of a solver with the chosen step size, and the chosen settings of its schedule."""
    values = {**values, "step_sizes": (choice["step_size"],)}
    falls = {name: value for name, value in choice.items() if name != "step_size"}
    if falls:
        if not isinstance(values.get("schedule"), Mapping):
            raise UserError(f"{where}.{next(iter(falls))}: the solver has no schedule; give it one: schedule.kind")
        values["schedule"] = {**values["schedule"], **falls}
    return values


def _cells(problem):
    """Numbers in a dataset, about: its raw files have some five bytes for each."""
    from lowvar.datasets.catalogue import DATASETS

    return sum(file.bytes for file in DATASETS[problem.dataset].files) / 5 or 20_000
