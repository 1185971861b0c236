"""What the family ``variational`` is made of: settings, and the jobs that an experiment is cut into."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError
from lowvar.estimators.gradient.schedules import schedule
from lowvar.registry import label
from lowvar.studies.spec import BackendName, Count, Positive, Sparse, Strict, validated


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
    """Which settings of a method are searched, and where; or the method whose settings it takes."""

    step_size: StepSizeRange | None = Field(None, description="of the optimizer; needed but with same_as")
    beta: BetaRange | None = Field(None, description="of the schedule; kept as it is if not given")
    r: PeriodRange | None = Field(None, description="of a schedule of kind step; kept as it is if not given")
    same_as: str | None = Field(
        None, description="in place of ranges: the method whose search on the same problem chooses the settings"
    )

    @pydantic.model_validator(mode="after")
    def _ranges_or_a_method(self):
        ranges = (self.step_size, self.beta, self.r)
        if self.same_as is not None and any(ranges):
            raise ValueError("give ranges or same_as, not both")
        if self.same_as is None and self.step_size is None:
            raise ValueError("key 'step_size' is missing")
        return self

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

    _factory: Callable[..., Any] | None = pydantic.PrivateAttr(None)

    estimator: str
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")
    solver: dict[str, Any] | None = Field(None, description="settings of the solver that go with it")
    tune: TuneSpec | None = Field(None, description="what is searched in place of the solver's settings")

    @property
    def factory(self) -> str | Callable[..., Any]:
        """What registries know the estimator by: its name, or the factory that a caller has given."""
        return self._factory or self.estimator

    @classmethod
    def of(cls, estimator: str | Callable[..., Any], options: Mapping[str, Any], where: str) -> "MethodSpec":
        """A method by name, or by a factory of the caller's own, which no file can hold."""
        made = validated(cls, {"estimator": label(estimator), "options": options}, where=where)
        made._factory = None if isinstance(estimator, str) else estimator
        return made


class ScheduleSpec(Sparse):
    """How step sizes fall from one step to the next."""

    kind: Literal["time", "step", "exponential", "piecewise"]
    beta: float | None = Field(None, description="rate of decay, in (0, 1]; not for piecewise")
    r: int | None = Field(None, description="steps between drops, for step")
    values: tuple[tuple[int, float], ...] | None = Field(
        None, description="for piecewise: steps, and the factor from each on"
    )
    rounded: bool | None = Field(
        None,
        description="rounds numbers of particles up to one of some twenty; smooth schedules always do",
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
        4096, description="particles of the gradient that they are compared with, on all the data"
    )


class SolverSpec(Sparse):
    """How a method is run: optimizer, noise, length, repetitions."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    step_sizes: Annotated[tuple[Positive, ...], Field(min_length=1)]
    batch_size: Count
    batches: Literal["reshuffled", "iid", "fixed"] = "reshuffled"
    noise: Literal["iid", "antithetic", "orthogonal", "rqmc"] = "iid"
    particles: Count = Field(1, description="particles per batch")
    initial: Literal["standard", "origin", "unit"] = Field(
        "standard", description="N(0, 1) parameters, mu = 0 and a small sigma, or mu near 0 and sigma near 1"
    )
    epochs: Count
    repetitions: Count = Field(1, description="independent noise and starts, shared by the methods")
    dtype: Literal["float64", "float32"] = "float64"
    per_decade: Count = Field(12, description="measurements of the ELBO in each decade of epochs")
    elbo_samples: Annotated[int, Field(ge=2)] = Field(
        1000, description="particles of an ELBO that has no exact form, and of a test log-likelihood"
    )
    schedule: ScheduleSpec | None = Field(None, description="of the step sizes; constant if not given")
    per_row: bool | None = Field(
        None, description="whether step sizes are meant for the ELBO divided by the number of rows; matters to sgd"
    )
    diagnostics: DiagnosticsSpec | None = Field(
        None, description="measures the error of the gradients at every stop; not if not given"
    )

    _transformation: Any = pydantic.PrivateAttr(None)

    @property
    def transformation(self) -> Any:
        """The optimizer: its name, or the ``optax.GradientTransformation`` that a caller has given."""
        return self._transformation or self.optimizer

    def with_transformation(self, given) -> "SolverSpec":
        """The same with an optimizer of the caller's own, which no file can hold."""
        made = self.model_copy()
        made._transformation = given
        return made

    @pydantic.model_validator(mode="after")
    def _pairs(self):
        if self.noise == "antithetic" and self.particles % 2:
            raise ValueError(f"noise: antithetic needs an even number of particles, not {self.particles}")
        return self


class NoiseSpec(Strict):
    """A way of drawing the particles of a batch."""

    noise: Literal["iid", "antithetic", "orthogonal", "rqmc"]
    particles: Count


class DecompositionSpec(Strict):
    """Where along which run the gradient variance is taken apart, and how finely."""

    leader: str = Field("joint", description="the method whose run is followed")
    step_size: Positive
    epochs: Count = Field(description="length of the run")
    points_along: Count = Field(6, description="moments of the run, geometrically spaced, besides its end")
    replicates: Annotated[int, Field(ge=4)] = Field(32, description="independent designs; the interval's sample")
    columns: Annotated[int, Field(ge=2)] = Field(8, description="particles in a design")
    rows: Annotated[int, Field(ge=2)] | None = Field(
        None, description="data rows in a design; all of them if not given"
    )
    methods: tuple[str, ...] | None = Field(
        None, description="which methods; all estimators but recursive ones if not given"
    )
    noises: Annotated[dict[str, NoiseSpec], Field(min_length=1)] | None = Field(
        None, description="noise under which the variance is taken apart; the solver's if not given"
    )


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

    def at(self, study) -> "RunSpec":
        """With the settings that a study chose, by the table of its trials."""
        return self.model_copy(update={"solver": _at(self.solver, choice(study))})


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

        Numbers of particles are rounded up to a few, for which programs are made once.
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


def best(study) -> dict[str, Any]:
    """The row of a study with the largest value, the first of equals; the smallest step if every trial diverged."""
    if (study["value"] == -math.inf).all():
        row = study.loc[study["step_size"].idxmin()]
    else:
        row = study.loc[study["value"].idxmax()]
    found = row.to_dict()
    return found | ({"r": int(found["r"])} if "r" in found else {})


def choice(study) -> dict[str, Any]:
    """The settings of a study's best trial, by name."""
    return {name: value for name, value in best(study).items() if name in ("step_size", "beta", "r")}


def _at(solver, choice):
    """A solver's settings at a choice of them."""
    return validated(SolverSpec, with_choice(solver.model_dump(), choice, where="study"), where="study")


def with_choice(values, choice, *, where):
    """The values of a solver with the chosen step size, and the chosen settings of its schedule.

    Raises:
        UserError: settings of a schedule are chosen and it has none.
    """
    values = {**values, "step_sizes": (choice["step_size"],)}
    falls = {name: value for name, value in choice.items() if name != "step_size"}
    if falls:
        if not isinstance(values.get("schedule"), Mapping):
            raise UserError(f"{where}.{next(iter(falls))}: the solver has no schedule; give it one: schedule.kind")
        values["schedule"] = {**values["schedule"], **falls}
    return values
