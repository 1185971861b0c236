"""Fits on disk: one npz with arrays and settings, no code, for the model and the data that it was made from.

The settings have a schema, and are checked before any is used.
"""

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Annotated, Any, Literal

import jax
import numpy as np

from lowvar.core import artifact, npz, schema
from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.schema import at_most, within
from lowvar.errors import UserError, one_line, require, unknown_name
from lowvar.registry import label
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import schedule_of
from lowvar.vi.guides.forms import BLOCK
from lowvar.vi.guides.gaussian import GUIDES, Family, LowRank, is_amortised
from lowvar.vi.judgement import Optimum
from lowvar.vi.run import engine as engines
from lowvar.vi.run.fit_run import Ended, FitRun
from lowvar.vi.run.fixed_draws import FixedDraws
from lowvar.vi.run.settings import Method, Settings
from lowvar.vi.settings import holds_data, problem_of, start_of, starts

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
    options: dict[Title, Any] | None = None


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
    fixed: FixedDraws | None = None

    def __post_init__(self):
        if self.run is not None and self.fixed is not None:
            raise UserError("run and fixed: a fit has one of them")
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
        one: Header = schema.read(Header, about, f"{where}: not a fit, or damaged")
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


_FORM = 4  # of the file
_ROWS = 7  # rows whose log-likelihood identifies a model whose data are compared too
_CHUNK = 2**14  # rows evaluated at once, of a model that holds its data
_RELATIVE = 1e-3  # difference of densities attributed to rounding, in single precision


def write(fit, path) -> None:
    """See ``Fit.save``."""
    arrays, mark = _content(fit)
    artifact.write_arrays(path, arrays, mark)


def read(path, model, data, guide, estimator, own) -> tuple[Any, dict[str, np.ndarray], Any, dict[str, Any]]:
    """What a file holds of a ``Fit``, checked against the model and the data.

    Args:
        path: the file.
        model: as for ``lowvar.load``; so are ``data``, ``guide`` and ``estimator``.
        data: see there.
        guide: see there.
        estimator: see there.
        own: the caller's own objects, see ``Settings``.

    Returns:
        The problem, parameters of the guide by block, the ELBO trace, and further attributes of the ``Fit``.

    Raises:
        UserError: see ``lowvar.load``.
    """
    arrays, mark = artifact.read_arrays(path, rebuild="lowvar.fit(model, data).save(path)")
    about = mark.get("fit")
    if not isinstance(about, dict):
        raise UserError(f"{path}: no fit, but another file of lowvar")
    if about.get("form") != _FORM:
        versions = mark.get("versions")
        raise _other_form(str(path), about, versions.get("lowvar") if isinstance(versions, dict) else None)
    if mark.get("spec") != digest(about):
        raise UserError(f"{path}: damaged, its settings are not those that were written; fit again")
    return _content_of(str(path), arrays, about, model, data, guide, estimator, own)


def _other_form(where: str, about, version: str | None = None) -> UserError:
    """Why a fit that another version of lowvar wrote cannot be read."""
    from lowvar import __version__

    form = f"{about.get('form')!r:.20}"
    wrote = f"{form}, by lowvar {f'{version}'.split()[0]:.20}" if version else form
    return UserError(
        f"{where}: the fit was saved in format {wrote}, and lowvar {__version__} reads format {_FORM}: fit again, or "
        "load it with the version that wrote it and keep fit.params, from which init= starts"
    )


def pickled(fit, back) -> tuple:
    """For ``pickle``: functions by cloudpickle, data by pickle's own rules, the rest as in the file; ``back`` reads it.

    Raises:
        UserError: as ``write``; or the model, or what it refers to, cannot be pickled; or cloudpickle is missing.
    """
    require("the pickle of a fit", "cloudpickle", "workers")
    import cloudpickle

    arrays, mark = _content(fit)
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    problem, run = fit.problem, fit.run
    data = {name: np.asarray(one) if isinstance(one, jax.Array) else one for name, one in problem.data.items()}
    factory = run.method.factory if run and _own(run.method.factory) else None
    own = dict(run.settings.own) if run else {}
    guide = problem.guide.source if problem.guide.amortised else None
    try:
        functions = cloudpickle.dumps((problem.model, guide, factory, own))
    except Exception as error:  # whatever the objects' own methods raise
        raise UserError(
            f"{problem.name}: the fit cannot be pickled, since its model refers to something that cannot: "
            f"{' '.join(str(error).split())[:200]}; write fit.save(path) instead, which needs no model"
        ) from error
    return back, (functions, data if problem.data else None, stream.getvalue(), json.dumps(mark["fit"]))


