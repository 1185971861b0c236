"""Many runs of one method at once: mapped over step sizes and repetitions, an epoch or more per call.

JAX runs any number of epochs in one compiled program, with that number as an argument; PyTorch loops in Python over
mapped steps. Both draw the same noise.
"""

import contextlib
import importlib
import inspect
import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.jax import compiled
from lowvar.core.keys import named_key
from lowvar.core.loop import Runs, geometric
from lowvar.core.optimizers import answer
from lowvar.errors import UserError
from lowvar.vi.batches import BATCHES, Noise, Plan, sampler
from lowvar.vi.descent import descents, make_estimator, of_batch
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.following import following
from lowvar.vi.gradient_errors import measurer
from lowvar.vi.variational import common_elbo

_READ = 2**22  # bytes of a table, above which mapped runs would read more than caches hold
_SHARE = 0.8  # of the memory, for tables


class VariationalEngine(Runs):
    """The runs of one method: ``len(step_sizes) x repetitions`` of them, as one array program.

    The state is a list of parts, each mapped over some step sizes and repetitions. A part has all runs; or one
    repetition, if an epoch's noise is too wide for memory; or one run, if a wide table is read too, or if the number
    of particles depends on the run. There is a program for every number of particles.

    Args:
        problem: an objective.
        make_solver: ``(problem, sampler) -> (setting -> solver)``; a setting is a step size, or a dict with
            ``step_size`` and parameters of the schedule.
        settings: the ``Settings``.
        keys: a JAX key for the noise of each repetition.
        starts: initial parameters, NumPy arrays ``{"mu": (repetitions, dim), ...}``.
        num_steps: updates of the single run of a fit, whose last epoch may be partial, and whose epochs all begin with
            ``begin_epoch``. If not given, epochs are whole.

    Attributes:
        whole: the number of complete epochs of a fit's run, infinite without ``num_steps``.

    Raises:
        UserError: the runs' tables exceed the memory.
    """

    def __init__(self, problem, make_solver, settings, keys, starts, num_steps: int | None = None):
        self.problem, self.settings, self.keys, self.starts = problem, settings, keys, starts
        self.backend = problem.backend
        self.batches = BATCHES[settings.batches](problem.N, settings.batch_size)
        self.steps = self.batches.steps
        self.num_steps, self.whole = num_steps, math.inf if num_steps is None else num_steps // self.steps
        self._of_steps = of_batch(problem, settings.batch_size)
        self._make_solver = partial(make_solver, self._of_steps)
        self.sampler = self.sampler_of(settings.particles)
        self.at = self._make_solver(self.sampler)
        estimator = getattr(self.at(1.0), "estimator", None)
        if estimator is None and settings.diagnostics is not None:
            raise UserError(f"{problem.name}: diagnostics need an estimator, and this solver has none")
        self._particles, self._review = (estimator.particles, estimator.review) if estimator else (None, 0)
        self.stops = geometric(settings.epochs, settings.per_decade)
        self.runs = len(settings.step_sizes) * settings.repetitions
        self._check_memory()
        self.parts = self._parts()
        self._made: list[Any] = []
        self._program = cache(self._make_program)
        self._measurer = cache(partial(measurer, self))

    def sampler_of(self, particles: int):
        """A sampler of batches with ``particles`` particles."""
        return sampler(
            self.batches, GAUSSIAN[self.settings.noise](particles), self._of_steps.noise_dim, self.problem.dtype
        )

    def particles(self, epoch: int, part=None) -> int:
        """Number of particles of an epoch's steps, for a part of the state."""
        if self._particles is None:
            return self.settings.particles
        one = None
        if self._review and part is not None:
            one = self.backend.to_numpy(self.backend.tree_map(lambda leaf: leaf[0, 0], part.estimator))
        elif self._review:
            return self.settings.particles
        return self._even(self._particles(epoch, one))

    def _make_program(self, particles):
        """``(part, settings, keys, first, count) -> part``: ``count`` epochs, with ``particles`` particles."""
        sampler = self.sampler_of(particles)
        cuts, program = self.num_steps is not None, epochs_of(self.problem)
        self._made.append(program(self.problem, sampler, self._make_solver(sampler), cuts))
        return self._made[-1]

    def close(self):
        """As in ``Runs``."""
        for program in self._made:
            program.close()

    def _even(self, particles):
        """``particles``, rounded up to an even number for antithetic noise."""
        return particles + particles % 2 if self.settings.noise == "antithetic" else particles

    def _parts(self):
        """The parts of the state: slices of step sizes and of repetitions."""
        sizes, repetitions = len(self.settings.step_sizes), self.settings.repetitions
        if not self.sampler.wide and not self._review:
            return [(slice(0, sizes), slice(0, repetitions))]
        alone = self._review or self.at(1.0).table_bytes > _READ
        some = [slice(i, i + 1) for i in range(sizes)] if alone else [slice(0, sizes)]
        return [(one, slice(r, r + 1)) for r in range(repetitions) for one in some]

    def _check_memory(self):
        needed, available = self._state_bytes() * self.runs, memory()
        runs, fewer = (f"{self.runs} runs", "fewer step sizes or repetitions, ") if self.runs > 1 else ("a run", "")
        if needed > _SHARE * available:
            raise UserError(
                f"{self.problem.name}: the tables of {runs} need {needed / 2**30:.1f} GiB, and the "
                f"machine has {available / 2**30:.1f}; use {fewer}a larger batch, dtype float32, or a method "
                "with a smaller table, such as joint_svrg"
            )

    def _state_bytes(self):
        """Bytes of the state of one run, mostly its tables."""
        start = {k: jax.ShapeDtypeStruct(v.shape[1:], self.problem.dtype) for k, v in self.starts.items()}
        solver = self.at(1.0)
        return max(solver.table_bytes, self.backend.state_bytes(self.first(solver), start))

    def _mapped_settings(self, sizes: slice):
        """Settings of the runs, arrays over step sizes: arguments of the programs, which need no recompilation."""
        step_sizes = np.asarray(self.settings.step_sizes[sizes], self.problem.dtype)
        plan = self.settings.schedule
        decay = {} if plan is None else {name: getattr(plan, name) for name in ("beta", "r")}
        decay = {name: np.full_like(step_sizes, value) for name, value in decay.items() if value is not None}
        return self.backend.tree_map(self.backend.asarray, {"step_size": step_sizes, **decay})

    def first(self, solver) -> Callable[[Any], Any]:
        """``params -> state`` of one run before the first epoch."""
        return solver.init if self.num_steps is None else getattr(solver, "idle", solver.init)

    def init(self):
        """The state of all runs before the first epoch."""
        init = mapped(self.backend, lambda setting, start: self.first(self.at(setting))(start), REPETITIONS)
        compiled_init = self.backend.jit(init)
        starts = {k: np.asarray(v, self.problem.dtype) for k, v in self.starts.items()}
        return [
            compiled_init(
                self._mapped_settings(sizes), {k: self.backend.asarray(v[repetitions]) for k, v in starts.items()}
            )
            for sizes, repetitions in self.parts
        ]

    def advance(self, state, first: int, count: int):
        """The state ``count`` epochs after epoch ``first``; with ``count`` 0, only compiles the programs of the run."""
        end = first + count
        complete = min(end, self.whole) - first
        if complete or (not count and self.whole):
            parts = zip(state, self.parts, strict=True)
            state = [self._advance_part(one, *which, first, complete) for one, which in parts]
        if self.num_steps is not None and end > self.whole:
            state = self.cut(state, end - 1, 0, self.num_steps - (end - 1) * self.steps)
        self.backend.wait(state)
        return state

    def cut(self, state, epoch: int, first: int, last: int):
        """The state after the steps ``first`` to ``last - 1`` of an epoch."""
        moved = []
        for part, (sizes, repetitions) in zip(state, self.parts, strict=True):
            program = self._program(self.particles(epoch, part))
            moved.append(program.cut(part, self._mapped_settings(sizes), self.keys[repetitions], epoch, first, last))
        return moved

    def _advance_part(self, part, sizes, repetitions, first, count):
        fixed = self._mapped_settings(sizes), self.keys[repetitions]
        if count == 0:
            for particles in self._sizes():
                part = self._program(particles)(part, *fixed, first, 0)
            return part
        at, end = first, first + count
        while at < end:
            particles, stop = self.particles(at, part), at + 1
            if self._review:
                stop = min(end, at - at % self._review + self._review)
            while not self._review and stop < end and self.particles(stop) == particles:
                stop += 1
            part = self._program(particles)(part, *fixed, at, stop - at)
            at = stop
        return part

    def _sizes(self) -> list[int]:
        """All numbers of particles that the runs may use."""
        if self._particles is None:
            return [self.settings.particles]
        if self._review:
            return sorted({self._even(particles) for particles in self.at(1.0).estimator.sizes})
        return sorted({self.particles(epoch) for epoch in range(self.settings.epochs)}, reverse=True)

    @cached_property
    def elbos(self) -> Callable[[Any], tuple[np.ndarray, ...]]:
        """``params -> (ELBOs, standard errors)``, nats; with held-out rows also test log-likelihoods, nats per row.

        Each has shape ``(step sizes, repetitions)``, as the leading axes of parameters.
        """
        problem, backend = self.problem, self.backend
        if self.num_steps is not None:
            value = common_elbo(problem, self.settings.elbo_samples)
            return lambda params: tuple(
                np.full((1, 1), one) for one in value(backend.tree_map(lambda leaf: leaf[0, 0], params))
            )
        samples, key = (self.settings.elbo_samples, problem.noise_dim), named_key(0, "elbo", problem.name)
        test = getattr(problem, "held_out", None) is not None
        eps = None
        if problem.exact_elbo is None or test:
            # common particles at every evaluation reduce the noise of differences along a run
            eps = backend.asarray(np.asarray(jax.random.normal(key, samples, problem.dtype)))

        def values(params):
            elbo = problem.elbo(params, eps if problem.exact_elbo is None else None)
            return (*elbo, problem.test_log_likelihood(params, eps)) if test else elbo

        @backend.jit
        def compute(params):
            return backend.map(values, backend.tree_map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), params))

        def of_part(params):
            shape = next(iter(params.values())).shape[:2]
            return tuple(values.reshape(shape) for values in backend.to_numpy(tuple(compute(params))))

        return of_part

    def _together(self, parts):
        """Joins arrays of the parts, each ``(step sizes, repetitions, ...)``."""
        joined = np.empty(
            (len(self.settings.step_sizes), self.settings.repetitions, *parts[0].shape[2:]), parts[0].dtype
        )
        for where, part in zip(self.parts, parts, strict=True):
            joined[where] = part
        return joined

    def measure(self, state, position: int) -> dict[str, np.ndarray]:
        """The trace's columns at an epoch, each ``(step sizes, repetitions)``; see: lowvar schema --page.

        They are about the average of the iterates, where there is one, but for those of a fit: see ``Watch.result``.
        """
        elbos = [self.elbos(answer(part) if self.num_steps is None else part.params) for part in state]
        names: tuple[str, ...] = ("elbo", "elbo_se", "test_log_likelihood")
        values: dict[str, np.ndarray] = dict(zip(names, map(self._together, zip(*elbos, strict=True)), strict=False))
        values["state_bytes"] = self._together([_bytes_of_runs(part) for part in state])
        if self._review:
            for name in ("particles", "taken"):
                values[name] = self._together([self.backend.to_numpy(part.estimator[name]) for part in state])
            values["particles"] = self._even(values["particles"])
        if self.settings.diagnostics is not None:
            parts = [
                self.backend.to_numpy(self._measurer(self.particles(position, part))(part, self.keys[rows], position))
                for part, (_, rows) in zip(state, self.parts, strict=True)
            ]
            values |= {name: self._together([getattr(one, name) for one in parts]) for name in parts[0]._fields}
        return values

    def trace(self, stops, measured):
        """A row per evaluated epoch, step size and repetition."""
        import pandas as pd

        values = measured["elbo"]
        epoch, step, repetition = (axis.ravel() for axis in np.indices(values.shape))
        epochs = np.asarray(stops)[epoch]
        rows_per_epoch = self.problem.N if self.batches.covers else self.steps * self.settings.batch_size
        particles, mean = self._particles_at(stops, measured)
        oracles = self.at(1.0).oracles_of_run(epochs, rows_per_epoch, mean.ravel())
        extra = {
            name: array.ravel()
            for name, array in measured.items()
            if name not in ("elbo", "elbo_se", "particles", "taken")
        }
        return pd.DataFrame(
            {
                "step_size": np.asarray(self.settings.step_sizes)[step],
                "repetition": repetition,
                "epoch": epochs,
                "iteration": epochs * self.steps,
                "gradients": np.rint(oracles.gradients).astype(int),
                "hvps": np.rint(oracles.hvps).astype(int),
                "particles": particles.ravel().astype(int),
                "elbo": values.ravel(),
                "elbo_se": measured["elbo_se"].ravel(),
                **extra,
                "status": np.where(np.isfinite(values.ravel()), "ok", "diverged"),
            }
        )

    def _particles_at(self, stops, measured):
        """Particles of the step after each evaluated epoch, and their mean over earlier steps; shaped as ``elbo``."""
        like = np.ones_like(measured["elbo"], dtype=float)
        before = np.maximum(np.asarray(stops), 1)[:, None, None] * like
        if self._review:
            return measured["particles"], measured["taken"] / (before * self.steps)
        each = np.array([self.particles(epoch) for epoch in range(max(stops) + 1)])
        taken = np.concatenate([[0], np.cumsum(each)])
        column = np.asarray(stops)
        return each[column][:, None, None] * like, taken[column][:, None, None] / before

    def work(self, stops) -> dict:
        """Epochs done."""
        return {"epoch": stops}

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """Final parameters, ``{"mu": (step sizes, repetitions, dim), ...}``."""
        parts = [self.backend.to_numpy(answer(part)) for part in state]
        return {name: self._together([part[name] for part in parts]) for name in parts[0]}


