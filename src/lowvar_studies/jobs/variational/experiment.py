"""An experiment of the family ``variational``: gradient estimators on Bayesian models."""

from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, check_known
from lowvar_studies.jobs.common_spec import BackendNames, Cost, Data, ExperimentSpec, Name, merged, validated
from lowvar_studies.jobs.variational.spec import (
    DecompositionJob,
    DecompositionSpec,
    MethodSpec,
    ModelSpec,
    ProblemSpec,
    RunSpec,
    SolverSpec,
    TuneJob,
    TuneSpec,
    TuningSpec,
    with_choice,
)


class VariationalExperiment(ExperimentSpec):
    """An experiment at one scale: methods on problems, and the variance of their gradients."""

    family: Literal["variational"] = "variational"
    problems: Annotated[dict[Name, ProblemSpec], Field(min_length=1)]
    backends: BackendNames = Field(("jax",), description="array libraries; each runs every method")
    methods: Annotated[dict[Name, MethodSpec], Field(min_length=1)]
    solver: SolverSpec
    decomposition: DecompositionSpec | None = Field(None, description="of the gradient's variance; none if null")
    tuning: TuningSpec | None = Field(None, description="the search for tuned settings")

    @pydantic.model_serializer(mode="wrap")
    def _without_tuning(self, handler):
        dumped = handler(self)
        return {key: value for key, value in dumped.items() if key != "tuning" or value is not None}

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run."""
        return [(p, m, b) for p in self.problems for m in self.methods_on(p) for b in self.backends]

    def methods_on(self, problem: str) -> list[str]:
        """The methods that run on a problem, in the experiment's order."""
        chosen = self.problems[problem].methods
        return [method for method in self.methods if chosen is None or method in chosen]

    def studies(self):
        """The runs whose settings are tuned."""
        return [run for run in self.runs() if self.study_of(*run) == run]

    def study_of(self, problem, method, backend):
        """The run itself, or that of the method that it is ``same_as``; None without tuning."""
        tune = self.tune_on(problem, method)
        return None if tune is None else (problem, tune.same_as or method, backend)

    def tune_on(self, problem: str, method: str) -> TuneSpec | None:
        """The tuning of a method on a problem, if any.

        Raises:
            UserError: an invalid range, or no range of step sizes; the message names the key.
        """
        general, own = self.methods[method].tune, (self.problems[problem].methods or {}).get(method) or {}
        values = own.get("tune", general)
        if values is None or isinstance(values, TuneSpec):
            return values
        if general and isinstance(values, Mapping) and not general.same_as and "same_as" not in values:
            values = merged(general.model_dump(), values)
        return validated(TuneSpec, values, where=f"problems.{problem}.methods.{method}.tune")

    def _ranges(self, problem, method) -> TuneSpec | None:
        """The ranges from which a method's settings on a problem are tuned, its own or those of its ``same_as``.

        Raises:
            UserError: its ``same_as`` is not tuned on this problem.
        """
        tune = self.tune_on(problem, method)
        if tune is None or tune.same_as is None:
            return tune
        where, runs = f"problems.{problem}.methods.{method}.tune.same_as", self.methods_on(problem)
        check_known("method", tune.same_as, runs, where=where)
        theirs = self.tune_on(problem, tune.same_as)
        if theirs is None or theirs.same_as:
            raise UserError(f"{where}: {tune.same_as!r} tunes no settings of its own on {problem!r}")
        return theirs

    def decompositions(self) -> list[str]:
        """Problems whose gradient variance is decomposed."""
        if self.decomposition is None:
            return []
        return [name for name, problem in self.problems.items() if problem.decomposition is not None]

    def data(self, problem: str) -> Data:
        """The prepared data of a problem."""
        spec = self.problems[problem]
        return Data(dataset=spec.dataset, scaling=spec.scaling)

    def dtype(self, problem: str) -> str:
        """The floating-point type of a problem's jobs."""
        return self.solver_on(problem).dtype

    def model(self, problem: str) -> ModelSpec:
        """The model and data of a problem."""
        spec = self.problems[problem]
        return ModelSpec(**{key: getattr(spec, key) for key in ModelSpec.model_fields})

    def solver_on(self, problem: str, method: str | None = None) -> SolverSpec:
        """The solver settings of a problem's runs, or of one method's.

        Tuned settings have the lower ends of their ranges.

        Raises:
            UserError: an unknown setting or one out of range; the message names the key.
        """
        spec, values, where = self.problems[problem], self.solver.model_dump(), f"problems.{problem}.solver"
        values = merged(values, spec.solver)
        if method and (of_method := self.methods[method].solver):
            values, where = merged(values, of_method), f"methods.{method}.solver"
        own = {key: value for key, value in ((spec.methods or {}).get(method or "") or {}).items() if key != "tune"}
        if own:
            values, where = merged(values, own), f"problems.{problem}.methods.{method}"
        if method and (tune := self._ranges(problem, method)):
            values = with_choice(values, tune.lowest(), where=f"problems.{problem}.methods.{method}.tune")
        return validated(SolverSpec, values, where=where)

    def decomposition_on(self, problem: str) -> DecompositionSpec:
        """The settings of a problem's decomposition.

        Raises:
            UserError: as in ``solver_on``.
        """
        general = self.decomposition.model_dump() if self.decomposition else {}
        values = merged(general, self.problems[problem].decomposition or {})
        return validated(DecompositionSpec, values, where=f"problems.{problem}.decomposition")

    def decomposed_methods(self, problem: str) -> list[str]:
        """The methods whose variance is decomposed on a problem."""
        from lowvar.vi.estimators import GRADIENT
        from lowvar_studies.estimators import OWN

        chosen = self.decomposition_on(problem).methods
        methods = self.methods_on(problem) if chosen is None else chosen
        estimators = {name: self.methods[name].estimator for name in methods}
        return [name for name, one in estimators.items() if one not in OWN and not GRADIENT.about(one).recursive]

    def run(self, problem: str, method: str, backend: str) -> "RunSpec":
        """The spec of the job that runs ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: this experiment has no such problem, method or backend, or the method does not run on it.
        """
        self._check_run(problem, method, backend)
        return RunSpec(
            seed=self.seed,
            name=problem,
            problem=self.model(problem),
            method=self._method(method),
            backend=backend,  # type: ignore[arg-type]
            solver=self.solver_on(problem, method),
            study=self.tune(*searched).hash if (searched := self.study_of(problem, method, backend)) else None,
        )

    def tune(self, problem: str, method: str, backend: str) -> "TuneJob":
        """The spec of the job that tunes ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: as in ``run``, or the method is not tuned on this problem.
        """
        self._check_run(problem, method, backend)
        ranges, tuning = self.tune_on(problem, method), self.tuning or TuningSpec()  # type: ignore[call-arg]
        if ranges is None:
            raise UserError(f"experiment {self.name!r} does not tune {method!r} on {problem!r}: no key 'tune'")
        if ranges.same_as:
            raise UserError(f"{method!r} has the settings of {ranges.same_as!r} on {problem!r}: tune that method")
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

    def _check_run(self, problem, method, backend):
        """Raises UserError unless the experiment has this run."""
        self._check(problem=problem, method=method, backend=backend)
        check_known("method", method, self.methods_on(problem), where=f"problems.{problem}.methods")

    def _method(self, name):
        """A method without its solver settings, which the run's solver has, and without its tuning."""
        return self.methods[name].model_copy(update={"tune": None, "solver": None})

    def decompose(self, problem: str) -> "DecompositionJob":
        """The spec of the job that decomposes the variance of every method on ``problem``.

        Raises:
            UserError: this experiment has no such problem, or no decomposition of it.
        """
        self._check(problem=problem)
        if problem not in self.decompositions():
            raise UserError(f"experiment {self.name!r} decomposes no variance on {problem!r}")
        spec = self.decomposition_on(problem)
        alone = {"step_sizes": (spec.step_size,), "epochs": spec.epochs}
        alone |= {"repetitions": spec.repetitions, "elbo_samples": 2}
        return DecompositionJob(
            seed=self.seed,
            name=problem,
            problem=self.model(problem),
            methods={name: self._method(name) for name in (*self.decomposed_methods(problem), spec.leader)},
            solver=self.solver_on(problem, spec.leader).model_copy(update=alone),
            decomposition=spec,
        )

    def run_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Every run (step size x repetition) reads the data once per epoch."""
        cells, solver = _cells(self.problems[problem]), self.solver_on(problem, method)
        runs = len(solver.step_sizes) * solver.repetitions
        slower = 20 if backend == "torch" else 1
        return Cost(operations=slower * runs * solver.epochs * solver.particles * cells, memory=40 * cells)

    def tune_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Trials are runs, one after another."""
        job, run = self.tune(problem, method, backend), self.run_cost(problem, method, backend)
        solver = self.solver_on(problem, method)
        lengths = job.solver.epochs * job.solver.repetitions / (solver.epochs * solver.repetitions)
        return Cost(operations=job.trials * lengths * run.operations, memory=run.memory)

    def decompose_cost(self, problem: str) -> Cost:
        """The leader's run, then every design of every method at every moment."""
        cells, d = _cells(self.problems[problem]), self.decomposition_on(problem)
        designs = len(self.decomposed_methods(problem)) * (d.points_along + 2) * d.replicates * d.columns
        return Cost(operations=d.repetitions * (d.epochs + designs) * cells, memory=400 * cells)

    def check_names(self, where: str) -> None:
        """Raises UserError for unknown models, datasets, methods or settings; ``where`` begins the message."""
        from lowvar.vi.estimators import GRADIENT
        from lowvar_studies.datasets.catalogue import DATASETS
        from lowvar_studies.datasets.prepare import SCALINGS
        from lowvar_studies.estimators import OWN
        from lowvar_studies.models.catalogue import MODELS

        for name, problem in self.problems.items():
            place = f"{where}: problems.{name}"
            for kind, value, known in (
                ("dataset", problem.dataset, DATASETS),
                ("scaling", problem.scaling, SCALINGS),
            ):
                check_known(kind, value, known, where=f"{place}.{kind}")
            MODELS.entry(problem.model, where=f"{place}.model")
            MODELS.check_options(problem.model, problem.options, where=f"{place}.options")
            if problem.guide is not None:
                from lowvar.vi.guides.gaussian import guide_and_options  # heavy, and needed by few experiments

                guide_and_options(problem.guide, f"{place}.guide")
            for method in problem.methods or {}:
                check_known("method", method, self.methods, where=f"{place}.methods")
        for name, method in self.methods.items():
            registry = OWN if method.estimator in OWN else GRADIENT
            registry.entry(method.estimator, where=f"{where}: methods.{name}.estimator", also=OWN)
            registry.check_options(method.estimator, method.options, where=f"{where}: methods.{name}.options")
        try:
            for problem, method, _ in self.runs():
                self.solver_on(problem, method)
            for problem in self.decompositions():
                self._check_decomposition(problem)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error.__cause__

    def _check_decomposition(self, problem: str) -> None:
        from lowvar.vi.estimators import GRADIENT
        from lowvar_studies.estimators import OWN

        spec = self.decomposition_on(problem)
        for key, names in (("leader", (spec.leader,)), ("methods", spec.methods or ())):
            for name in names:
                check_known("method", name, self.methods, where=f"decomposition.{key}")
                estimator = self.methods[name].estimator
                if estimator not in OWN and GRADIENT.about(estimator).recursive:
                    raise UserError(
                        f"decomposition.{key}: {name!r} has carryover, and its variance excludes the carried error; "
                        "measure its error along its own run, with solver.diagnostics"
                    )
        if self.methods[spec.leader].estimator in OWN:
            raise UserError(f"decomposition.leader: {spec.leader!r} is a solver of its own, not an estimator")
        if (tune := self._ranges(problem, spec.leader)) and (tune.beta or tune.r):
            raise UserError(f"decomposition.leader: {spec.leader!r} tunes its schedule on {problem!r}; choose another")


def _cells(problem):
    """Approximate number of values in a dataset: its raw files have some five bytes per value."""
    from lowvar_studies.datasets.catalogue import DATASETS

    return sum(file.bytes for file in DATASETS[problem.dataset].files) / 5 or 20_000
