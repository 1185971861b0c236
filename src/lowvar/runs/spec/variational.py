"""The specs of the family ``variational``: gradient estimators on Bayesian models."""

from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import Field

from lowvar.errors import unknown_name
from lowvar.runs.spec.common import BackendName, Cost, Count, Data, Positive, Strict, check_known


class ProblemSpec(Strict):
    """A model of the catalogue on a prepared dataset."""

    model: str = Field(description="a model of the catalogue")
    dataset: str = Field(description="a dataset of the catalogue")
    scaling: Literal["minmax", "standard", "none"] = Field("minmax", description="of the features")


class MethodSpec(Strict):
    """An estimator and its options."""

    estimator: str
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")


class SolverSpec(Strict):
    """How a method is run: optimizer, noise, length, repetitions."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    step_sizes: Annotated[tuple[Positive, ...], Field(min_length=1)]
    batch_size: Count
    batches: Literal["reshuffled", "iid"] = "reshuffled"
    eps: Literal["iid", "antithetic", "orthogonal", "rqmc"] = "iid"
    samples: Count = Field(1, description="noise points per batch")
    initial: Literal["standard", "origin"] = Field("standard", description="N(0, 1) parameters, or mu = 0")
    epochs: Count
    repetitions: Count = Field(1, description="independent noise and starts, shared by the methods")
    dtype: Literal["float64", "float32"] = "float64"
    elbo_samples: Annotated[int, Field(ge=2)] = Field(
        1000, description="noise points of an ELBO that has no exact form"
    )

    @pydantic.model_validator(mode="after")
    def _pairs(self):
        if self.eps == "antithetic" and self.samples % 2:
            raise ValueError(f"eps: antithetic needs an even number of samples, not {self.samples}")
        return self


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


class VariationalExperiment(Strict):
    """One experiment at one scale: every method on every problem, and the variance of their gradients."""

    TABLES: ClassVar = ("optimum", "convergence", "best", "ends", "decomposition")
    FIGURES: ClassVar = {
        "shares": "decomposition",
        "along": "decomposition",
        "convergence": "convergence",
        "steps": "convergence",
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
    decomposition: DecompositionSpec

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that its runs are gathered into."""
        return self.TABLES

    @property
    def figures(self) -> dict[str, str]:
        """Its figures, and the table that each is drawn from."""
        return self.FIGURES

    @property
    def headline(self) -> str:
        """The figure that answers its question at a glance."""
        return "shares"

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run."""
        return [(p, m, b) for p in self.problems for m in self.methods for b in self.backends]

    def samples(self) -> list[str]:
        """Problems whose points are drawn beforehand: none, runs draw their noise by name."""
        return []

    def drawn_from(self, problem: str) -> None:
        """The problem whose points a problem's runs read: none."""

    def decompositions(self) -> list[str]:
        """Problems whose gradient variance is taken apart."""
        return list(self.problems)

    def data(self, problem: str) -> Data:
        """The prepared data of a problem."""
        spec = self.problems[problem]
        return Data(dataset=spec.dataset, scaling=spec.scaling)

    def dtype(self, problem: str) -> str:
        """The floating type that a problem's jobs compute in."""
        return self.solver.dtype

    def run(self, problem: str, method: str, backend: str) -> "RunSpec":
        """The spec of the job that runs ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: this experiment has no such problem, method or backend.
        """
        check_known(self, problem=problem, method=method, backend=backend)
        return RunSpec(
            seed=self.seed,
            name=problem,
            problem=self.problems[problem],
            method=self.methods[method],
            backend=backend,  # type: ignore[arg-type]
            solver=self.solver,
        )

    def decompose(self, problem: str) -> "DecompositionJob":
        """The spec of the job that decomposes the variance of every method on ``problem``.

        Raises:
            UserError: this experiment has no such problem.
        """
        check_known(self, problem=problem)
        return DecompositionJob(
            seed=self.seed,
            name=problem,
            problem=self.problems[problem],
            methods=self.methods,
            solver=self.solver.model_copy(
                update={
                    "step_sizes": (self.decomposition.step_size,),
                    "epochs": self.decomposition.epochs,
                    "repetitions": 1,
                    "elbo_samples": 2,
                }
            ),
            decomposition=self.decomposition,
        )

    def run_cost(self, problem: str, method: str, backend: str) -> Cost:
        """Every lane (step size x repetition) sees the data once an epoch."""
        cells, solver = _cells(self.problems[problem]), self.solver
        lanes = len(solver.step_sizes) * solver.repetitions
        slower = 20 if backend == "torch" else 1
        return Cost(operations=slower * lanes * solver.epochs * solver.samples * cells, memory=40 * cells)

    def decompose_cost(self, problem: str) -> Cost:
        """The run that is followed, then every design of every method at every point."""
        cells, d = _cells(self.problems[problem]), self.decomposition
        designs = len(self.methods) * (d.points_along + 1) * d.replicates * d.columns
        return Cost(operations=(d.epochs + designs) * cells, memory=400 * cells)

    def check_names(self, where: str) -> None:
        """Refuses models, datasets, estimators and leaders that do not exist; ``where`` starts the message."""
        from lowvar.datasets.catalogue import DATASETS
        from lowvar.estimators import GRADIENT
        from lowvar.problems.catalogue import MODELS

        for name, problem in self.problems.items():
            if problem.model not in MODELS:
                raise unknown_name("problem", problem.model, MODELS, where=f"{where}: problems.{name}.model")
            if problem.dataset not in DATASETS:
                raise unknown_name("dataset", problem.dataset, DATASETS, where=f"{where}: problems.{name}.dataset")
        for name, method in self.methods.items():
            if method.estimator not in GRADIENT:
                raise unknown_name("estimator", method.estimator, GRADIENT, where=f"{where}: methods.{name}.estimator")
        leader = self.decomposition.leader
        if leader not in self.methods:
            raise unknown_name("method", leader, self.methods, where=f"{where}: decomposition.leader")


class RunSpec(Strict):
    """A job: one method on one problem, all step sizes and repetitions."""

    seed: int
    name: str
    problem: ProblemSpec
    method: MethodSpec
    backend: BackendName
    solver: SolverSpec


class DecompositionJob(Strict):
    """A job: the variance of every method along one run on one problem."""

    seed: int
    name: str
    problem: ProblemSpec
    methods: dict[str, MethodSpec]
    solver: SolverSpec
    decomposition: DecompositionSpec


def _cells(problem):
    """Numbers in a dataset, about: its raw files have some five bytes for each."""
    from lowvar.datasets.catalogue import DATASETS

    return sum(file.bytes for file in DATASETS[problem.dataset].files) / 5 or 20_000
