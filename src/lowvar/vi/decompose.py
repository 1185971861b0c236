"""``lowvar.decompose``: sources of gradient variance in a model, and the estimators that would reduce it."""

import contextlib
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax

from lowvar.core.files import check_folder
from lowvar.errors import UserError, whole
from lowvar.vi import crossed as analysis
from lowvar.vi.batches import reshuffled
from lowvar.vi.descent import DescentState, descend, of_batch, of_shared, taking
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.fit import Fit, fit, run_to_end
from lowvar.vi.gradient_errors import diagnose, first_batch, reference_points
from lowvar.vi.guides.amortised import Amortised
from lowvar.vi.guides.forms import guide_of_params
from lowvar.vi.run import engine as engines
from lowvar.vi.run.fit_run import FitRun
from lowvar.vi.saved import densities
from lowvar.vi.settings import DEFAULT, check_arguments, methods_of, problem_of, settings_of, start_of, starts

COMPARED = ("naive", "stl", "cv", "joint", "joint_svrg", DEFAULT)
_REFERENCE = 2**22  # single-row gradients of the reference for errors
_ROUNDS, _ROUND = (3, 7), 0.01  # of timings, at least and at most, and the seconds of each for an estimator
_SURE = 0.01  # the relative standard error of a ratio of times that needs no further round
_DESIGN_BUDGET = 2**22  # single-row gradients of a decomposition, above which data rows are sampled


@dataclass(frozen=True)
class Decomposition:
    """The result of ``decompose``; printing it gives the summary.

    Attributes:
        table: pandas, columns ``method, block, source, variance, low, high, share, share_low, share_high,
            batch_size, runs, replicates, memory``: variances of a batch's gradient with 95 % intervals. ``memory`` is
            ``fit``, ``replayed`` (along the fit's last epochs), ``start`` (as at the fit's start) or ``filled`` (anew,
            at ``params``), or empty for estimators without one.
        time: time of a step by estimator, with its share of full passes, relative to ``naive`` (or the first one): CPU
            time of all threads, or elapsed time where JAX or PyTorch computes on another device. The median of three to
            seven rounds of whole epochs, as many as the ratios need to agree.
        params: the parameters at which the variance was measured, under the names of NumPyro's guide, see ``Fit``.
        title: name of the model and the place in the summary.
        carried: for estimators with carryover (``mlmc``, ``storm`` and others): the squared carried error, in nats^2,
            over all parameters. Variances are over fresh noise and do not include it.
        memories: for estimators with memory: the origin of the memory, in words.
        worth: ``{method: (value, low, high)}``: the variance of a step's gradient, with the squared carried error,
            times the time of a step, relative to ``naive`` (or the first one), with a 95 % interval over designs and
            timings.

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> data = {"y": np.random.default_rng(0).normal(2.0, 1.0, size=50)}
    >>> found = lowvar.decompose(model, data, estimators=["naive"], batch_size=5, progress=False)
    >>> found.table.query("block == 'all'")["source"].tolist()
    ['subsampling', 'monte_carlo', 'interaction', 'total']
    >>> print(found)
    gradient variance of model at its fit (50 rows, 1 parameter, batch 5); 95 % intervals
    <BLANKLINE>
    estimator  variance  subsampling  Monte Carlo  interaction  time per step  variance x time
    naive      ...
    Subsampling dominates the noise of `naive`...
    """

    table: Any
    time: dict[str, float]
    params: dict[str, Any]
    title: str
    carried: dict[str, float] = field(default_factory=dict)
    memories: dict[str, str] = field(default_factory=dict)
    worth: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def summary(self) -> str:
        """The table as text, and conclusions from it; first, a warning if a memory adds noise."""
        from lowvar.vi.report import summary

        return summary(self.table, self.time, self.title, self.carried, self.memories, self.worth)

    def __str__(self) -> str:
        return self.summary()

    def plot(self, stem=None):
        """The figure of shares and totals; saved as ``stem.svg``, ``.png`` and ``.csv`` if a stem is given.

        Raises:
            UserError: matplotlib is not installed, or the stem's folder does not exist or cannot be written.
        """
        if stem is not None:
            check_folder(stem)
        from lowvar.core import drawing
        from lowvar.vi.plots import shares

        rows = self.table[self.table["block"] == "all"].assign(problem=self.title.split(" (")[0])
        figure = shares(rows, {name: name.replace("_", " ") for name in dict.fromkeys(rows["method"])})
        if stem is not None:
            drawing.save(figure, stem, rows)
        return figure


