"""What runs: an experiment file, checked, at one scale, and cut into jobs.

An experiment file (``workflow/experiments/*.yaml``) says which problems, methods and settings; its ``scales``
override parts of it. Unknown keys are errors. A job's spec holds all that its result depends on and nothing
else, so its hash says whether a result is stale.
"""

import difflib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, unknown_name

SCALES = ("smoke", "quick", "paper")
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that change when any setting does."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class ProblemSpec(_Strict):
    """A model of the catalogue on a prepared dataset."""

    model: str = Field(description="a model of the catalogue")
    dataset: str = Field(description="a dataset of the catalogue")
    scaling: Literal["minmax", "standard", "none"] = Field("minmax", description="of the features")


class MethodSpec(_Strict):
    """An estimator and its options."""

    estimator: str
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of its factory")


class SolverSpec(_Strict):
    """How a method is run: optimizer, noise, length, repetitions."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    step_sizes: Annotated[tuple[_Positive, ...], Field(min_length=1)]
    batch_size: _Count
    batches: Literal["reshuffled", "iid"] = "reshuffled"
    eps: Literal["iid", "antithetic"] = "iid"
    samples: _Count = Field(1, description="noise points per batch")
    initial: Literal["standard", "origin"] = Field("standard", description="N(0, 1) parameters, or mu = 0")
    epochs: _Count
    repetitions: _Count = Field(1, description="independent noise and starts, shared by the methods")
    dtype: Literal["float64", "float32"] = "float64"
    elbo_samples: Annotated[int, Field(ge=2)] = Field(
        1000, description="noise points of an ELBO that has no exact form"
    )

    @pydantic.model_validator(mode="after")
    def _pairs(self):
        if self.eps == "antithetic" and self.samples % 2:
            raise ValueError(f"eps: antithetic needs an even number of samples, not {self.samples}")
        return self


class DecompositionSpec(_Strict):
    """Where along which run the gradient variance is taken apart, and how finely."""

    leader: str = Field("joint", description="the method whose run is followed")
    step_size: _Positive
    epochs: _Count = Field(description="length of the run")
    points_along: _Count = Field(6, description="moments of the run, geometrically spaced, besides its end")
    replicates: Annotated[int, Field(ge=4)] = Field(32, description="independent designs; the interval's sample")
    columns: Annotated[int, Field(ge=2)] = Field(8, description="noise points in a design")
    rows: Annotated[int, Field(ge=2)] | None = Field(
        None, description="data rows in a design; all of them if not given"
    )


class Experiment(_Strict):
    """One experiment at one scale."""

    name: str
    title: str
    seed: int = 0
    problems: Annotated[dict[str, ProblemSpec], Field(min_length=1)]
    backends: Annotated[tuple[Literal["jax", "torch"], ...], Field(min_length=1)] = ("jax",)
    methods: Annotated[dict[str, MethodSpec], Field(min_length=1)]
    solver: SolverSpec
    decomposition: DecompositionSpec

    def run(self, problem: str, method: str, backend: str) -> "RunSpec":
        """The spec of the job that runs ``method`` on ``problem`` in ``backend``.

        Raises:
            UserError: this experiment has no such problem, method or backend.
        """
        self._check(problem, method, backend)
        return RunSpec(
            seed=self.seed,
            name=problem,
            problem=self.problems[problem],
            method=self.methods[method],
            backend=backend,  # type: ignore[arg-type]
            solver=self.solver,
        )

    def decompose(self, problem: str) -> "DecompositionJob":
        """The spec of the job that decomposes the variance of every method on ``problem``."""
        self._check(problem)
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

    def _check(self, problem, method=None, backend=None):
        for kind, value, known in (
            ("problem", problem, self.problems),
            ("method", method, self.methods),
            ("backend", backend, self.backends),
        ):
            if value is not None and value not in known:
                raise unknown_name(kind, value, known, where=f"experiment {self.name!r}")


class RunSpec(_Strict):
    """A job: one method on one problem, all step sizes and repetitions."""

    seed: int
    name: str
    problem: ProblemSpec
    method: MethodSpec
    backend: Literal["jax", "torch"]
    solver: SolverSpec


class DecompositionJob(_Strict):
    """A job: the variance of every method along one run on one problem."""

    seed: int
    name: str
    problem: ProblemSpec
    methods: dict[str, MethodSpec]
    solver: SolverSpec
    decomposition: DecompositionSpec


def load_experiment(path: str | Path, scale: str) -> Experiment:
    """The experiment of a YAML file at a scale.

    Args:
        path: e.g. ``workflow/experiments/quickstart.yaml``.
        scale: one of ``smoke``, ``quick``, ``paper``.

    Raises:
        UserError: no such file, not YAML, an unknown key or name, or a value out of range; the message names
            the file and the key.
    """
    import yaml

    path = Path(path)
    if not path.is_file():
        known = [p.stem for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        if not difflib.get_close_matches(path.stem, known, n=1, cutoff=0.4):
            raise UserError(f"{path}: no such file of an experiment")
        raise unknown_name("experiment", path.stem, known, where=str(path.parent))
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: an experiment is a mapping of keys, see docs/results-schema.md")
    scales = content.pop("scales", None) or {}
    for key, value in (("scales", scales), ("methods", content.get("methods"))):
        if not isinstance(value or {}, dict):
            raise UserError(f"{path}: {key} = {value!r}: it must be a mapping of names")
    for name, method in (content.get("methods") or {}).items():
        if isinstance(method, dict):
            method.setdefault("estimator", name)
        elif method is None:
            content["methods"][name] = {"estimator": name}
    for name, override in scales.items():
        if name not in SCALES:
            raise unknown_name("scale", name, SCALES, where=str(path))
        if not isinstance(override or {}, dict):
            raise UserError(f"{path}: scales.{name} = {override!r}: it must be a mapping of keys")
    experiment = validated(Experiment, merged(content, scales.get(scale) or {}), where=str(path))
    if experiment.name != path.stem:
        raise UserError(f"{path}: name {experiment.name!r} is not the file's: write {path.stem!r}")
    _check_names(experiment, path)
    return experiment


def json_schema() -> dict[str, Any]:
    """The JSON schema of an experiment file, for editors: with its scales, and methods that are a name alone."""
    schema = Experiment.model_json_schema()
    schema["$defs"]["MethodSpec"].pop("required")
    methods = schema["properties"]["methods"]
    methods["additionalProperties"] = {"anyOf": [methods["additionalProperties"], {"type": "null"}]}
    schema["properties"]["scales"] = {
        "type": "object",
        "description": "what each scale overrides",
        "propertyNames": {"enum": list(SCALES)},
        "additionalProperties": {"type": "object"},
    }
    return schema


def merged(base: Mapping, override: Mapping) -> dict:
    """``base`` with the keys of ``override`` put over it, mapping by mapping.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(base)
    for key, value in override.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def validated(model: type[pydantic.BaseModel], values: Mapping, *, where: str) -> Any:
    """``model`` from ``values``; its first complaint becomes a ``UserError`` that names the key."""
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        # a key with a typo is also a key that is missing: name the typo
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UserError(f"{where}: unknown key {key!r}: {hint}(known: {', '.join(sorted(known))})") from error
        if first["type"] == "missing":
            raise UserError(f"{where}: key {key!r} is missing") from error
        if first["type"] == "literal_error" and isinstance(first["input"], str):
            known = first.get("ctx", {})["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            raise unknown_name(str(first["loc"][-1]), first["input"], known, where=f"{where}: {key}") from error
        raise UserError(f"{where}: {key} = {first['input']!r}: {first['msg'].lower()}") from error


def _fields_at(model, loc):
    """The keys that the model nested in ``model`` at ``loc`` knows."""
    for part in loc:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue  # a name in a mapping of models
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, pydantic.BaseModel)), model)
    return list(model.model_fields)


def _check_names(experiment, path):
    from lowvar.datasets.catalogue import DATASETS
    from lowvar.estimators import GRADIENT
    from lowvar.problems.catalogue import MODELS

    for name, problem in experiment.problems.items():
        if problem.model not in MODELS:
            raise unknown_name("problem", problem.model, MODELS, where=f"{path}: problems.{name}.model")
        if problem.dataset not in DATASETS:
            raise unknown_name("dataset", problem.dataset, DATASETS, where=f"{path}: problems.{name}.dataset")
    for name, method in experiment.methods.items():
        if method.estimator not in GRADIENT:
            raise unknown_name("estimator", method.estimator, GRADIENT, where=f"{path}: methods.{name}.estimator")
    if experiment.decomposition.leader not in experiment.methods:
        raise unknown_name(
            "method",
            experiment.decomposition.leader,
            experiment.methods,
            where=f"{path}: decomposition.leader",
        )
