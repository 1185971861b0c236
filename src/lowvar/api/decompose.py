"""``lowvar.decompose``: sources of gradient variance in a model, and the estimators that would reduce it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lowvar.analysis import decomposition as analysis
from lowvar.api.fit import Fit, finished, made, start_of, starts
from lowvar.api.settings import DEFAULT, STEP_SIZE, methods_of, solver_of
from lowvar.errors import UserError, check_known, whole
from lowvar.estimators.gradient.base import Estimator
from lowvar.problems.numpyro_model import NumPyroProblem, from_numpyro
from lowvar.runs.diagnostics import diagnose, first_batch, reference_points
from lowvar.solvers.descent import DescentState, descend
from lowvar.studies.spec import validated
from lowvar.studies.variational import engine as engines
from lowvar.studies.variational.exact import ExactRun
from lowvar.studies.variational.spec import DecompositionSpec

COMPARED = ("naive", "cv", "joint", "joint_svrg", DEFAULT)
_REFERENCE = 2**22  # single-row gradients of the reference for errors
_DESIGN_BUDGET = 2**22  # single-row gradients of a decomposition, above which data rows are sampled


@dataclass(frozen=True)
class Decomposition:
    """The result of ``decompose``; printing it gives the summary.

    Attributes:
        table: pandas, columns ``method, block, source, variance, low, high, share, share_low, share_high,
            batch_size, replicates``: variances of a batch's gradient with 95 % intervals.
        time: time of a step by estimator, with its share of full passes, relative to ``naive`` (or the first one).
        params: the parameters at which the variance was measured, under ``AutoNormal``'s names.
        title: name of the model and the place in the summary.
        carried: for estimators with carryover (``mlmc``, ``storm`` and others): the squared carried error, in nats^2,
            over all parameters. Variances are over fresh noise and do not include it.
        memories: for estimators with memory: the origin of the memory, in words.
    """

    table: Any
    time: dict[str, float]
    params: dict[str, Any]
    title: str
    carried: dict[str, float] = field(default_factory=dict)
    memories: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        """The table as text, and conclusions from it; first, a warning if a memory adds noise."""
        from lowvar.analysis.report import summary

        return summary(self.table, self.time, self.title, self.carried, self.memories)

    def __str__(self) -> str:
        return self.summary()

    def plot(self, stem=None):
        """The figure of shares and totals; saved as ``stem.svg``, ``.png`` and ``.csv`` if a stem is given."""
        from lowvar.studies.variational.figures import SHARES

        table = self.table.assign(problem=self.title.split(" (")[0], epoch=0, iteration=0, end=True)
        if stem is not None:
            SHARES.picture(table, stem)
        return SHARES.drawn(table)[0]


def decompose(
    model: Callable,
    data: Mapping[str, Any],
    params: "Mapping[str, Any] | Fit | None" = None,
    *,
    estimators: Sequence[str | Callable[..., Estimator]] | Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    num_particles: int | None = None,
    optimizer: str | optax.GradientTransformation = "adam",
    step_size: float | None = None,
    num_steps: int = 5000,
    init: Callable | Mapping[str, Any] | Fit | None = None,
    replicates: int = 32,
    columns: int = 8,
    rows: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    name: str | None = None,
) -> Decomposition:
    """The sources of gradient variance in a model, and the estimators that would remove it.

    Args:
        model: a NumPyro model with one data plate, indexed by it.
        data: the model's keyword arguments.
        params: the parameters to evaluate at: a ``Fit``; or its ``params``, or those of an ``AutoNormal`` SVI result.
            Without them, a fit with the last of ``estimators`` is made first, and its memory is used. A ``Fit``
            keeps the memory of its own estimator, which joins the comparison; the other estimators replay its last
            epochs. At plain ``params``, memories are refilled there, which gives the lowest variance they can have.
        estimators: the estimators to compare: a list of names; or a mapping of labels of your own to names, or to
            ``{"estimator": name, ...}`` with the estimator's options, such as ``{"naive": "naive", "joint, late":
            {"estimator": "joint", "naive_epochs": 3}}``. A factory ``(problem, batches, **options) -> Estimator`` of
            your own may replace a name. The table has the labels; ratios are relative to ``naive``, or to the first
            if there is no ``naive``. If not given: naive, cv, joint, joint_svrg and joint_adaptive.
        batch_size: data rows of a mini-batch; the ``Fit``'s if not given, else 100, or all rows if they are fewer.
        num_particles: particles per update; the ``Fit``'s if not given, else 1.
        optimizer: optimizer of the fit, see ``fit``.
        step_size: step size of the fit, see ``fit``.
        num_steps: length of the fit.
        init: start of the fit, see ``fit``.
        replicates: number of independent crossed designs, the sample size of the intervals.
        columns: noise draws of a design.
        rows: data rows of a design, drawn with replacement; all rows if not given, unless that is too many.
        seed: seed of the fit and of the designs.
        progress: whether to show a progress bar; by default on a terminal only.
        name: name of the model in the summary; its function's name if not given.

    Returns:
        A ``Decomposition``, of batches drawn without replacement.

    Raises:
        UserError: as ``fit`` does.

    References:
        Wang, Geffner and Domke, 2024, section 3; unbiased mean squares of a crossed two-way design.
    """
    methods, seed = methods_of(COMPARED if estimators is None else estimators), whole("seed", seed, 0)
    num_steps = whole("num_steps", num_steps, 1)
    fitted = params if isinstance(params, Fit) else None
    given: Any = params if fitted is None else fitted.params
    if not isinstance(given, Mapping | None):
        raise UserError(f"params: give a Fit, or a dict under AutoNormal's names, not {type(params).__name__}")
    where = {"init": given, "init_is": "params"} if given is not None else start_of(model, init, seed)
    problem = from_numpyro(model, data, name=name, **where)
    if given is not None:
        _check_complete(problem, given)
    run = fitted.run if fitted and fitted.run and _same(problem, fitted.problem) else None
    batch_size = run.solver.batch_size if run and batch_size is None else batch_size
    num_particles = (run.solver.particles if run else 1) if num_particles is None else num_particles
    if rows is None and problem.N * columns * replicates > _DESIGN_BUDGET:
        rows = max(32, _DESIGN_BUDGET // (columns * replicates))
    spec = validated(
        DecompositionSpec,
        {"leader": list(methods)[-1], "step_size": STEP_SIZE, "epochs": 1, "replicates": replicates,
         "columns": columns, "rows": rows},
        where="decompose",
    )  # fmt: skip
    solver = solver_of(
        problem, optimizer=optimizer, step_size=step_size, num_steps=num_steps, batch_size=batch_size,
        num_particles=num_particles, elbo_samples=2,
    )  # fmt: skip
    if run and (run.solver.batch_size, run.solver.particles) != (solver.batch_size, solver.particles):
        run = None  # its memories belong to batches of another size
    if run:
        label = _own_label(methods, run.method)
        methods = {**methods, label: run.method}
        runs, parts, memory, origins = _along(problem, methods, label, run)
        mean_field, auto, place = dict(problem.start), dict(given or {}), "at the fit"
    elif given is not None:
        runs, parts = _follow(problem, methods, spec.leader, solver, num_steps, seed, problem.name)
        mean_field, auto, place = dict(problem.start), dict(given), "at the given parameters"
        memory = _filled(runs, _arrays(problem, mean_field))
        origin = "filled at these parameters; along a fit a memory is older and leaves more variance: pass the Fit"
        origins = dict.fromkeys(methods, origin)
    else:
        runs, parts = _follow(problem, methods, spec.leader, solver, num_steps, seed, problem.name)
        result = finished(runs, progress, f"fit {problem.name}")
        fit_result = made(problem, result)
        mean_field, auto, place = fit_result.mean_field, fit_result.params, "at its fit"
        memory = jax.tree.map(lambda leaf: leaf[0, 0], runs.kept[runs.whole][0].estimator)
        origins = dict.fromkeys(methods, f"accumulated along the fit by `{spec.leader}`")
    mean_field = _arrays(problem, mean_field)
    design = analysis.designs(
        problem, replicates=replicates, columns=columns, rows=rows, noise=runs.solver.noise, particles=solver.particles,
        key=analysis.design_key(seed, problem.name),
    )  # fmt: skip
    values = {
        name: analysis.decomposer(estimator, all_rows=rows is None)(memory[name], mean_field, *design)
        for name, estimator in parts.items()
    }
    table = analysis.table(problem, values, solver.batch_size, replacement=False)
    title = f"{problem.name} {place} ({problem.N} rows, {problem.dim} parameters, batch {solver.batch_size})"
    carried = _carried(runs, parts, memory, mean_field, problem)
    origins = {name: origins[name] for name, estimator in parts.items() if jax.tree.leaves(estimator.init(mean_field))}
    return Decomposition(table, _times(runs, parts, mean_field), auto, title, carried, origins)


def _arrays(problem, params):
    return {block: jnp.asarray(value, problem.dtype) for block, value in params.items()}


def _same(problem: NumPyroProblem, other: NumPyroProblem) -> bool:
    """Whether two problems can share estimator states: their sites, data and precision agree."""
    if (problem.N, dict(problem.sites), problem.dtype) != (other.N, dict(other.sites), other.dtype):
        return False
    mine, others = (jax.tree.flatten(dict(one.data)) for one in (problem, other))
    return mine[1] == others[1] and all(np.array_equal(a, b) for a, b in zip(mine[0], others[0], strict=True))


def _check_complete(problem, params) -> None:
    """Checks that ``params`` has values for every latent site and every parameter of the model."""
    for site in problem.sites:
        for name in (site,) if site in problem.params else (f"{site}_auto_loc", f"{site}_auto_scale"):
            check_known("parameter", name, params, where="params")


def _own_label(methods, own) -> str:
    """The label of a fit's own estimator in the comparison."""
    for label, method in methods.items():
        if (method.factory, method.options) == (own.factory, own.options):
            return label
    return own.estimator if own.estimator not in methods else f"{own.estimator}, the fit's"


