"""The settings in the file of a fit, as a schema: they are checked before any is used."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Annotated, Any, Literal

import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.schema import at_most, read, within
from lowvar.errors import UserError, unknown_name
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import schedule_of
from lowvar.vi.gain import Optimum
from lowvar.vi.guides.forms import BLOCK
from lowvar.vi.guides.gaussian import GUIDES
from lowvar.vi.run.settings import Settings
from lowvar.vi.watched import Ended

_MOST = 2**31 - 1  # of a count: steps and rows are numbered by 32-bit integers
_LONGEST = 400  # characters of a message

Number = Annotated[int, within(0, _MOST)]
Count = Annotated[int, within(1, _MOST)]
Text = Annotated[str, at_most(10_000)]
Title = Annotated[Text, lambda text: "" if text and text.isprintable() else "printable"]
_FLOAT = r"-?(\d+(\.\d*)?(e[-+]?\d+)?|inf)|nan"
Float = Annotated[str, lambda text: "" if re.fullmatch(_FLOAT, text) else "a number as text"]


@dataclass(frozen=True)
class Guide:
    """The variational family, of lowvar's own or of an installed package."""

    guide: Title
    rank: Count | None = None


@dataclass(frozen=True)
class Argument:
    """One of the model's arguments: shape, None of an object that is no array, type and hash."""

    shape: tuple[Annotated[int, within(0, 2**62)], ...] | None
    dtype: Title
    sha256: Annotated[str, lambda text: "" if re.fullmatch("[0-9a-f]{64}", text) else "64 hexadecimal digits"]


@dataclass(frozen=True)
class Descent:
    """The part of ``Settings`` that a fit varies."""

    optimizer: Literal["sgd", "adam"]
    step_size: Annotated[float, within(5e-324, 1e308)]
    batch_size: Count
    noise: Title
    particles: Count
    epochs: Count
    dtype: Literal["float32", "float64"]
    elbo_samples: Annotated[int, within(2, _MOST)]
    average: bool
    schedule: dict[str, Any] | None

    def __post_init__(self):
        if self.noise not in GAUSSIAN:
            raise unknown_name("noise", self.noise, GAUSSIAN)
        self.settings({})

    def settings(self, own: Mapping[str, Any]) -> Settings:
        """The settings of the run, with the caller's own objects."""
        values = {name: getattr(self, name) for name in _SAME}
        plan = None if self.schedule is None else schedule_of(self.schedule, "schedule")
        return Settings(step_sizes=(self.step_size,), schedule=plan, initial="origin", own=own, **values)


_SAME = ("optimizer", "batch_size", "noise", "particles", "epochs", "dtype", "elbo_samples", "average")


def descent(settings: Settings) -> dict[str, Any]:
    """The values of ``Descent`` for a file."""
    plan = settings.schedule
    plan = plan and {name: one for name, one in asdict(plan).items() if one is not None and one != ()}
    return {name: getattr(settings, name) for name in _SAME} | {"step_size": settings.step_sizes[0], "schedule": plan}


@dataclass(frozen=True)
class RunHeader:
    """The settings of a fit's run, and where it stands."""

    estimator: Title
    options: dict[Title, Any]
    num_steps: Number
    own_estimator: bool
    own_objects: tuple[Literal["step_size_at", "transformation"], ...]
    solver: Descent
    seed: Annotated[int, lambda seed: "" if seed >= 0 else "0 or more"]
    name: Title
    khat_samples: Number | None
    epochs: tuple[Number, Number]
    ended: Ended
    stops: tuple[Number, ...]

    def __post_init__(self):
        early, last = self.epochs
        if not early <= last <= self.solver.epochs or list(self.stops) != sorted(set(self.stops)):
            raise UserError("epochs and stops: they must rise")
        if not self.stops or self.stops[-1] > self.solver.epochs:
            raise UserError("stops: the last one is missing, or beyond the last epoch")


