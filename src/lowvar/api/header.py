"""The settings in the file of a fit, as a schema: they are checked before any is used."""

import hashlib
import json
from collections.abc import Mapping
from textwrap import shorten
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from pydantic import Field

from lowvar.analysis.gain import Optimum
from lowvar.api.watched import Ended
from lowvar.errors import UserError, unknown_name
from lowvar.estimators import GRADIENT
from lowvar.problems.amortised import BLOCK
from lowvar.problems.guides import GUIDES
from lowvar.studies.common_spec import Seed, Sparse, Strict, validated
from lowvar.studies.variational.spec import SolverSpec

_MOST = 2**31 - 1  # of a count: steps and rows are numbered by 32-bit integers
_LONGEST = 400  # characters of a message
# `fit` leaves these settings at their defaults
_UNUSED = {"per_decade", "repetitions", "batches", "initial", "diagnostics", "per_row"}

Number = Annotated[int, Field(ge=0, le=_MOST, strict=True)]
Text = Annotated[str, Field(max_length=10_000)]


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it must be printable")
    return text


Title = Annotated[Text, Field(min_length=1), pydantic.AfterValidator(_shown)]


class Guide(Sparse):
    """The variational family, of lowvar's own or of an installed package."""

    guide: Title
    rank: Annotated[int, Field(ge=1, le=_MOST, strict=True)] | None = None


class Argument(Strict):
    """One of the model's arguments: shape, None of an object that is no array, type and hash."""

    shape: tuple[Annotated[int, Field(ge=0, strict=True)], ...] | None
    dtype: Title
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Settings(Strict):
    """The settings of a fit's run, and where it stands."""

    estimator: Title
    options: dict[Title, Any]
    num_steps: Number
    own_estimator: pydantic.StrictBool
    own_objects: tuple[Literal["step_size_at", "transformation"], ...]
    solver: SolverSpec
    seed: Seed
    name: Title
    khat_samples: Number | None
    epochs: tuple[Number, Number]
    ended: Ended
    stops: Annotated[tuple[Number, ...], Field(min_length=1)]

    @pydantic.model_validator(mode="after")
    def _of_one_run(self):
        solver, (early, last) = self.solver, self.epochs
        other = [name for name in sorted(_UNUSED) if getattr(solver, name) != _DEFAULTS[name]]
        other += ["step_sizes"] * (len(solver.step_sizes) > 1)
        counts = ("batch_size", "particles", "elbo_samples", "epochs")
        other += [name for name in counts if getattr(solver, name) > _MOST]
        if missing := _WRITTEN - solver.model_fields_set:
            raise ValueError(f"solver: key {min(missing)!r} is missing")
        if other:
            raise ValueError(f"solver: {other[0]}: fit writes no such value")
        if not early <= last <= solver.epochs or any(a >= b for a, b in zip(self.stops, self.stops[1:], strict=False)):
            raise ValueError("epochs and stops: they must rise")
        if self.stops[-1] > solver.epochs:
            raise ValueError("stops: they go beyond the last epoch")
        return self


_WRITTEN = {name for name, one in SolverSpec.model_fields.items() if one.default is not None}  # None is left out
_DEFAULTS = {name: SolverSpec.model_fields[name].default for name in _UNUSED} | {"initial": "origin"}


class Header(Strict):
    """All settings in the file of a fit."""

    form: Number
    name: Title
    backend: Literal["jax", "torch"]
    dtype: Literal["float32", "float64"]
    guide: Guide
    blocks: dict[Title, Number]
    sites: dict[Title, tuple[Number, Number]]
    data: dict[Title, Argument]
    khat: Annotated[float, Field(allow_inf_nan=True)] | None
    notes: tuple[Text, ...]
    run: Settings | None

    @pydantic.model_validator(mode="after")
    def _of_one_type(self):
        if self.run is not None and self.run.solver.dtype != self.dtype:
            raise ValueError(f"run.solver.dtype: it must be {self.dtype}")
        return self

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
        one: Header = validated(Header, about, where=f"{where}: not a fit, or damaged")
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
