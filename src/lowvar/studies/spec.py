"""What the specs of all families share: strict models with a hash, and one sentence for a wrong key."""

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, check_known, unknown_name

SCALES = ("smoke", "quick", "paper")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
BackendName = Literal["jax", "torch"]


class Strict(pydantic.BaseModel):
    """A model that refuses unknown keys and knows its hash."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that change when any setting does, or the source of a factory of a user's own."""
        values = self.model_dump(mode="json")
        if sources := _sources(values):
            values["sources"] = sources
        text = json.dumps(values, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sources(values: Any) -> dict[str, str]:
    """The hashes of the files of all factories that are not lowvar's own, by name."""
    from lowvar.estimators import GRADIENT, INTEGRAL
    from lowvar.problems.blackbox.catalogue import FUNCTIONS
    from lowvar.problems.catalogue import MODELS
    from lowvar.problems.integrals.catalogue import PROBLEMS
    from lowvar.solvers import OWN, SEARCH

    named = {"estimator": GRADIENT, "solver": SEARCH, "integrator": INTEGRAL, "model": MODELS, "function": FUNCTIONS,
             "problem": PROBLEMS}  # fmt: skip
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key != "options":
            found |= _sources(value)
        elif isinstance(value, str) and key in named and value not in OWN.own:
            found |= named[key].sources(value)
    return found


class Sparse(Strict):
    """A model whose settings of None are left out of dumps, so that a new one leaves old hashes as they are."""

    @pydantic.model_serializer(mode="wrap")
    def _without_none(self, handler):
        return {key: value for key, value in handler(self).items() if value is not None}


class Data(Strict):
    """Prepared data that a problem stands on."""

    dataset: str
    scaling: str


class Cost(Strict):
    """What a job will take, about.

    Attributes:
        operations: numbers that are read and worked on, for its time.
        memory: numbers that are held at once.
    """

    operations: float
    memory: float


class ExperimentSpec(Strict):
    """What experiments of all families have: the jobs that there are, by their names, and the spec of each.

    ``run(problem, method, backend)``, ``tune``, ``sample(problem)`` and ``decompose(problem)`` give a job's spec, and
    raise UserError where there is no such job; ``run_cost`` and the like what it takes. A family overrides what it has.
    """

    name: str
    title: str
    family: Any
    seed: int = 0

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run."""
        raise NotImplementedError

    def studies(self) -> list[tuple[str, str, str]]:
        """The runs whose settings are searched for first."""
        return []

    def study_of(self, problem: str, method: str, backend: str) -> tuple[str, str, str] | None:
        """The run whose search chooses the settings of a run: itself, or that of the method that it is ``same_as``."""

    def samples(self) -> list[str]:
        """Problems whose points are drawn once, for all methods."""
        return []

    def drawn_from(self, problem: str) -> str | None:
        """The problem whose points a problem's runs read; None where they draw their noise by name."""

    def decompositions(self) -> list[str]:
        """Problems whose gradient variance is taken apart."""
        return []

    def data(self, problem: str) -> Data | None:
        """The prepared data of a problem, if it stands on any."""

    def dtype(self, problem: str) -> str:
        """The floating type that a problem's jobs compute in."""
        return "float64"

    def tune(self, problem: str, method: str, backend: str) -> Any:
        """The spec of the job that searches the settings of a run."""
        raise UserError(f"experiment {self.name!r} tunes nothing: only the family variational does")

    def sample(self, problem: str) -> Any:
        """The spec of the job that draws the points of a problem."""
        raise UserError(f"experiment {self.name!r} draws no points beforehand: its runs draw their own noise")

    def _check(self, **named: str) -> None:
        """Refuses names (of ``problems``, ``methods``, ``backends``) that it does not have."""
        for kind, value in named.items():
            check_known(kind, value, getattr(self, f"{kind}s"), where=f"experiment {self.name!r}")


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
            kind = [part for part in first["loc"] if isinstance(part, str)][-1]
            raise unknown_name(kind, first["input"], known, where=f"{where}: {key}") from error
        if first["type"] == "value_error":  # a sentence of ours, about several keys
            raise UserError(f"{where}: {key + ': ' if key else ''}{first.get('ctx', {})['error']}") from error
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
