"""The specs of the family ``variational``: gradient estimators on Bayesian models."""

from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, unknown_name
from lowvar.runs.spec.common import (
    BackendName,
    Cost,
    Count,
    Data,
    Positive,
    Strict,
    check_known,
    merged,
    validated,
)


class ModelSpec(Strict):
    """A model of the catalogue on a prepared dataset."""

    model: str = Field(description="a model of the catalogue")
    dataset: str = Field(description="a dataset of the catalogue")
    scaling: str = Field("minmax", description="of the features")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the model")


class ProblemSpec(ModelSpec):
    """A model on data, and what is special about its runs."""

    solver: dict[str, Any] = Field(default_factory=dict, description="settings that differ from the experiment's")
    methods: dict[str, dict[str, Any] | None] | None = Field(
        None, description="the methods that run on it, each with its own settings; all of them if not given"
    )
    decomposition: dict[str, Any] | None = Field(
        default_factory=dict, description="settings that differ from the experiment's; null for none here"
    )


class MethodSpec(Strict):
    """An estimator, or a solver of its own, with its options."""

    estimator: str
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")


class SolverSpec(Strict):
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
        1000, description="noise points of an ELBO that has no exact form"
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
    methods: tuple[str, ...] | None = Field(None, description="which methods; all that are estimators if not given")
    noises: Annotated[dict[str, NoiseSpec], Field(min_length=1)] | None = Field(
        None, description="noise under which the variance is taken apart; the solver's if not given"
    )


class VariationalExperiment(Strict):
    """One experiment at one scale: every method on every problem, and the variance of their gradients."""

    TABLES: ClassVar = (
        "optimum", "convergence", "best", "ends", "paths", "table2", "table3", "decomposition", "table1", "schemes",
    )  # fmt: skip
    FIGURES: ClassVar = {
        "shares": "decomposition",
        "along": "decomposition",
        "split_along": "decomposition",
        "convergence": "convergence",
        "iterations": "convergence",
        "steps": "convergence",
        "schemes": "schemes",
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

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that its runs are gathered into."""
        left_out = set() if self.decompositions() else {"decomposition", "table1"}
        return tuple(name for name in self.TABLES if name not in left_out | (set() if self._noises() else {"schemes"}))

    @property
    def figures(self) -> dict[str, str]:
        """Its figures, and the table that each is drawn from."""
        return {kind: of for kind, of in self.FIGURES.items() if of in (*self.tables, "seconds")}

    def _noises(self) -> bool:
        """Whether any variance is taken apart under several ways of drawing noise."""
        return any(self.decomposition_on(problem).noises for problem in self.decompositions())

    @property
    def headline(self) -> str:
        """The figure that answers its question at a glance."""
        return "shares" if self.decompositions() else "convergence"

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
        return ModelSpec(model=spec.model, dataset=spec.dataset, scaling=spec.scaling, options=spec.options)

    def solver_on(self, problem: str, method: str | None = None) -> SolverSpec:
        """The settings of a problem's runs, or of those of one method.

        Raises:
            UserError: a setting that does not exist or is out of range; the message says where it stands.
        """
        spec, values, where = self.problems[problem], self.solver.model_dump(), f"problems.{problem}.solver"
        values = merged(values, spec.solver)
        own = (spec.methods or {}).get(method or "")
        if own:
            values, where = merged(values, own), f"problems.{problem}.methods.{method}"
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
        from lowvar.estimators import GRADIENT

        chosen = self.decomposition_on(problem).methods
        methods = self.methods_on(problem) if chosen is None else chosen
        return [name for name in methods if self.methods[name].estimator in GRADIENT]

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
            method=self.methods[method],
            backend=backend,  # type: ignore[arg-type]
            solver=self.solver_on(problem, method),
        )

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
            methods={name: self.methods[name] for name in (*self.decomposed_methods(problem), spec.leader)},
            solver=self.solver_on(problem, spec.leader).model_copy(update=alone),
            decomposition=spec,
        )

    def run_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Every lane (step size x repetition) sees the data once an epoch."""
        cells, solver = _cells(self.problems[problem]), self.solver_on(problem, method)
        lanes = len(solver.step_sizes) * solver.repetitions
        slower = 20 if backend == "torch" else 1
        return Cost(operations=slower * lanes * solver.epochs * solver.samples * cells, memory=40 * cells)

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
        from lowvar.estimators import GRADIENT

        spec = self.decomposition_on(problem)
        for key, names in (("leader", (spec.leader,)), ("methods", spec.methods or ())):
            for name in names:
                if name not in self.methods:
                    raise unknown_name("method", name, self.methods, where=f"decomposition.{key}")
        if self.methods[spec.leader].estimator not in GRADIENT:
            raise UserError(f"decomposition.leader: {spec.leader!r} is no estimator, but a solver of its own")


class RunSpec(Strict):
    """A job: one method on one problem, all step sizes and repetitions."""

    seed: int
    name: str
    problem: ModelSpec
    method: MethodSpec
    backend: BackendName
    solver: SolverSpec


class DecompositionJob(Strict):
    """A job: the variance of every method along one run on one problem."""

    seed: int
    name: str
    problem: ModelSpec
    methods: dict[str, MethodSpec]
    solver: SolverSpec
    decomposition: DecompositionSpec


def _cells(problem):
    """Numbers in a dataset, about: its raw files have some five bytes for each."""
    from lowvar.datasets.catalogue import DATASETS

    return sum(file.bytes for file in DATASETS[problem.dataset].files) / 5 or 20_000