def _bytes_of_runs(part):
    """Bytes of the arrays of each run in a part of the state, ``(step sizes, repetitions)``."""
    leaves = jax.tree.leaves(part)
    shape = next(iter(part.params.values())).shape[:2]
    return np.full(shape, sum(leaf.nbytes for leaf in leaves) // (shape[0] * shape[1]))


def noise_keys(seed: int, name: str, repetitions: int):
    """The noise keys of a problem's repetitions, derived by name, so that methods and backends share them."""
    return jnp.stack([named_key(seed, name, "noise", r) for r in range(repetitions)])


def start_params(problem, kind: str, seed: int, name: str, repetitions: int):
    """Initial parameters of a problem's repetitions, ``{"mu": (repetitions, dim), "log_sigma": ...}``."""
    starts = [problem.initial(kind, named_key(seed, name, "start", r)) for r in range(repetitions)]
    return {block: np.stack([start[block] for start in starts]) for block in starts[0]}


def build(
    problem, method, settings, *, seed: int, name: str, starts=None, num_steps: int | None = None
) -> VariationalEngine:  # fmt: skip
    """The engine of a method on a problem.

    Args:
        problem: an objective.
        method: a ``Method``.
        settings: the ``Settings``.
        seed: the experiment's.
        name: the problem's name, from which the keys of noise and starts derive.
        starts: initial parameters, ``{"mu": (repetitions, dim), ...}``; by default of the kind ``settings.initial``.
        num_steps: of the single run of a fit.

    Raises:
        UserError: no such estimator, or it does not take its options.
    """
    method = with_pilot(method, problem, settings, seed, f"{name} pilot", starts)
    keys = noise_keys(seed, name, settings.repetitions)
    if starts is None:
        starts = start_params(problem, settings.initial, seed, name, settings.repetitions)

    def make_solver(problem, sampler):
        return descents(make_estimator(method, problem, sampler.batches, settings), settings, sampler)

    return VariationalEngine(problem, make_solver, settings, keys, starts, num_steps)


def follow(
    problem, methods, leader: str, settings, *, seed: int, name: str, starts=None, num_steps: int | None = None
):  # fmt: skip
    """The engine of the leader's run, along which all estimators update their state; and these estimators by name.

    Args:
        problem: an objective.
        methods: ``{name: Method}``.
        leader: the method whose gradients update the parameters.
        settings: ``Settings`` with one step size.
        seed: the experiment's.
        name: the problem's name, from which the keys of noise and start derive.
        starts: as for ``build``.
        num_steps: as for ``build``.
    """
    parts = {}

    def make(problem, sampler):
        parts.update(
            {key: make_estimator(method, problem, sampler.batches, settings) for key, method in methods.items()}
        )
        return descents(following(leader, parts), settings, sampler)

    if starts is None:
        starts = start_params(problem, settings.initial, seed, name, settings.repetitions)
    return VariationalEngine(
        problem, make, settings, noise_keys(seed, name, settings.repetitions), starts, num_steps
    ), parts  # fmt: skip


def memory() -> int:
    """Bytes of memory of the machine, or of the control group if it has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    with contextlib.suppress(OSError, ValueError):
        return min(total, int(limit.read_text()))
    return total


_PER_DECADE = 12  # moments at which it is read


def with_pilot(method, problem, settings, seed: int, name: str, starts):
    """The method, with the ``variances`` that its estimator needs; if the pilot diverges, those from before.

    Args:
        method: a ``Method``.
        problem: an objective.
        settings: the run's ``Settings``.
        seed: the experiment's.
        name: of the pilot, from which its noise derives.
        starts: the run's, see ``build``.

    Raises:
        UserError: several step sizes, whose variances would differ.
    """
    stated = {name: one.default for name, one in inspect.signature(GRADIENT.get(method.factory)).parameters.items()}
    stated |= method.options
    if stated.get("variances", ()) is not None:  # it does not need them, or has them
        return method
    if len(settings.step_sizes) > 1:
        raise UserError(
            f"{method.estimator}: {len(settings.step_sizes)} step sizes; its pilot run measures the variances of one. "
            "Give one step size, or a method for each"
        )
    if isinstance(stated["pilot"], bool) or not isinstance(stated["pilot"], int) or stated["pilot"] < 2:
        return method  # the estimator rejects it
    alone = {"particles": stated["pilot"], "noise": "iid", "repetitions": 1, "diagnostics": None}
    short = replace(settings, **alone, per_decade=_PER_DECADE)

    def make_solver(problem, sampler):
        adaptive = GRADIENT.get("mlmc_adaptive")
        return descents(adaptive(problem, sampler.batches, stated["pilot"], stated["base"]), short, sampler)

    own = {block: one[:1] for block, one in (starts or {}).items()}
    own = own or start_params(problem, settings.initial, seed, name, 1)
    pilot = VariationalEngine(problem, make_solver, short, noise_keys(seed, name, 1), own)
    state, done, found, taken = pilot.init(), 0, [], 0.0
    for stop in [1, *(one for one in pilot.stops if one > 1)]:
        state, done = pilot.advance(state, done, stop - done), stop
        measured = {name: float(value.mean()) for name, value in pilot.backend.to_numpy(state[0].estimator).items()
                    if name in ("V_0", "spread", "taken")}  # fmt: skip
        taken = measured["taken"]
        if done == 1:
            found.append((0, measured["V_0"]))
        if (step := done * pilot.steps - 1) > 0:
            found.append((step, measured["spread"]))  # of this step alone: a running mean would lag behind the fall
    lost = next((n for n, (_, V) in enumerate(found) if not (np.isfinite(V) and V > 0)), len(found))
    if lost < 2:  # the run itself will diverge, and its trace will say so
        return method
    options = {**method.options, "variances": found[:lost], "pilot_taken": round(taken)}
    return replace(method, options=options)


NOISE = Noise(index=0, weight=None, rows=None, eps=0, position=None)
_PLAN = Plan(index=0, weight=None, rows=None, key=0, position=None)
RUNS, REPETITIONS = (0, 0), (None, 0)  # axes of arguments with step sizes and repetitions, and with repetitions only


def mapped(backend, function, *axes):
    """``function(setting, ...)`` over step sizes (outer) and repetitions (inner).

    The axes of each further argument are ``RUNS`` (both), ``REPETITIONS`` (shared by the step sizes) or those of noise
    (shared by the step sizes; batch weights and positions are shared by the repetitions as well).
    """
    inner = backend.vmap(function, (None, *(inner for _, inner in axes)))
    return backend.vmap(inner, (0, *(outer for outer, _ in axes)))


def noise_axes(sampler):
    """The axes of an epoch's noise, or of its plan if the noise is too wide for memory."""
    return None, _PLAN if sampler.wide else NOISE


def draw(sampler, keys, epoch):
    """The noise of an epoch, or its plan, for the repetitions of ``keys``."""
    return jax.vmap(lambda key: draw_one(sampler, key, epoch), out_axes=noise_axes(sampler)[1])(keys)


def draw_one(sampler, key, epoch):
    """The same of the repetition of ``key``."""
    return (sampler.plan if sampler.wide else sampler.epoch)(jax.random.fold_in(key, epoch))


_MODULES = {"jax": "engine", "torch": "torch_program", "stream": "stream_program"}


def epochs_of(problem) -> Any:
    """The class of programs for epochs of mapped runs of a problem: that of its backend, unless it names another."""
    name = _MODULES[getattr(problem, "program", problem.backend.name)]
    return importlib.import_module(f"lowvar.vi.run.{name}").Epochs


class Epochs:
    """Epochs of mapped runs in JAX, as one compiled loop.

    An axis of one step size or one repetition is not mapped: a map doubles the time of a trace, and XLA's code on a CPU
    for a map over one run may take four times as long as that for the run.

    Args:
        problem: an objective.
        sampler: draws the noise.
        at: ``setting -> solver``.
        cuts: whether its last epoch may be partial; the number of an epoch's steps is then an argument.
    """

    def __init__(self, problem, sampler, at, cuts: bool):
        steps = sampler.batches.steps
        self._every = (0, steps) if cuts and steps > 1 else ()

        def epoch(setting, state, noise, part):
            solver = at(setting)
            if not part:
                return solver.epoch(state, noise)
            state = jax.lax.cond(part[0] == 0, solver.begin_epoch, lambda state: state, state)
            state = solver.steps(state, noise, part)
            return jax.lax.cond(part[1] == steps, lambda s: solver.end_epoch(s, noise.index), lambda s: s, state)

        def advance(state, settings, keys, first, count, part):
            sizes, repetitions = (len(jax.tree.leaves(one)[0]) > 1 for one in (settings, keys))

            def drawn(i):
                return draw(sampler, keys, i) if repetitions else draw_one(sampler, keys[0], i)

            def epochs(settings, state, noise):
                return epoch(settings, state, noise, part)

            if repetitions:
                epochs = jax.vmap(epochs, (None, 0, noise_axes(sampler)[1]))
            if sizes:
                epochs = jax.vmap(epochs, (0, 0, None))
            runs = tuple(slice(None) if many else 0 for many in (sizes, repetitions))
            settings = jax.tree.map(lambda leaf: leaf[runs[0]], settings)
            state = jax.tree.map(lambda leaf: leaf[runs], state)
            state = jax.lax.fori_loop(first, first + count, lambda i, state: epochs(settings, state, drawn(i)), state)
            axes = tuple(slice(None) if many else None for many in (sizes, repetitions))
            return jax.tree.map(lambda leaf: leaf[axes], state)

        self._advance = compiled(advance, donate_argnums=0)

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``; a count of 0 only compiles."""
        return self._advance(state, settings, keys, first, count, self._every)

    def cut(self, state, settings, keys, epoch, first, end):
        """The state after the steps ``first`` to ``end - 1`` of an epoch, which only its last step closes.

        The same program, with other arguments: another one would take as long to compile.
        """
        return self._advance(state, settings, keys, epoch, 1, (first, end))

    def close(self):
        """Nothing is open between calls."""

    @staticmethod
    def one_epoch(solvers, sampler, key, params):
        """``{name: () -> state}``: the states of solvers after one epoch from its start, with the same noise.

        Args:
            solvers: each a ``Descent``, by name.
            sampler: theirs.
            key: JAX key of the noise, which is drawn before.
            params: the parameters at the start.
        """
        drawn = compiled(sampler.plan if sampler.wide else sampler.epoch, brief=True)
        noise = jax.block_until_ready(drawn(key))
        states = compiled(lambda params: {name: one.init(params) for name, one in solvers.items()}, brief=True)(params)

        def of(solver, state):
            epoch = compiled(solver.epoch)
            return lambda: jax.block_until_ready(epoch(state, noise))

        return {name: of(solver, states[name]) for name, solver in solvers.items()}