def _follow(problem, methods, leader, solver, num_steps, seed, name):
    """The engine of a fit by ``leader`` whose iterates all methods follow."""
    return engines.follow(
        problem, methods, leader, solver, seed=seed, name=name, starts=starts(problem),
        engine=partial(ExactRun, num_steps=num_steps),
    )  # fmt: skip


def _along(problem, methods, label, run):
    """Replays a fit's last epochs while the other methods follow, which gives their memories at its end.

    Returns:
        ``(engine, estimators, states, origins of the memories)``.
    """
    runs, parts = _follow(problem, methods, label, run.solver, run.num_steps, run.seed, run.name)
    early, last = run.epochs
    state = run.kept[early][0]
    start = jax.tree.map(lambda leaf: leaf[0, 0], state)
    fresh = {name: part.init(start.params) for name, part in parts.items()} | {label: start.estimator}
    fresh = jax.tree.map(lambda leaf: leaf[None, None], fresh)
    begun = [DescentState(jax.tree.map(jnp.copy, state.params), fresh, jax.tree.map(jnp.copy, state.optimizer))]
    ended = runs.advance(begun, early, last - early) if last > early else begun
    memory = jax.tree.map(lambda leaf: leaf[0, 0], ended[0].estimator)
    origin = f"accumulated along the fit's last {last - early} epochs" if last > early else "as at the fit's start"
    origins = dict.fromkeys(methods, origin) | {label: "the fit's own"}
    return runs, parts, {**memory, label: run.memory}, origins