def unpickled(functions: bytes, data, content: bytes, settings: str):
    """As ``read``, of a pickle by ``pickled``."""
    require("the pickle of a fit", "cloudpickle", "workers")
    import cloudpickle

    model, *objects = cloudpickle.loads(functions)
    arrays = npz.read(io.BytesIO(content))
    about = json.loads(settings)
    if about["form"] != _FORM:
        raise _other_form("pickle", about)
    return _content_of("pickle", arrays, about, model, data, *objects)


# --- the content of the file -----------------------------------------------------------------------------------------


def _content(fit) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and stamp of the file."""
    problem, run = fit.problem, fit.run
    if problem.guide.name not in GUIDES and not problem.guide.amortised:
        raise UserError(f"{problem.name}: a fit with a guide of your own cannot be saved or pickled; keep fit.params")
    if not problem.in_memory:
        raise UserError(
            f"{problem.name}: a fit whose rows are in files cannot be saved or pickled: keep fit.params, from which "
            "init= starts"
        )
    arrays = {f"guide/{block}": np.asarray(value) for block, value in fit.guide_params.items()}
    arrays |= {f"elbo/{name}": fit.elbo[name].to_numpy() for name in fit.elbo}
    if fit.optimum is not None:
        arrays |= {f"optimum/{name}": value for name, value in fit.optimum._asdict().items()}
    arrays |= {f"density/{name}": value for name, value in densities(problem, fit.guide_params).items()}
    middle = problem.backend.to_numpy(problem.unravel(_at(problem, fit.guide_params, 0.0)))
    rows = problem.densities.layout.sites if problem.guide.amortised else ()
    latent = [site for site in problem.sites if site not in (*problem.params, *rows)]
    arrays |= {f"middle/{site}": np.asarray(middle[site]) for site in latent}
    about = {
        "form": _FORM,
        "name": problem.name,
        "backend": problem.backend.name,
        "dtype": str(np.dtype(problem.dtype)),
        "guide": _guide(problem),
        "blocks": {block: int(np.size(value)) for block, value in fit.guide_params.items()},
        "sites": {site: [where.start, where.stop] for site, where in problem.sites.items()},
        "data": {name: _fingerprint(value) for name, value in problem.data.items()},
        "khat": None if fit.khat is None else str(fit.khat),
        "notes": list(fit.notes),
        "run": None,
    }
    if fit.fixed is not None:
        about["fixed"] = asdict(fit.fixed)
    if run is not None and run.stops:
        about["run"] = {
            "estimator": run.method.estimator, "options": run.method.options, "num_steps": run.num_steps,
            "own_estimator": _own(run.method.factory), "own_objects": sorted(run.settings.own),
            "solver": descent(run.settings), "seed": run.seed, "name": run.name,
            "khat_samples": run.khat_samples, "epochs": list(run.epochs), "ended": run.ended,
            "stops": list(run.stops),
        }  # fmt: skip
        arrays |= {f"reached/{name}": value for name, value in run.measured.items()}
        for epoch in set(run.epochs):
            arrays |= {f"kept/{epoch}/{i}": leaf for i, leaf in enumerate(problem.backend.leaves(run.copies[epoch]))}
    try:
        settings = digest(about)
    except TypeError as error:
        raise UserError(f"save: an option of the estimator or guide is neither a number nor text: {error}") from error
    return arrays, artifact.stamp(settings, {n: f["sha256"] for n, f in about["data"].items()}) | {"fit": about}


def _guide(problem) -> dict[str, Any]:
    """The guide, with the options that ``fit`` was given."""
    guide = problem.guide
    if type(guide) is LowRank:
        return {"guide": guide.name, "rank": guide.rank}
    options = dict(problem.family.options) if isinstance(problem.family, Family) else {}
    return {"guide": guide.name} | ({"options": options} if options else {})


def _own(factory) -> bool:
    """Whether an estimator is a function, or the name of one in a module, which a file must not import."""
    return callable(factory) or ":" in factory


def _fingerprint(value) -> dict[str, Any]:
    """Shape, type and hash of one of the model's arguments."""
    if not isinstance(value, jax.Array | np.ndarray):
        leaves = [one for one in jax.tree.leaves(value) if isinstance(one, jax.Array | np.ndarray)]
        plain = repr(jax.tree.map(lambda one: "array" if isinstance(one, jax.Array | np.ndarray) else one, value))
        plain = plain if " at 0x" not in plain else type(value).__name__  # an address differs in every process
        parts = [plain.encode(), *(np.ascontiguousarray(leaf).tobytes() for leaf in leaves)]
        return {"shape": None, "dtype": type(value).__name__, "sha256": hashlib.sha256(b"".join(parts)).hexdigest()}
    array = np.ascontiguousarray(value)
    sha = hashlib.sha256(array.view(np.uint8).data if array.size and array.ndim else array.tobytes()).hexdigest()
    return {"shape": array.shape, "dtype": str(array.dtype), "sha256": sha}


