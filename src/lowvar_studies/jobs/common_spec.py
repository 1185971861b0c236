"""Shared code of all specs: strict models with a hash, and messages for invalid keys."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from lowvar.errors import UserError, check_known, nearest, unknown_name

SCALES = ("smoke", "quick", "paper")
NAME = "[A-Za-z0-9_]+"  # of an experiment, problem or method, which is a part of paths and of the workflow's wildcards


def _named(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise ValueError(f"{name!r}: a name may have only letters of the English alphabet, digits and underscores")
    return name


def different(values: tuple) -> tuple:
    """``values``; raises ValueError if one of them occurs twice."""
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{value!r} occurs twice: the entries must be different")
    return values


Different = pydantic.AfterValidator(different)  # a duplicate would count, or be computed, twice
Name = Annotated[str, pydantic.AfterValidator(_named)]
# numbers are strict: pydantic would else take true and "1" for 1
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
# pydantic's errors of type, in YAML's words
_SAID = {
    **dict.fromkeys(("tuple_type", "list_type"), "it must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "it must be a mapping of keys"),
    **dict.fromkeys(("int_type", "int_from_float"), "it must be a whole number"),
    "float_type": "it must be a number",
    "string_type": "it must be text",
    "bool_type": "it must be true or false",
    "too_short": "it must have at least one entry",
}
_whole = pydantic.BeforeValidator(lambda value: int(value) if type(value) is float and value.is_integer() else value)
Count = Annotated[int, Field(ge=1, strict=True), _whole]  # 1e5 counts too
Seed = Annotated[int, Field(ge=0, strict=True), _whole]
BackendName = Literal["jax", "torch"]
Scheme = Literal["iid", "antithetic", "orthogonal", "rqmc"]
BackendNames = Annotated[tuple[BackendName, ...], Field(min_length=1), Different]


class Strict(pydantic.BaseModel):
    """A model that rejects unknown keys and has a hash."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits of SHA-256 over all settings and the sources of a user's own factories."""
        values = self.model_dump(mode="json")
        if sources := _sources(values):
            values["sources"] = sources
        text = json.dumps(values, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def values_of(self, key: str) -> list[Any]:
        """The values of a setting, wherever it is nested: those of ``key``, and the entries of its plural.

        >>> Data(dataset="sonar", scaling="minmax").values_of("scaling")
        ['minmax']
        """
        return list(_values_of(self.model_dump(), key))


def _values_of(values: Any, key: str):
    for name, value in values.items():
        if name == key and not isinstance(value, dict):
            yield value
        elif name == f"{key}s" and isinstance(value, list | tuple):
            yield from value
        if isinstance(value, dict):
            yield from _values_of(value, key)


def _sources(values: Any) -> dict[str, str]:
    """The hashes of the files of a user's own factories, by name."""
    from lowvar.integrals import INTEGRAL
    from lowvar.search.solvers import SEARCH
    from lowvar.vi.estimators import GRADIENT
    from lowvar.vi.guides.gaussian import GUIDES
    from lowvar_studies.estimators import OWN
    from lowvar_studies.functions.catalogue import FUNCTIONS
    from lowvar_studies.integrals.catalogue import PROBLEMS
    from lowvar_studies.models.catalogue import MODELS

    named = {"estimator": GRADIENT, "solver": SEARCH, "integrator": INTEGRAL, "model": MODELS, "function": FUNCTIONS,
             "problem": PROBLEMS, "guide": GUIDES}  # fmt: skip
    hashes: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict) and key != "options":
            hashes |= _sources(value)
        elif isinstance(value, str) and key in named and value not in OWN.own:
            hashes |= named[key].sources(value)
    return hashes


class Sparse(Strict):
    """A model that omits settings of None from dumps, so that a new optional setting does not change hashes."""

    @pydantic.model_serializer(mode="wrap")
    def _without_none(self, handler):
        return {key: value for key, value in handler(self).items() if value is not None}


class Data(Strict):
    """The prepared data of a problem."""

    dataset: str
    scaling: str


class Cost(Strict):
    """The approximate cost of a job.

    Attributes:
        operations: numbers that are processed, which determines the time.
        memory: numbers that are in memory at once.
    """

    operations: float
    memory: float