def _filled(runs, params):
    """States of the estimators with memories filled at ``params``, by an epoch of steps of size zero."""
    still = descend(runs.at(1.0).estimator, runs.sampler, optax.set_to_zero())

    @jax.jit
    def epoch(params):
        return still.epoch(still.init(params), runs.sampler.plan(runs.keys[0])).estimator

    return epoch(params)


def _carried(runs, parts, memory, params, problem):
    """The squared carried errors of the estimators."""
    count = int(np.clip(_REFERENCE // problem.N, 64, 4096))
    for_noise, for_reference = jax.random.split(analysis.design_key(1, problem.name))
    keys, carried = jax.random.split(for_noise, 64), {}
    for name, estimator in parts.items():
        if estimator.properties.keeps:

            @jax.jit
            def errors(state, estimator=estimator):
                reference = reference_points(for_reference, count, problem.dim, problem.dtype)
                return diagnose(estimator, state, params, keys, reference, partial(first_batch, runs.sampler))

            errors_at = errors(memory[name])
            carried[name] = float(errors_at.squared_error - errors_at.variance)
    return carried


def _times(runs, parts, params, rounds: int = 7):
    """Median time of an epoch by estimator, with its full passes, relative to ``naive`` or the first."""
    make = runs.sampler.plan if runs.sampler.wide else runs.sampler.epoch
    noise = jax.block_until_ready(make(runs.keys[0]))
    programs = {}
    for name, estimator in parts.items():
        solver = descend(estimator, runs.sampler, runs.at(1e-12).optimizer)
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