def _at(problem, guide_params, shift: float):
    """The guide's point with all noise equal to ``shift``, ``(dim,)``; its location for 0."""
    params = {block: problem.backend.asarray(np.asarray(value, problem.dtype)) for block, value in guide_params.items()}
    noise = np.full(problem.noise_dim, shift, problem.dtype)
    return problem.guide.transform(params, problem.backend.asarray(noise))


def densities(problem, guide_params) -> dict[str, np.ndarray]:
    """Log priors at three points of the guide, and log-likelihoods of rows there: another model has others.

    The data of a model that holds them are known by the log-likelihoods of all rows, at one point.
    """
    backend, N = problem.backend, problem.N
    few = np.unique(np.linspace(0, N - 1, _ROWS).astype(np.int32))
    chunks = np.array_split(np.arange(N, dtype=np.int32), -(-N // _CHUNK)) if not problem.data else []
    prior, likelihood = backend.jit(problem.log_prior), backend.jit(problem.log_likelihood)
    points = [_at(problem, guide_params, shift) for shift in (-1.0, 0.0, 1.0)]
    rows = [likelihood(points[-1], backend.asarray(index)) for index in chunks]
    return {
        "prior": np.array([float(prior(z)) for z in points]),
        "some_rows": np.stack([backend.to_numpy(likelihood(z, backend.asarray(few))) for z in points]),
        "all_rows": np.concatenate([np.zeros(0), *map(backend.to_numpy, rows)]).astype(np.float32),
    }


# --- and back --------------------------------------------------------------------------------------------------------


def _content_of(where: str, arrays, about, model, data, guide, estimator, own):
    """See ``read``; ``where`` names the file in messages."""
    head = header(where, about, arrays)
    amortised = head.guide.guide == BLOCK
    if amortised != is_amortised(guide):
        needed = "the file does not hold the function of its guide: give guide=lowvar.Amortised(function, params)"
        raise UserError(f"{where}: {needed if amortised else 'the file holds its guide: leave guide out'}")
    if holds_data(model) != (head.backend == "torch"):
        other = "a TorchModel" if head.backend == "torch" else "a NumPyro model"
        raise UserError(f"{where}: the fit is of {other} ({head.name}); give that model")
    if not holds_data(model):
        _check_data(where, head, model, data or {})
    middle = {f"{_rest(name)}_auto_loc": value for name, value in arrays.items() if name.startswith("middle/")}
    start = start_of(model, middle, 0)
    rank = {} if head.guide.rank is None else {"rank": head.guide.rank}
    family = {**(head.guide.options or {}), "guide": head.guide.guide, **rank}
    problem = problem_of(model, data, **start, name=head.name, init_is=where, guide=guide or family)
    sites = {site: [at.start, at.stop] for site, at in problem.sites.items()}
    params = {_rest(name): value for name, value in arrays.items() if name.startswith("guide/")}
    if sites != head.spans or str(np.dtype(problem.dtype)) != head.dtype:
        raise UserError(
            f"{where}: the fit is of another model: its sites were {_sites(head.spans)} in {head.dtype}, "
            f"and those of {problem.name} are {_sites(sites)} in {np.dtype(problem.dtype)}"
        )
    if dict(problem.blocks) != head.blocks:
        raise UserError(f"{where}: the fit has another guide, with parameters {head.blocks}, not {problem.blocks}")
    saved = {_rest(name): value for name, value in arrays.items() if name.startswith("density/")}
    _check_densities(where, saved, densities(problem, params))
    reached = {_rest(name): value for name, value in arrays.items() if name.startswith("reached/")}
    elbo = {_rest(name): value for name, value in arrays.items() if name.startswith("elbo/")}
    import pandas as pd

    left = {_rest(name): value for name, value in arrays.items() if name.startswith("optimum/")}
    run = _run(where, head.run, arrays, reached, problem, estimator, own) if head.run else None
    khat, optimum = None if head.khat is None else float(head.khat), Optimum(**left) if left else None
    more = {"khat": khat, "notes": head.notes, "run": run, "fixed": head.fixed, "optimum": optimum}
    return problem, params, pd.DataFrame(elbo), more


def _rest(name: str) -> str:
    return name.partition("/")[2]


def _sites(sites: Mapping[str, Any]) -> str:
    return ", ".join(f"{site} ({stop - start})" for site, (start, stop) in sites.items())


def _check_densities(where, saved, now) -> None:
    """Rejects a model with other densities than those of the fit, or with other data in it."""
    if any(saved[name].shape != now[name].shape for name in now):
        raise UserError(f"{where}: the model has another number of rows than in the saved fit; fit again")
    differ = {
        name: ~np.isclose(saved[name], value, rtol=_RELATIVE, atol=_RELATIVE, equal_nan=True)
        for name, value in now.items()
    }
    if (rows := np.flatnonzero(differ["all_rows"])).size and not differ["prior"].any():
        row = int(rows[0])
        raise UserError(
            f"{where}: {rows.size} of the model's {len(differ['all_rows'])} rows have other log-likelihoods than in "
            f"the saved fit (row {row}: {now['all_rows'][row]:.6g}, not {saved['all_rows'][row]:.6g}): the model or "
            "the data in it have changed since; fit again"
        )
    if any(different.any() for different in differ.values()):
        raise UserError(
            f"{where}: the model's densities differ from those of the saved fit: the model has changed since; fit again"
        )


def _check_data(where, head: Header, model, data) -> None:
    """Rejects data that are not those of the fit."""
    from lowvar.vi.numpyro.trace import jax_arguments

    saved = {name: asdict(one) for name, one in head.data.items()}
    now = {name: _fingerprint(one) for name, one in jax_arguments(model, data, head.name).items()}
    if set(saved) != set(now):
        raise UserError(f"{where}: the fit's data were {', '.join(saved) or 'none'}, not {', '.join(now) or 'none'}")
    for name, was in saved.items():
        given = now[name]
        for what, word in (("shape", "shape"), ("dtype", "type")):
            if was[what] != given[what]:
                hint = "; set jax_enable_x64 as in the fit" if was["dtype"][:-2] == str(given["dtype"])[:-2] else ""
                raise UserError(
                    f"{where}: {name!r} had {word} {was[what]} in the fit, and has {given[what]} now"
                    + (hint if what == "dtype" else "")
                )
        if was["sha256"] != given["sha256"]:
            raise UserError(
                f"{where}: {name!r} has other values than in the fit; load it with its own data, and start a fit on "
                "these from it: lowvar.fit(model, data, init=fit)"
            )


def _run(where, saved, arrays, reached, problem, estimator, own) -> FitRun | None:
    """Settings and state; None if an object is missing that they need."""
    _check_own(where, saved, estimator, own)
    if (saved.own_estimator and estimator is None) or any(name not in own for name in saved.own_objects):
        return None
    method = Method(estimator if saved.own_estimator else saved.estimator, saved.options)
    settings = saved.solver.settings({name: own[name] for name in saved.own_objects})
    try:
        engine = _engine(problem, method, settings, saved)
        kept, like = {}, problem.backend.form(engine.init)
    except Exception as error:  # an estimator may raise anything for options that it did not expect
        raise UserError(f"{where}: estimator {method.estimator!r} cannot be made: {one_line(error)}") from error
    for epoch in set(saved.epochs):
        names = [name for name in arrays if name.startswith(f"kept/{epoch}/")]
        leaves = [arrays[f"kept/{epoch}/{i}"] for i in range(len(names)) if f"kept/{epoch}/{i}" in arrays]
        if [(one.shape, one.dtype) for one in leaves] != problem.backend.shapes(like):
            raise UserError(
                f"{where}: the estimator or optimizer keeps another state than when the fit was saved, by another "
                "version of lowvar or optax: load it with that one and keep fit.params, from which init= starts"
            )
        kept[epoch] = problem.backend.rebuilt(leaves, like)
    return FitRun(
        method, settings, saved.num_steps, saved.seed, saved.name, saved.khat_samples, saved.epochs, kept,
        saved.stops, reached, saved.ended,
    )  # fmt: skip


def _check_own(where, saved, estimator, own) -> None:
    """Rejects an object of the caller's that the fit did not have."""
    if estimator is not None:
        names = [label(one).rpartition(":")[2] for one in (estimator, saved.estimator)]
        if not saved.own_estimator or names[0] != names[1]:
            right = f"give {saved.estimator}" if saved.own_estimator else "leave it out"
            raise UserError(f"{where}: estimator {label(estimator)!r}: the fit's was {saved.estimator!r}; {right}")
    given = {"transformation": "optimizer", "step_size_at": "step_size"}
    for name in own:
        if name not in saved.own_objects:
            raise UserError(f"{where}: {given[name]}: the fit was not given one; leave it out")


def _engine(problem, method, settings, saved):
    """The engine of the run."""
    if settings.batch_size > problem.N:
        raise UserError(f"batches of {settings.batch_size} out of {problem.N} rows")
    return engines.build(
        problem, method, settings, seed=saved.seed, name=saved.name, starts=starts(problem), num_steps=saved.num_steps,
    )  # fmt: skip