class ExperimentSpec(Strict):
    """Base of all experiments: the names of their jobs, and the spec of each.

    ``run(problem, method, backend)``, ``tune``, ``sample(problem)`` and ``decompose(problem)`` return a job's spec, and
    raise UserError if there is no such job; ``run_cost`` and the like return its cost. Families override these.
    """

    name: Name = Field(description="the file's name without its ending")
    title: str = Field(description="a title for reports")
    family: Any = Field(description="`variational` (if missing), `search` or `integral`")
    seed: Seed = Field(0, description="seed of all starts, noise and points")
    remarks: str = Field(  # not part of any hash: no result depends on it
        "",
        exclude=True,
        description="what the reader of its kept page has to know, in Markdown; part of the page and of no result",
    )
    titles: dict[str, str] = Field(  # nor is this
        {}, exclude=True, description="what figures say in place of the name of a problem, by its name"
    )

    @pydantic.model_validator(mode="after")
    def _folders_differ(self):
        for kind in ("problems", "methods"):
            seen: dict[str, str] = {}
            for name in getattr(self, kind, ()):
                if (other := seen.setdefault(name.lower(), name)) != name:
                    what = "would share a folder on file systems without capitals (macOS, Windows)"
                    raise ValueError(f"{kind}: {other!r} and {name!r} {what}; rename one")
        return self

    @pydantic.model_validator(mode="after")
    def _titles_of_problems(self):
        for name in self.titles:
            check_known("problem", name, getattr(self, "problems", ()), where="titles")
        return self

    def runs(self) -> list[tuple[str, str, str]]:
        """Problem, method and backend of every run."""
        raise NotImplementedError

    def studies(self) -> list[tuple[str, str, str]]:
        """The runs whose settings are tuned."""
        return []

    def study_of(self, problem: str, method: str, backend: str) -> tuple[str, str, str] | None:
        """The run whose tuning determines a run's settings: itself, or that of its method's ``same_as``; else None."""

    def samples(self) -> list[str]:
        """Problems whose points are drawn once, for all methods."""
        return []

    def drawn_from(self, problem: str) -> str | None:
        """The problem whose points a problem's runs read; None if runs draw their own noise."""

    def decompositions(self) -> list[str]:
        """Problems whose gradient variance is decomposed."""
        return []

    def data(self, problem: str) -> Data | None:
        """The prepared data of a problem, if it has any."""

    def dtype(self, problem: str) -> str:
        """The floating-point type of a problem's jobs."""
        return "float64"

    def tune(self, problem: str, method: str, backend: str) -> Any:
        """The spec of the job that tunes the settings of a run."""
        raise UserError(f"experiment {self.name!r} tunes nothing: only the family variational does")

    def sample(self, problem: str) -> Any:
        """The spec of the job that draws the points of a problem."""
        raise UserError(f"experiment {self.name!r} has no samples: its runs draw their own noise")

    def _check(self, **named: str) -> None:
        """Raises UserError for unknown names of ``problems``, ``methods`` or ``backends``."""
        for kind, value in named.items():
            check_known(kind, value, getattr(self, f"{kind}s"), where=f"experiment {self.name!r}")


def merged(base: Mapping, override: Mapping) -> dict:
    """``base`` with the keys of ``override``, merged recursively.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(base)
    for key, value in override.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def validated(model: type[pydantic.BaseModel], values: Mapping, *, where: str) -> Any:
    """``model`` from ``values``; the first validation error becomes a ``UserError`` that names the key."""
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        # a misspelt required key is also missing: report the misspelling
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        loc = first["loc"][:-2] if first["loc"][-1:] == ("[key]",) else first["loc"]  # our message has the name itself
        key = ".".join(str(part) for part in loc)
        if first["type"] == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            near = nearest(str(first["loc"][-1]), known)
            hint = f": did you mean {near!r}?" if near else ""
            raise UserError(f"{where}: unknown key {key!r}{hint} (known: {', '.join(sorted(known))})") from error
        if first["type"] == "missing":
            raise UserError(f"{where}: key {key!r} is missing") from error
        if first["type"] == "literal_error" and isinstance(first["input"], str):
            known = first.get("ctx", {})["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            kind = [part for part in first["loc"] if isinstance(part, str)][-1]
            raise unknown_name(kind, first["input"], known, where=f"{where}: {key}") from error
        if first["type"] == "value_error":  # our own message, about several keys
            raise UserError(f"{where}: {key + ': ' if key else ''}{first.get('ctx', {})['error']}") from error
        said = _SAID.get(first["type"]) or first["msg"].lower().replace("input should", "it must")
        raise UserError(f"{where}: {key} = {first['input']!r}: {said}") from error


def _fields_at(model, loc):
    """The keys of the model that is nested in ``model`` at ``loc``."""
    for part in loc:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue  # a name in a mapping of models
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
        model = next((c for c in candidates if isinstance(c, type) and issubclass(c, pydantic.BaseModel)), model)
    return list(model.model_fields)