def decompose(
    model: Any,
    data: Mapping[str, Any] | None = None,
    params: "Mapping[str, Any] | Fit | None" = None,
    *,
    guide: str | Amortised | Callable[..., Any] | Mapping[str, Any] | None = None,
    estimators: Sequence[str | Callable[..., Estimator]] | Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    num_particles: int | None = None,
    noise: str | None = None,
    optimizer: str | optax.GradientTransformation | None = None,
    step_size: float | None = None,
    num_steps: int | None = None,
    init: Callable | Mapping[str, Any] | Fit | None = None,
    replicates: int = 32,
    columns: int = 8,
    rows: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    name: str | None = None,
    **unknown: Any,
) -> Decomposition:
    """The sources of gradient variance in a model, and the estimators that would remove it.

    Args:
        model: a NumPyro model or a ``lowvar.TorchModel``, see ``fit``.
        data: the NumPyro model's keyword arguments.
        params: the parameters to evaluate at: a ``Fit``; or its ``params``, or those of an SVI result with an
            ``AutoNormal``, ``AutoMultivariateNormal`` or ``AutoLowRankMultivariateNormal``.
            Without them, ``fit`` is called first, with the last of ``estimators``. A ``Fit`` of this model on these
            data keeps the memory of its own estimator, which joins the comparison; the other estimators replay its last
            epochs. Of a ``Fit`` of other data or another model only the parameters are used, and the title says so. At
            plain ``params``, memories are filled anew there, with adaptive coefficients at their start: along a run,
            the variance can be several times larger, or smaller.
        guide: the variational family, see ``fit``; the one of ``params`` if not given, else ``"mean_field"``.
        estimators: the estimators to compare: a list of names; or a mapping of labels of your own to names, or to
            ``{"estimator": name, ...}`` with the estimator's options, such as ``{"naive": "naive", "joint, late":
            {"estimator": "joint", "naive_epochs": 3}}``. A factory ``(problem, batches, **options) -> Estimator`` of
            your own may replace a name. The table has the labels; ratios are relative to ``naive``, or to the first
            if there is no ``naive``. If not given: naive, stl, cv, joint, joint_svrg and joint_adaptive.
        batch_size: data rows of a mini-batch; the ``Fit``'s if not given, else as for ``fit``.
        num_particles: particles per update; the ``Fit``'s if not given, else 1.
        noise: noise scheme of the particles, see ``fit``; the ``Fit``'s if not given, else ``"iid"``.
        optimizer: optimizer of the fit that is made without ``params``, see ``fit``; ``"adam"`` if not given.
        step_size: its step size, see ``fit``.
        num_steps: its number of updates; 5000 if not given.
        init: its start, see ``fit``.
        replicates: number of independent crossed designs, the sample size of the intervals.
        columns: noise draws of a design.
        rows: data rows of a design, drawn with replacement; all rows if not given, unless that is too many.
        seed: seed of the fit and of the designs; the name of the model enters them too.
        progress: whether to show a progress bar; by default on a terminal only.
        name: name of the model in the summary; its function's name if not given.

    Returns:
        A ``Decomposition``, of batches drawn without replacement. With latent variables in the data plate it is that of
        the gradient in the variables that rows share.

    Raises:
        UserError: as ``fit`` does.

    References:
        Wang, Geffner and Domke, 2024, section 3; unbiased mean squares of a crossed two-way design.

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> data = {"y": np.random.default_rng(0).normal(2.0, 1.0, size=50)}
    >>> found = lowvar.decompose(model, data, estimators=["naive", "joint"], batch_size=5, progress=False)
    >>> variance = found.table.query("block == 'all' and source == 'total'").set_index("method")["variance"]
    >>> bool(variance["joint"] < variance["naive"])
    True
    """
    alone = [
        name for name in unknown if name in inspect.signature(fit).parameters and name not in ("estimator", "options")
    ]
    if alone:
        raise UserError(
            f"decompose: {', '.join(map(repr, alone))}: of fit alone: call fit, and give its result here as params=; "
            "decompose takes optimizer, step_size, num_steps, batch_size, num_particles, noise, guide, init and seed"
        )
    check_arguments(decompose, unknown)
    methods, seed = methods_of(COMPARED if estimators is None else estimators), whole("seed", seed, 0)
    if isinstance(data, Fit):
        raise UserError("decompose: data is a Fit; give it as params=fit, and data before it if the model takes any")
    of_fit = {"optimizer": optimizer, "step_size": step_size, "num_steps": num_steps, "init": init}
    if params is not None and (idle := [name for name, value in of_fit.items() if value is not None]):
        raise UserError(
            f"decompose: {', '.join(idle)}: settings of a fit, which is made only without params; leave them out"
        )
    optimizer = "adam" if optimizer is None else optimizer
    num_steps = whole("num_steps", 5000 if num_steps is None else num_steps, 1, or_float=True)
    fitted = params if isinstance(params, Fit) else None
    given: Any = params if fitted is None else fitted.params
    if not isinstance(given, Mapping | None):
        raise UserError(f"params: give a Fit, or a dict under the names of its guide, not {type(params).__name__}")
    where = {"init": given, "init_is": "params"} if given is not None else start_of(model, init, seed)
    if fitted and fitted.problem.guide.amortised and guide is not None:
        raise UserError("decompose: guide: the Fit has its own, an amortised one; leave guide out")
    guide = _guide_of(params) if guide is None else guide
    problem = problem_of(model, data, name=name, guide=guide, **where)
    if given is not None:
        _check_complete(problem, given)
    if estimators is None:
        methods = methods_of(taking(of_batch(problem, 1), reshuffled(problem.N, 1), COMPARED))
    run = fitted.run if fitted else None
    if run and problem.plate and batch_size is None:
        batch_size = min(run.settings.batch_size, problem.N)
    num_particles = (run.settings.particles if run else 1) if num_particles is None else num_particles
    noise = (run.settings.noise if run else "iid") if noise is None else noise
    if rows is None and problem.N * columns * replicates > _DESIGN_BUDGET:
        rows = max(32, _DESIGN_BUDGET // (columns * replicates))
    replicates, columns = whole("replicates", replicates, 4), whole("columns", columns, 2)
    rows, leader = None if rows is None else whole("rows", rows, 2), list(methods)[-1]
    settings = settings_of(
        problem, optimizer=optimizer, step_size=step_size, num_steps=num_steps, batch_size=batch_size,
        num_particles=num_particles, elbo_samples=None if given is None else 2, noise=noise, where="decompose",
    )  # fmt: skip
    other = _difference(problem, fitted.problem, fitted.guide_params) if fitted else ""
    if run and (other or _batches(run.settings) != _batches(settings)):
        run = None  # its memories belong to another density, or to other batches or noise
    place = f"at the parameters of a fit of {other}" if other else "at the given parameters"
    place = "at the fit" if run else place
    guide_params, auto = dict(problem.start), given
    if auto is None:
        fitted = run_to_end(problem, FitRun(methods[leader], settings, num_steps, seed, problem.name, 0), progress)
        guide_params, auto, place, run = fitted.guide_params, fitted.params, "at its fit", fitted.run
    if run:
        label = _own_label(methods, run.method)
        methods = {**methods, label: run.method}
        runs, parts, memory, origins = _along(problem, methods, label, run)
    else:
        runs, parts = engines.follow(
            problem,
            methods,
            leader,
            settings,
            seed=seed,
            name=problem.name,
            starts=starts(problem),
            num_steps=num_steps,
        )
        memory = _filled(runs, _arrays(problem, guide_params))
        origin = "filled at these parameters; along a run, the variance can be several times larger or smaller: "
        origins = dict.fromkeys(methods, ("filled", origin + "pass the Fit of stochastic steps"))
    guide_params = _arrays(problem, guide_params)
    measured = {name: of_shared(part) for name, part in parts.items()}
    target = next(iter(measured.values())).problem
    design = analysis.designs(
        target, replicates=replicates, columns=columns, rows=rows, noise=runs.settings.noise,
        particles=settings.particles, key=analysis.design_key(seed, problem.name),
    )  # fmt: skip
    values = analysis.decomposer(measured, all_rows=rows is None)(memory, guide_params, *design)
    drawn = analysis.samples(target, values)
    table = analysis.table(drawn, settings.batch_size, problem.N)
    scheme = "" if settings.noise == "iid" else f", {settings.noise} noise of {settings.particles} particles"
    kind = "" if problem.guide.factorised else f", {problem.guide.name} guide"
    size = f"{problem.N} row{'s' * (problem.N > 1)}, " if problem.plate else ""
    batch = f"batch {settings.batch_size}" if problem.plate else "all rows in every step"
    number, shared = f"{problem.dim} parameter{'s' * (problem.dim > 1)}", target.blocks["mu"]
    if shared < problem.dim:
        encoder = ", and an encoder's" if problem.guide.amortised else ""
        number = f"{shared} of {number}, which rows share{encoder}"
    title = f"{problem.name} {place} ({size}{number}{kind}, {batch}{scheme})"
    carried = _carried(runs, parts, memory, guide_params, problem)
    origins = {name: origins[name] for name in parts if jax.tree.leaves(memory[name])}
    table["memory"] = table["method"].map(lambda name: origins[name][0] if name in origins else "")
    memories = {name: words for name, (_, words) in origins.items()}
    times = _times(runs, parts, memory, guide_params)
    worth = analysis.worth(drawn, times, carried, settings.batch_size, problem.N)
    median = {name: float(np.median(ratios)) for name, ratios in times.items()}
    return Decomposition(table, median, dict(auto), title, carried, memories, worth)


def _guide_of(params):
    """The guide of a ``Fit``, or the one whose parameters a mapping has."""
    if isinstance(params, Fit) and params.problem.guide.amortised:
        return params.problem.guide.source
    if isinstance(params, Fit):
        make: Any = params.problem.family
        return lambda **given: make(SimpleNamespace(**given))
    return guide_of_params(params)


def _arrays(problem, params):
    return {block: problem.backend.asarray(np.asarray(value, problem.dtype)) for block, value in params.items()}


def _batches(settings):
    """What a memory depends on besides the rows: ``(batch size, particles, noise scheme)``."""
    return settings.batch_size, settings.particles, settings.noise


def _difference(problem, other, params) -> str:
    """What the ``other`` problem has that ``problem`` has not, in words; nothing if they can share estimator states.

    Args:
        problem: one problem.
        other: the other one.
        params: the guide at which densities of different functions are compared.
    """
    if problem.dtype != other.dtype:
        return "another precision"
    mine, others = (jax.tree.flatten(dict(one.data)) for one in (problem, other))
    same = mine[1] == others[1] and all(np.array_equal(a, b) for a, b in zip(mine[0], others[0], strict=True))
    if not same or problem.N != other.N:
        return "other data"
    if (type(problem), dict(problem.sites)) != (type(other), dict(other.sites)):
        return "another model"
    if (problem.guide.name, problem.blocks) != (other.guide.name, other.blocks):
        return "another guide"
    if problem.model is other.model:
        return ""
    mine, others = densities(problem, params), densities(other, params)
    if all(np.allclose(values, others[name]) for name, values in mine.items()):
        return ""
    return "another model" if problem.data else "another model or other data"


def _check_complete(problem, params) -> None:
    """Checks that ``params`` has values for every parameter of the guide and of the model."""
    for name in (*problem.params, *problem.names):
        if name not in params:
            raise UserError(f"params: no value of {name!r}, which {problem.name} needs; given: {', '.join(params)}")


def _own_label(methods, own) -> str:
    """The label of a fit's own estimator in the comparison."""
    for label, method in methods.items():
        if (method.factory, method.options) == (own.factory, own.options):
            return label
    return own.estimator if own.estimator not in methods else f"{own.estimator}, the fit's"


def _along(problem, methods, label, run):
    """Replays a fit's last epochs while the other methods follow, which gives their memories at its end.

    Returns:
        ``(engine, estimators, states, origins of the memories)``: the word in the table, and a description.
    """
    runs, parts = engines.follow(
        problem, methods, label, run.settings, seed=run.seed, name=run.name, starts=starts(problem),
        num_steps=run.num_steps,
    )  # fmt: skip
    early, last = run.epochs
    state = run.copies[early][0]
    start = jax.tree.map(lambda leaf: leaf[0, 0], state)
    fresh = problem.backend.jit(lambda params: {name: part.init(params) for name, part in parts.items()})(start.params)
    fresh |= {label: start.estimator} if early else {}  # at epoch 0 it may be idle
    fresh = jax.tree.map(lambda leaf: leaf[None, None], fresh)
    copy = partial(problem.backend.xp.asarray, copy=True)
    start = [DescentState(*(jax.tree.map(copy, part) for part in (state.params, fresh, state.optimizer)))]
    with contextlib.closing(runs):
        ended = runs.advance(start, early, last - early) if last > early else start
    memory = jax.tree.map(lambda leaf: leaf[0, 0], ended[0].estimator)
    along = "replayed", f"accumulated along the fit's last {last - early} epochs"
    origins = dict.fromkeys(methods, along if last > early else ("start", "as at the fit's start"))
    origins |= {label: ("fit", "the fit's own")} if last else {}
    return runs, parts, {**memory, **({label: run.memory} if last else {})}, origins


def _filled(runs, params):
    """States of the estimators with memories filled at ``params``, by an epoch of steps of size zero."""
    backend = runs.problem.backend

    def stay(gradient, state, params=None):
        return backend.tree_map(backend.xp.zeros_like, gradient), state

    nowhere = optax.GradientTransformation(lambda params: (), stay)  # type: ignore[arg-type]
    still = descend(runs.at(1.0).estimator, runs.sampler, nowhere)
    (epoch,) = engines.epochs_of(runs.problem).one_epoch({"": still}, runs.sampler, runs.keys[0], params).values()
    return epoch().estimator


def _carried(runs, parts, memory, params, problem):
    """The squared carried errors of the estimators."""
    parts = {name: estimator for name, estimator in parts.items() if estimator.properties.carryover}
    if not parts:
        return {}
    backend, count = problem.backend, int(np.clip(_REFERENCE // problem.N, 64, 4096))
    for_noise, for_reference = jax.random.split(analysis.design_key(1, problem.name))
    drawn = jax.vmap(partial(first_batch, runs.sampler))(jax.random.split(for_noise, 64))
    drawn = drawn, reference_points(for_reference, count, problem.dim, problem.dtype)
    noise, reference = jax.tree.map(lambda leaf: backend.asarray(np.asarray(leaf)), drawn)
    carried = {}
    for name, estimator in parts.items():

        @backend.jit
        def errors(state, estimator=estimator):
            return diagnose(estimator, state, params, noise, reference)

        errors_at = errors(memory[name])
        carried[name] = float(errors_at.squared_error - errors_at.variance)
    return carried


def _times(runs, parts, memory, params) -> dict[str, np.ndarray]:
    """Times of an epoch with its full passes, relative to ``naive`` or the first, by estimator: ``(rounds,)``.

    Each round times whole epochs of every estimator, at least a hundredth of a second of each. There are three rounds,
    and up to seven until the standard error of every ratio's logarithm, over rounds, is at most one hundredth.
    """
    device = str(getattr(params["mu"], "device", "cpu")).lower()
    clock = time.process_time if "cpu" in device else time.perf_counter  # elapsed time is that of other processes too
    copy, solvers = partial(runs.problem.backend.xp.asarray, copy=True), {}
    for name, estimator in parts.items():
        begun = replace(estimator, init=lambda params, name=name: jax.tree.map(copy, memory[name]))
        solvers[name] = descend(begun, runs.sampler, runs.at(1e-12).optimizer)
    epochs = engines.epochs_of(runs.problem).one_epoch(solvers, runs.sampler, runs.keys[0], params)
    for epoch in epochs.values():
        epoch()

    def seconds(epoch):
        start, count, taken = clock(), 0, 0.0
        while taken < _ROUND:
            epoch()
            count, taken = count + 1, clock() - start
        return taken / count

    base, rounds = "naive" if "naive" in parts else next(iter(parts)), np.zeros((0, len(parts)))
    while len(rounds) < _ROUNDS[0] or (len(rounds) < _ROUNDS[1] and _error(rounds) > _SURE):
        one = {name: seconds(epoch) for name, epoch in epochs.items()}
        rounds = np.vstack([rounds, [one[name] / one[base] for name in parts]])
    return dict(zip(parts, rounds.T, strict=True))


def _error(rounds: np.ndarray) -> float:
    """The largest standard error of a ratio's logarithm, over rounds ``(rounds, estimators)``."""
    return float(np.log(rounds).std(axis=0, ddof=1).max() / len(rounds) ** 0.5)