@dataclass(frozen=True)
class Header:
    """All settings in the file of a fit."""

    form: Number
    name: Title
    backend: Literal["jax", "torch"]
    dtype: Literal["float32", "float64"]
    guide: Guide
    blocks: dict[Title, Number]
    sites: dict[Title, tuple[Number, Number]]
    data: dict[Title, Argument]
    khat: Float | None
    notes: tuple[Text, ...]
    run: RunHeader | None

    def __post_init__(self):
        if self.run is not None and self.run.solver.dtype != self.dtype:
            raise UserError(f"run.solver.dtype: it must be {self.dtype}")

    @property
    def spans(self) -> dict[str, list[int]]:
        """First and last index of each site in the latent vector."""
        return {site: list(span) for site, span in self.sites.items()}


def digest(about: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of the settings, as in the file's stamp."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def header(where: str, about: Any, arrays: Mapping[str, np.ndarray]) -> Header:
    """The checked settings of a file; ``where`` names it.

    Raises:
        UserError: a key is missing, unknown or out of range; the arrays are not those of the settings; or the
            estimator or the guide is none of lowvar's own or of an installed package.
    """
    try:
        one: Header = read(Header, about, f"{where}: not a fit, or damaged")
    except UserError as error:
        raise UserError(shorten(str(error), _LONGEST, placeholder=" …")) from error
    if one.guide.guide not in (BLOCK, *GUIDES):
        raise unknown_name("guide", one.guide.guide, GUIDES, where=where)
    run = one.run
    if run is not None and not run.own_estimator and run.estimator not in [*GRADIENT]:
        raise unknown_name("estimator", run.estimator, GRADIENT, where=where)
    for said in _differences(one, arrays):
        raise UserError(f"{where}: not a fit, or damaged: {said}")
    return one


def _differences(one: Header, arrays: Mapping[str, np.ndarray]):
    """A sentence on each array that is missing, unknown or of another form, and on parts that are of two fits."""
    rank, dim = one.guide.rank, max((stop for _, stop in one.sites.values()), default=0)
    if rank is not None and rank * dim not in one.blocks.values():
        yield f"its guide has no matrix of rank {rank}"
    trace = arrays.get("elbo/iteration", np.zeros(0))
    forms: dict[str, tuple[tuple[int, ...] | None, str]] = {
        **{f"guide/{block}": ((size,), one.dtype) for block, size in one.blocks.items()},
        **{f"elbo/{name}": ((max(1, trace.size),), "") for name in ("iteration", "elbo", "elbo_se")},
        "density/prior": ((3,), ""), "density/some_rows": (None, ""), "density/all_rows": (None, ""),
    }  # fmt: skip
    if any(name.startswith("optimum/") for name in arrays):
        forms |= {f"optimum/{name}": ((dim,), "") for name in Optimum._fields}
    of_run = ("elbo", "elbo_se") if one.run is not None else ()
    forms |= {f"reached/{name}": ((len(one.run.stops), 1, 1), "") for name in of_run if one.run is not None}
    for name, (shape, dtype) in forms.items():
        array = arrays.get(name)
        if array is None:
            yield f"array {name!r} is missing"
        elif (shape is not None and array.shape != shape) or (dtype and str(array.dtype) != dtype):
            yield f"array {name!r} has shape {array.shape} and type {array.dtype}"
    groups = {"guide", "middle", "elbo", "density", "reached", "kept", "optimum"}
    for name, array in arrays.items():
        if name.partition("/")[0] not in groups or (
            name not in forms and name.startswith(("guide/", "elbo/", "optimum/"))
        ):
            yield f"unknown array {name!r}"
        if array.dtype.kind not in "fiub" and not name.startswith("kept/"):
            yield f"array {name!r} is of type {array.dtype}"
        if name.startswith("reached/") and (one.run is None or array.shape[:1] != (len(one.run.stops),)):
            yield f"array {name!r} has shape {array.shape}"
    kept = {name.split("/")[1] for name in arrays if name.startswith("kept/")}
    if kept != set(map(str, one.run.epochs if one.run is not None else ())):
        yield f"it has states at epochs {', '.join(sorted(kept)) or 'none'}"
    if one.run is not None and trace[-1] != one.run.num_steps:
        yield f"its trace ends at step {trace[-1]}, and the run at {one.run.num_steps}"
