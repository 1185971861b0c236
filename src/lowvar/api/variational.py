"""The public face for Bayesian models: ``fit`` and ``decompose``."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lowvar.analysis import decomposition as analysis
from lowvar.errors import UserError, unknown_name
from lowvar.estimators import GRADIENT
from lowvar.noise import GAUSSIAN, named_key
from lowvar.problems.numpyro_model import NumPyroProblem, from_numpyro
from lowvar.runs import loop
from lowvar.runs import variational as engines
from lowvar.runs.diagnostics import diagnose, first_batch, reference_points
from lowvar.runs.spec import DecompositionSpec, MethodSpec, SolverSpec, validated
from lowvar.solvers import OWN, descend

_REFERENCE = 2**22  # single-row gradients of the gradient that errors are measured from
_DESIGN_BUDGET = 2**22  # single-row gradients of a decomposition, above which data rows are sampled


@dataclass(frozen=True, repr=False)
class Fit:
    """What ``fit`` returns; printing it gives one line.

    Attributes:
        params: under ``AutoNormal``'s own names, ``{site}_auto_loc`` and ``{site}_auto_scale``, in the site's
            unconstrained shape; ``numpyro.infer.Predictive`` takes them with ``guide``.
        elbo: table with the columns ``iteration, elbo, elbo_se`` (nats).
        problem: the model as a ``VariationalProblem``.
        mean_field: the same parameters as vectors, ``{"mu": (dim,), "log_sigma": (dim,)}``.
    """

    params: dict[str, np.ndarray]
    elbo: Any
    problem: NumPyroProblem
    mean_field: dict[str, np.ndarray]

    def __repr__(self) -> str:
        last = self.elbo.iloc[-1]
        elbo, error = float(last["elbo"]), float(last["elbo_se"])
        digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 8)) if error > 0 else 4
        reached = f"ELBO {elbo:.{digits}f} +- {error:.{digits}f} nats after {int(last['iteration'])} steps"
        return f"Fit({self.problem.name}, dim {self.problem.dim}: {reached})"

    @cached_property
    def guide(self):
        """A ``numpyro.infer.autoguide.AutoNormal`` of the model and its data, which understands ``params``."""
        from numpyro import handlers
        from numpyro.infer.autoguide import AutoNormal

        guide = AutoNormal(self.problem.model)
        with handlers.block(), handlers.seed(rng_seed=0):
            guide(**self.problem.data)  # sets it up on the data, so that it can then be used without them
        return guide

    def sample(self, num_samples: int = 1000, seed: int = 0) -> dict[str, np.ndarray]:
        """Draws from the fitted posterior, constrained: ``{site: (num_samples, ...)}``.

        Sites inside the data plate are not among them; ``Predictive`` has those.
        """
        num_samples, seed = _whole("num_samples", num_samples, 1), _whole("seed", seed, 0)
        eps = jax.random.normal(named_key(seed, "posterior"), (num_samples, self.problem.dim), self.problem.dtype)
        z = self.mean_field["mu"][None, :] + np.exp(self.mean_field["log_sigma"])[None, :] * eps
        return {site: np.asarray(value) for site, value in jax.jit(jax.vmap(self.problem.constrain))(z).items()}

    def to_arviz(self, num_samples: int = 1000, seed: int = 0):
        """The draws as ArviZ inference data (one chain).

        Raises:
            UserError: ArviZ is not installed.
        """
        try:
            import arviz
        except ModuleNotFoundError as error:
            raise UserError("to_arviz needs the package arviz: pip install 'lowvar[arviz]'") from error
        posterior = {site: draws[None] for site, draws in self.sample(num_samples, seed).items()}
        return arviz.from_dict(posterior=posterior)


def fit(
    model: Callable,
    data: Mapping[str, Any],
    *,
    estimator: str = "joint",
    optimizer: str = "adam",
    step_size: float = 0.01,
    num_steps: int = 5000,
    batch_size: int | None = None,
    num_particles: int = 1,
    noise: str = "iid",
    schedule: Mapping[str, Any] | None = None,
    seed: int = 0,
    elbo_samples: int = 200,
    progress: bool | None = None,
    **options: Any,
) -> Fit:
    """Mean-field variational inference of a NumPyro model.

    Args:
        model: a NumPyro model with one data plate, indexed by it.
        data: the model's keyword arguments, as ``MCMC.run(key, **data)`` takes them.
        estimator: of the gradient; ``lowvar list estimators`` says what there is.
        optimizer: ``"adam"`` or ``"sgd"``.
        step_size: the optimizer's.
        num_steps: updates, rounded up to whole passes over the data.
        batch_size: data rows of a mini-batch; 100 if not given, or all rows if they are fewer.
        num_particles: noise points per update, shared by the rows of the batch; for ``mlmc`` those of the first.
        noise: how an update draws its points: ``"iid"``, ``"antithetic"`` (pairs), ``"orthogonal"`` or ``"rqmc"``.
        schedule: how step sizes fall, as in ``{"kind": "step", "beta": 0.5, "r": 100}``: by half every 100 updates.
            Other kinds are ``"time"`` and ``"exponential"`` (with ``beta``) and ``"piecewise"`` (with ``values``).
            ``mlmc`` takes fewer points as they fall.
        seed: of starts and noise; the same seed gives the same result.
        elbo_samples: noise points of each ELBO in the trace, on all the data.
        progress: whether to draw a bar; by default on a terminal only.
        **options: of the estimator.

    Returns:
        A ``Fit``.

    Raises:
        UserError: an unknown name, a number out of range, a model without one data plate, or divergence.

    References:
        Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024.
    """
    if not isinstance(estimator, str):
        raise UserError(f"estimator: give its name, such as 'joint', not {type(estimator).__name__}")
    _check_estimator(estimator)
    seed = _whole("seed", seed, 0)
    problem = from_numpyro(model, data)
    if "points" in options:
        raise UserError("points: the number of noise points is num_particles here")
    if not isinstance(schedule, Mapping | None):
        raise UserError(
            f'schedule = {schedule!r}: give its settings, such as {{"kind": "step", "beta": 0.5, "r": 100}}'
        )
    solver = _solver(problem, optimizer, step_size, num_steps, batch_size, num_particles, elbo_samples, schedule, noise)
    method = validated(MethodSpec, {"estimator": estimator, "options": options}, where="fit")
    runs = engines.build(problem, method, solver, seed=seed, name=problem.name)
    result = _run(runs, progress, f"fit {problem.name}")
    return _fit(problem, result)


@dataclass(frozen=True)
class Decomposition:
    """What ``decompose`` returns; printing it gives the summary.

    Attributes:
        table: pandas, columns ``method, block, source, variance, low, high, share, share_low, share_high,
            batch_size, replicates``: variances of a batch's gradient with 95 % intervals.
        time: time of a step by estimator, with its share of full passes, relative to ``naive`` (or the first one).
        params: the parameters at which the variance was taken, under ``AutoNormal``'s names.
        title: what the summary calls the model and the place.
        carried: for estimators that keep their past (``mlmc``, ``storm`` and their like): the squared error that it
            has left them, nats^2, over all parameters. It is in no variance, which is over fresh noise.
    """

    table: Any
    time: dict[str, float]
    params: dict[str, np.ndarray]
    title: str
    carried: dict[str, float] = field(default_factory=dict)

    def summary(self) -> str:
        """The table for eyes, and what follows from it."""
        from lowvar.analysis.report import summary

        return summary(self.table, self.time, self.title, self.carried)

    def __str__(self) -> str:
        return self.summary()

    def plot(self, stem=None):
        """The figure of shares and totals; saved as ``stem.svg``, ``.png`` and ``.csv`` if a stem is given."""
        from lowvar import figures

        table = self.table.assign(problem=self.title.split(" (")[0], epoch=0, iteration=0, end=True)
        if stem is not None:
            figures.picture("bars_for_user", table, stem)
        return figures.bars_for_user(table)


def decompose(
    model: Callable,
    data: Mapping[str, Any],
    params: "Mapping[str, Any] | Fit | None" = None,
    *,
    estimators: Sequence[str] | Mapping[str, str | Mapping[str, Any]] = ("naive", "cv", "joint"),
    batch_size: int | None = None,
    num_particles: int = 1,
    optimizer: str = "adam",
    step_size: float = 0.01,
    num_steps: int = 5000,
    replicates: int = 32,
    columns: int = 8,
    rows: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    name: str | None = None,
) -> Decomposition:
    """Where the noise of a model's gradient comes from, and which estimator would remove it.

    Args:
        model: a NumPyro model with one data plate, indexed by it.
        data: the model's keyword arguments.
        params: where to look: a ``Fit`` or its ``params``, or an ``AutoNormal`` SVI result's. Without them a fit
            with the last of ``estimators`` is made first. Estimators with a memory then have the one that they would
            have at the end of that fit; with ``params``, one filled at those parameters.
        estimators: which to compare, a list of names; or a mapping of labels of your own to names, or to
            ``{"estimator": name, ...}`` with the estimator's options, such as
            ``{"naive": "naive", "joint, late": {"estimator": "joint", "naive_epochs": 3}}``. The table has the labels;
            what is relative is relative to ``naive``, or to the first if none is called so.
        batch_size: data rows of a mini-batch; 100 if not given, or all rows if they are fewer.
        num_particles: noise points per update.
        optimizer: of the fit.
        step_size: of the fit.
        num_steps: length of the fit.
        replicates: independent crossed designs; the intervals' sample size.
        columns: noise points of a design.
        rows: data rows of a design, drawn with replacement; all rows if not given, unless that is too many.
        seed: of the fit and of the designs.
        progress: whether to draw a bar; by default on a terminal only.
        name: what the summary calls the model; its function's name if not given.

    Returns:
        A ``Decomposition``, of batches drawn without replacement.

    Raises:
        UserError: as ``fit`` does.

    References:
        Wang, Geffner and Domke, 2024, section 3; unbiased mean squares of a crossed two-way design.
    """
    methods, seed, step_size = _methods(estimators), _whole("seed", seed, 0), _step_size(step_size)
    problem = from_numpyro(model, data, name=name)
    params = params.params if isinstance(params, Fit) else params
    if not isinstance(params, Mapping | None):
        raise UserError(f"params: give a Fit, or a dict under AutoNormal's names, not {type(params).__name__}")
    if rows is None and problem.N * columns * replicates > _DESIGN_BUDGET:
        rows = max(32, _DESIGN_BUDGET // (columns * replicates))
    spec = validated(
        DecompositionSpec,
        {"leader": list(methods)[-1], "step_size": step_size, "epochs": 1, "replicates": replicates,
         "columns": columns, "rows": rows},
        where="decompose",
    )  # fmt: skip
    solver = _solver(problem, optimizer, step_size, num_steps, batch_size, num_particles, elbo_samples=2)
    runs, parts = engines.follow(problem, methods, spec.leader, solver, seed=seed, name=problem.name)
    if params is None:
        result = _run(runs, progress, f"fit {problem.name}")
        here, state = _fit(problem, result), jax.tree.map(lambda leaf: leaf[0, 0], result.state[0])
        where, memory, found = "at its fit", state.estimator, state.params
    else:
        here = _Given(_from_auto_normal(problem, params))
        where, found = "at the given parameters, memories filled there", jax.tree.map(jnp.asarray, here.mean_field)
        memory = _filled(runs, found)
    design = analysis.designs(
        problem, replicates=replicates, columns=columns, rows=rows, eps="iid", samples=num_particles,
        key=analysis.design_key(seed, problem.name),
    )  # fmt: skip
    values = {
        name: analysis.decomposer(one, all_rows=rows is None)(memory[name], found, *design)
        for name, one in parts.items()
    }
    table = analysis.table(problem, values, solver.batch_size, replacement=False)
    title = f"{problem.name} {where} ({problem.N} rows, {problem.dim} parameters, batch {solver.batch_size})"
    auto = here.params if isinstance(here, Fit) else dict(params or {})
    carried = _carried(runs, parts, memory, found, problem)
    return Decomposition(table, _times(runs, parts, found), auto, title, carried)


def _carried(runs, parts, memory, params, problem):
    """The squared errors that estimators keep from earlier steps."""
    count = int(np.clip(_REFERENCE // problem.N, 64, 4096))
    for_noise, for_reference = jax.random.split(analysis.design_key(1, problem.name))
    keys, found = jax.random.split(for_noise, 64), {}
    for name, one in parts.items():
        if one.properties.keeps:

            @jax.jit
            def errors(state, one=one):
                reference = reference_points(for_reference, count, problem.dim, problem.dtype)
                return diagnose(one, state, params, keys, reference, partial(first_batch, runs.sampler))

            of = errors(memory[name])
            found[name] = float(of.squared_error - of.variance)
    return found


@dataclass(frozen=True)
class _Given:
    mean_field: dict[str, np.ndarray]


def _check_estimator(name: str) -> None:
    """Refuses what is not the name of an estimator."""
    if name in OWN:
        raise UserError(
            f"estimator {name!r}: it is a solver with an update of its own, which fit and decompose do not run; take "
            f"an estimator, such as 'joint', or run {name} as a method of an experiment: lowvar run EXPERIMENT.yaml"
        )
    if name not in GRADIENT:
        raise unknown_name("estimator", name, GRADIENT)


def _methods(estimators) -> dict[str, MethodSpec]:
    """What ``decompose`` compares, by label."""
    names = (estimators,) if isinstance(estimators, str) else estimators
    if not isinstance(names, Mapping | list | tuple):
        raise UserError(
            f"estimators: give a list of names, or a mapping of labels to names, not {type(estimators).__name__}"
        )
    if not isinstance(names, Mapping):
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise UserError(
                f"estimators: a list has names only, not {wrong[0]!r}; options go into a mapping: "
                "{'label': {'estimator': 'joint', ...}}"
            )
        names = {name: name for name in names}
    if not names:
        raise UserError("estimators: name at least one")
    methods = {}
    for label, given in names.items():
        options = dict(given) if isinstance(given, Mapping) else {"estimator": given}
        estimator = options.pop("estimator", None)
        if not isinstance(label, str) or not isinstance(estimator, str):
            raise UserError(
                f"estimators: {label!r}: {given!r}: a label needs a name such as 'joint', "
                "or {'estimator': 'joint', ...} with options"
            )
        _check_estimator(estimator)
        methods[label] = validated(
            MethodSpec, {"estimator": estimator, "options": options}, where=f"estimators: {label}"
        )
    return methods


def _whole(name: str, value, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UserError(f"{name} {value!r}: it must be a whole number, {least} or more")
    return int(value)


def _step_size(value) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not 0 < value < np.inf
    ):
        raise UserError(f"step_size {value!r}: it must be a positive number")
    return float(value)


def _solver(
    problem, optimizer, step_size, num_steps, batch_size, num_particles, elbo_samples, schedule=None, noise="iid"
):
    if noise not in GAUSSIAN:
        raise unknown_name("noise", str(noise), GAUSSIAN)
    size = min(100, problem.N) if batch_size is None else batch_size
    size = int(size) if isinstance(size, np.integer) else size
    if isinstance(size, bool) or not (isinstance(size, int) and 1 <= size <= problem.N):
        raise UserError(f"batch size {size}: it must be a whole number between 1 and the number of rows, {problem.N}")
    if not isinstance(optimizer, str):
        raise UserError(f"optimizer: give its name, 'adam' or 'sgd', and step_size, not {type(optimizer).__name__}")
    num_steps, num_particles = _whole("num_steps", num_steps, 1), _whole("num_particles", num_particles, 1)
    step_size = _step_size(step_size)
    return validated(
        SolverSpec,
        {"optimizer": optimizer, "step_sizes": (step_size,), "batch_size": size, "samples": num_particles,
         "initial": "origin", "epochs": -(-num_steps // -(-problem.N // size)), "elbo_samples": elbo_samples,
         "dtype": str(np.dtype(problem.dtype)), "schedule": schedule, "eps": noise},
        where="fit",
    )  # fmt: skip


def _run(runs, progress, label):
    from tqdm import tqdm

    disable = None if progress is None else not progress
    with tqdm(total=runs.solver.epochs, desc=label, unit="epoch", disable=disable, leave=False) as bar:
        return loop.run(runs, progress=bar.update)


def _fit(problem, result):
    mean_field = {block: value[0, 0] for block, value in result.params.items()}
    if not all(np.isfinite(value).all() for value in mean_field.values()):
        raise UserError(f"{problem.name}: the fit diverged; use a smaller step_size")
    trace = result.trace[["iteration", "elbo", "elbo_se"]]
    return Fit(_to_auto_normal(problem, mean_field), trace, problem, mean_field)


def _to_auto_normal(problem, mean_field):
    loc = problem.unravel(jnp.asarray(mean_field["mu"]))
    scale = problem.unravel(jnp.exp(jnp.asarray(mean_field["log_sigma"])))
    found = {f"{site}_auto_loc": np.asarray(value) for site, value in loc.items()}
    return found | {f"{site}_auto_scale": np.asarray(value) for site, value in scale.items()}


def _from_auto_normal(problem, params):
    vectors = {}
    for block, suffix in (("mu", "loc"), ("log_sigma", "scale")):
        parts = []
        for site, where in problem.sites.items():
            name = f"{site}_auto_{suffix}"
            if name not in params:
                raise unknown_name("parameter", name, params, where="params")
            value = np.ravel(np.asarray(params[name], problem.dtype))
            if value.size != where.stop - where.start:
                raise UserError(f"params: {name} has {value.size} entries, the model needs {where.stop - where.start}")
            if not np.isfinite(value).all() or (suffix == "scale" and not (value > 0).all()):
                raise UserError(f"params: {name} must be finite" + (" and positive" if suffix == "scale" else ""))
            parts.append(np.log(value) if suffix == "scale" else value)
        vectors[block] = np.concatenate(parts)
    return vectors


def _filled(runs, params):
    """States of the estimators whose memory was filled at ``params``: an epoch of steps that move nothing."""
    still = descend(runs.at(1.0).estimator, runs.sampler, optax.set_to_zero())

    @jax.jit
    def epoch(params):
        return still.epoch(still.init(params), runs.sampler.plan(runs.keys[0])).estimator

    return epoch(params)


def _times(runs, parts, params, rounds: int = 7):
    """Time of an epoch by estimator, full passes included, relative to ``naive`` or the first; medians of rounds."""
    make = runs.sampler.plan if runs.sampler.wide else runs.sampler.epoch
    noise = jax.block_until_ready(make(runs.keys[0]))
    programs = {}
    for name, one in parts.items():
        solver = descend(one, runs.sampler, runs.at(1e-12).optimizer)
        epoch, state = jax.jit(solver.epoch), jax.jit(solver.init)(params)
        jax.block_until_ready(epoch(state, noise))
        programs[name] = (epoch, state)
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, (epoch, state) in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(epoch(state, noise))
            seconds[name].append(time.perf_counter() - start)
    base = np.array(seconds["naive" if "naive" in seconds else next(iter(seconds))])
    return {name: float(np.median(np.array(values) / base)) for name, values in seconds.items()}
