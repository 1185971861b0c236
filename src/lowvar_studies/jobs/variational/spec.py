"""Specs of the family ``variational``: settings, and the jobs of an experiment."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError
from lowvar.vi.estimators.base import schedule
from lowvar.vi.run.settings import Diagnostics, Method, Settings
from lowvar_studies.jobs.common_spec import (
    BackendName,
    Count,
    Different,
    Positive,
    Scheme,
    Seed,
    Sparse,
    Strict,
    validated,
)

_FEWEST = 4  # least number of designs behind an interval


class SplitSpec(Sparse):
    """Held-out rows, and the number of training rows."""

    test: Annotated[float, Field(gt=0, lt=1, strict=True)] = Field(description="share of the rows that is held out")
    train: Annotated[float, Field(gt=0, le=1, strict=True)] | Annotated[int, Field(ge=2, strict=True)] | None = Field(
        None, description="share (up to 1.0) or number of the remaining rows to train on; all if null"
    )


class ModelSpec(Sparse):
    """A model of the catalogue on a prepared dataset."""

    model: str = Field(description="a model; `lowvar list models`")
    dataset: str = Field(description="a dataset; `lowvar list datasets`")
    scaling: str = Field("minmax", description="of the features: `minmax`, `standard`, `unit`, `lenet` or `none`")
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the model")
    split: SplitSpec | None = Field(None, description="into training and test rows; all are training rows if null")
    guide: str | dict[str, Any] | None = Field(
        None,
        description="the variational family: `mean_field`, `low_rank`, `full_rank` or `block_diagonal`; with options, "
        "`{guide: low_rank, rank: 3}`; mean field if null",
    )

    @property
    def family(self) -> str:
        """The guide in words, such as ``low_rank, rank=3``."""
        given = self.guide if isinstance(self.guide, dict) else {"guide": self.guide or "mean_field"}
        return ", ".join([given["guide"], *(f"{key}={value}" for key, value in given.items() if key != "guide")])


class ProblemSpec(ModelSpec):
    """A model on data, with its own methods and settings."""

    solver: dict[str, Any] = Field(default_factory=dict, description="keys of `solver` that differ on this problem")
    methods: dict[str, dict[str, Any] | None] | None = Field(
        None,
        description="the methods that run on it, each with its own keys of `solver`, and `tune`: complete, in part, or "
        "null; all methods if null",
    )
    decomposition: dict[str, Any] | None = Field(
        default_factory=dict, description="keys of `decomposition` that differ on this problem; null for none"
    )


class _Range(Strict):
    """A range to search, both ends included."""

    @pydantic.model_validator(mode="after")
    def _ordered(self):
        if not self.low < self.high:  # type: ignore[attr-defined]
            raise ValueError(f"low = {self.low} must be below high = {self.high}")  # type: ignore[attr-defined]
        return self


class StepSizeRange(_Range):
    """Step sizes, searched on a logarithmic scale."""

    low: Positive = Field(description="lower end of the search for the step size")
    high: Positive = Field(description="upper end, above `low`")


class BetaRange(_Range):
    """Decays of a schedule."""

    low: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(description="lower end for the schedule's `beta`")
    high: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(description="upper end, above `low`")


class PeriodRange(_Range):
    """Integer numbers of steps."""

    low: Count = Field(description="lower end for the schedule's `r`")
    high: Count = Field(description="upper end, above `low`")


class TuneSpec(Sparse):
    """The ranges of a method's tuned settings, or the method whose tuned settings it takes."""

    step_size: StepSizeRange | None = Field(None, description="required unless `same_as` is given")
    beta: BetaRange | None = Field(None, description="of the schedule; not tuned if null")
    r: PeriodRange | None = Field(None, description="of a schedule of kind step; not tuned if null")
    same_as: str | None = Field(
        None,
        description="in place of ranges: the method whose tuning on the same problem and backend determines the "
        "settings",
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
        """The lower ends by setting: placeholders until the search is done."""
        ranges = {"step_size": self.step_size, "beta": self.beta, "r": self.r}
        return {name: one.low for name, one in ranges.items() if one is not None}


class TuningSpec(Sparse):
    """The search for tuned settings."""

    trials: Count = Field(50, description="number of trials, run one after another")
    epochs: Count | None = Field(None, description="length of a trial; the solver's if null")
    repetitions: Count = Field(2, description="repetitions of a trial, with noise and starts independent of the runs'")


class MethodSpec(Sparse):
    """An estimator, or a solver of its own, with its options."""

    estimator: str = Field(
        description="an estimator (`lowvar list estimators`, or `module:function`), or a solver with its own update: "
        "`smiso`; if missing, the method's name"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")
    solver: dict[str, Any] | None = Field(None, description="keys of `solver` for this method, on all problems")
    tune: TuneSpec | None = Field(None, description="settings that are tuned, in place of the solver's")

    def make(self) -> Method:
        """The method for runs."""
        return Method(self.estimator, self.options)


class ScheduleSpec(Sparse):
    """Decay of the step size."""

    kind: Literal["time", "step", "exponential", "piecewise", "cosine"] = Field(
        description="decay of the step size: 1 / (1 + beta t), beta^floor(t / r), exp(-beta t), `values`, or half a "
        "cosine to 0 at step r, over the last share beta of the r steps"
    )
    beta: pydantic.StrictFloat | None = Field(None, description="rate of decay, in (0, 1]; not for `piecewise`")
    r: pydantic.StrictInt | None = Field(None, description="steps between drops, for `step`; all steps, for `cosine`")
    values: tuple[tuple[pydantic.StrictInt, pydantic.StrictFloat], ...] | None = Field(
        None, description="for `piecewise`: pairs of a step and the factor from there on"
    )
    rounded: pydantic.StrictBool | None = Field(
        None,
        description="round numbers of particles up to one of some twenty; smooth schedules always do",
    )

    @pydantic.model_validator(mode="after")
    def _possible(self):
        try:
            self.make()
        except UserError as error:
            raise ValueError(str(error).removeprefix("schedule ")) from error  # the key says it
        return self

    def make(self):
        """The schedule for estimators and optimizers."""
        return schedule(self.kind, self.beta, self.r, self.values or (), bool(self.rounded))


class DiagnosticsSpec(Strict):
    """Measurement of gradient errors along a run."""

    draws: Annotated[int, Field(ge=4, strict=True)] = Field(64, description="fresh estimates at every evaluated epoch")
    reference: Annotated[int, Field(ge=16, strict=True)] = Field(
        4096, description="particles of the reference gradient, on all the data"
    )


class SolverSpec(Sparse):
    """Settings of runs: optimizer, noise, length, repetitions."""

    optimizer: Literal["sgd", "adam"] = Field("sgd", description="what updates the parameters")
    step_sizes: Annotated[tuple[Positive, ...], Field(min_length=1), Different] = Field(
        description="step sizes of the optimizer; each is a run"
    )
    batch_size: Count = Field(description="data rows of a batch, at most N")
    batches: Literal["reshuffled", "iid", "fixed"] = Field(
        "reshuffled",
        description="each epoch visits every row once; rows are drawn with replacement; or every epoch has the same "
        "batches, in another order",
    )
    noise: Scheme = Field("iid", description="scheme of the particles")
    particles: Count = Field(1, description="particles per batch")
    initial: Literal["standard", "origin", "unit"] = Field(
        "standard",
        description="start: parameters from N(0, 1); mu = 0 with a small sigma; or mu near 0 and sigma near 1",
    )
    epochs: Count = Field(description="length of the runs")
    repetitions: Count = Field(1, description="independent noise and starts, shared by the methods")
    dtype: Literal["float64", "float32"] = Field("float64", description="precision")
    per_decade: Count = Field(12, description="evaluations of the ELBO per decade of epochs")
    elbo_samples: Annotated[int, Field(ge=2, strict=True)] = Field(
        1000, description="particles for an ELBO without a closed form, and for a test log-likelihood"
    )
    schedule: ScheduleSpec | None = Field(None, description="decay of the step sizes; constant if null")
    average: pydantic.StrictBool | None = Field(
        None, description="whether the result is an average of the iterates, of which late ones count most"
    )
    per_row: pydantic.StrictBool | None = Field(
        None, description="whether step sizes apply to the ELBO divided by N; irrelevant to `adam`"
    )
    diagnostics: DiagnosticsSpec | None = Field(None, description="measurement of gradient errors; none if null")

    @pydantic.model_validator(mode="after")
    def _possible(self):
        if self.noise == "antithetic" and (particles := self.particles or 1) % 2:
            raise ValueError(f"noise: antithetic needs an even number of particles, not {particles}")
        try:
            self.make()
        except UserError as error:
            raise ValueError(str(error)) from error
        return self

    def make(self) -> Settings:
        """The settings for runs."""
        plain = {name: getattr(self, name) for name in type(self).model_fields if name not in _OWN_CLASS}
        return Settings(
            **{name: value for name, value in plain.items() if value is not None},
            schedule=self.schedule and self.schedule.make(),
            diagnostics=self.diagnostics and Diagnostics(self.diagnostics.draws, self.diagnostics.reference),
        )


_OWN_CLASS = ("schedule", "diagnostics")  # settings with a class of their own


class NoiseSpec(Strict):
    """A noise scheme and its number of particles."""

    noise: Scheme = Field(description="scheme of the particles")
    particles: Count = Field(description="particles per batch")


class DecompositionSpec(Strict):
    """Decomposition of gradient variances along a run."""

    leader: str = Field("joint", description="the method whose run determines the parameters")
    step_size: Positive = Field(description="step size of that run")
    epochs: Count = Field(description="length of that run")
    points_along: Annotated[int, Field(ge=0, strict=True)] = Field(
        6, description="moments, geometrically spaced, besides the start and the end; 0 for the end alone"
    )
    repetitions: Count = Field(
        1, description="independent runs of the leader; intervals are over runs if there are several, else over designs"
    )
    replicates: Count = Field(32, description="independent designs at the parameters of a run; at least 4 for one run")
    columns: Annotated[int, Field(ge=2, strict=True)] = Field(8, description="noise draws of a design")
    rows: Annotated[int, Field(ge=2, strict=True)] | None = Field(
        None, description="data rows of a design, drawn with replacement; all if null"
    )
    cell: Count = Field(
        1, description="rows of a design in one evaluation, at random; their mean varies by V_n / cell, at less cost"
    )
    methods: Annotated[tuple[str, ...], Different] | None = Field(
        None,
        description="methods to decompose; if null, all estimators without carryover (for those with carryover, use "
        "`solver.diagnostics`)",
    )
    noises: Annotated[dict[str, NoiseSpec], Field(min_length=1)] | None = Field(
        None, description="noise schemes to compare; the solver's if null"
    )
    batch_sizes: Annotated[tuple[Count, ...], Field(min_length=1), Different] | None = Field(
        None, description="batch sizes of the estimates; the solver's if null"
    )

    @pydantic.model_validator(mode="after")
    def _check_replicates(self):
        if self.repetitions == 1 and self.replicates < _FEWEST:
            raise ValueError(f"replicates = {self.replicates}: one run needs at least {_FEWEST}, for its intervals")
        return self


class RunSpec(Sparse):
    """A job: one method on one problem, all step sizes and repetitions.

    Attributes:
        study: hash of the job that tunes its settings; before that, they have the lower ends of their ranges.
    """

    seed: Seed
    name: str
    problem: ModelSpec
    method: MethodSpec
    backend: BackendName
    solver: SolverSpec
    study: str | None = None

    def at(self, study) -> "RunSpec":
        """A copy with the settings of the best trial in the table ``study``."""
        return self.model_copy(update={"solver": _at(self.solver, choice(study))})


class TuneJob(Strict):
    """A job: tuning the settings of one method on one problem."""

    seed: Seed
    name: str
    problem: ModelSpec
    method: MethodSpec
    backend: BackendName
    solver: SolverSpec
    ranges: TuneSpec
    trials: Count

    def trial(self, choice: Mapping[str, float]) -> RunSpec:
        """The run of a trial, under a name of its own: its noise and starts are independent of the runs'.

        Numbers of particles are rounded up to one of some twenty, which limits compilation.
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

    seed: Seed
    name: str
    problem: ModelSpec
    methods: dict[str, MethodSpec]
    solver: SolverSpec
    decomposition: DecompositionSpec


def best(study) -> dict[str, Any]:
    """The trial with the largest value, the first of equals; if all diverged, that with the smallest step size."""
    if (study["value"] == -math.inf).all():
        row = study.loc[study["step_size"].idxmin()]
    else:
        row = study.loc[study["value"].idxmax()]
    values = row.to_dict()
    return values | ({"r": int(values["r"])} if "r" in values else {})


def choice(study) -> dict[str, Any]:
    """The settings of a study's best trial, by name."""
    return {name: value for name, value in best(study).items() if name in ("step_size", "beta", "r")}


def _at(solver, choice):
    """The solver with the chosen settings."""
    return validated(SolverSpec, with_choice(solver.model_dump(), choice, where="study"), where="study")


def with_choice(values, choice, *, where):
    """The values of a solver with the chosen step size and settings of its schedule.

    Raises:
        UserError: a setting of the schedule is chosen and the solver has no schedule.
    """
    values = {**values, "step_sizes": (choice["step_size"],)}
    decay = {name: value for name, value in choice.items() if name != "step_size"}
    if decay:
        if not isinstance(values.get("schedule"), Mapping):
            raise UserError(f"{where}.{next(iter(decay))}: the solver has no schedule: set schedule.kind")
        values["schedule"] = {**values["schedule"], **decay}
    return values
