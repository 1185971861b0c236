"""Stochastic gradient descent from three independent choices: estimator, sampler, optimizer.

``Descent`` and ``descend`` take objects; ``make_estimator`` makes one of a ``Method``, ``descents`` of ``Settings``.

With local latent variables, ``OfBatch`` is the part of a model, of its guide and of an estimator that one batch of rows
concerns. Given the latent variables that all rows share, the rows are independent, each with its own latent variables
``z_n``:

    ELBO = E log p(z_shared) + H(q_shared) + sum_n [E log p(y_n, z_n | z_shared) + H(q_n)].

A batch's estimate is the shared part plus ``N / B`` times the sum over its rows. It depends on the parameters of the
shared variables and of these rows alone, so a step computes with these alone, whatever ``N`` is.

References:
    Hoffman, Blei, Wang and Paisley, "Stochastic variational inference", 2013, section 2, for local and global
    variables; Kucukelbir, Tran, Ranganath, Gelman and Blei, "Automatic differentiation variational inference", 2017.
"""

import contextlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.optimizers import optimizer
from lowvar.errors import UserError, kind_of
from lowvar.vi.batches import Noise, Plan, Sampler
from lowvar.vi.estimators import GRADIENT, OURS
from lowvar.vi.estimators.base import Estimator, Oracles
from lowvar.vi.guides.gaussian import MeanField
from lowvar.vi.variational import VariationalProblem


@dataclass(frozen=True, eq=False)
class Rows:
    """The coordinates of ``z`` that rows share, and those of each row.

    The vector of a batch has the shared coordinates first, then those of its rows, row by row.

    Attributes:
        shared: coordinates of the shared variables, ``(D,)`` integers.
        own: coordinates of each row's variables, ``(N, d)`` integers.
    """

    shared: np.ndarray
    own: np.ndarray

    @property
    def dim(self) -> int:
        """Coordinates of ``z``."""
        return len(self.shared) + self.own.size

    def dim_of(self, size: int) -> int:
        """Coordinates of a batch of ``size`` rows."""
        return len(self.shared) + size * self.own.shape[1]

    def coordinates(self, index):
        """The coordinates of ``z`` that the rows ``index (B,)`` concern, ``(dim_of(B),)``."""
        return self.joined(jnp.asarray(self.shared), jnp.asarray(self.own)[index])

    def shared_of(self, vector):
        """The shared coordinates of a batch's vector, ``(D,)``."""
        return vector[: len(self.shared)]

    def own_of(self, vector):
        """The coordinates of a batch's rows in its vector, ``(B, d)``."""
        return vector[len(self.shared) :].reshape(-1, self.own.shape[1])

    def joined(self, shared, own):
        """A batch's vector, from ``shared (D,)`` and ``own (B, d)``."""
        return jnp.concatenate([shared, own.reshape(-1)])

    def by_row(self, values):
        """``values (B,)`` at the coordinates of each row, and ones at the shared ones, ``(dim_of(B),)``."""
        own = jnp.broadcast_to(values[:, None], (values.shape[0], self.own.shape[1]))
        return self.joined(jnp.ones(len(self.shared), values.dtype), own)


@dataclass(frozen=True)
class MeanFieldOfRows(MeanField):
    """The mean-field guide with both control variates of ``log_sigma`` that ``Gaussian.controls`` gives.

    The noise of a row's own gradient is Monte Carlo noise alone. Where the guide fits the row, the second control
    removes that of its ``log_sigma``.
    """

    @property
    def controlled(self) -> dict[str, int]:
        """See ``Guide``."""
        return {"log_sigma": 2}

    def controls(self, params, eps, gradient):
        """See ``Guide``."""
        second = self._noisy(jnp.mean(eps**2, axis=0) - 1)
        return {"log_sigma": [*super().controls(params, eps, gradient)["log_sigma"], second]}


@dataclass(frozen=True, eq=False)
class OfBatch(VariationalProblem):
    """A problem with local latent variables as one batch of rows sees it: ``z`` is the vector of the batch.

    Gradients in the variables of a row are those of the ELBO itself, without the factor ``N / B`` of the rows' sum:
    a row that is visited has no subsampling noise. Full passes take, and give, vectors of all rows.

    Attributes:
        whole: the problem of all rows.
        rows: which coordinates belong to which row.
    """

    whole: Any = None
    rows: Rows = None  # type: ignore[assignment]

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``; in a row's own variables without its factor ``N weight``."""
        padded = weight == 0
        each = jnp.where(padded, 0, 1 / (self.N * jnp.where(padded, 1, weight)))
        return jax.grad(self.energy)(z, index, weight) * self.rows.by_row(each)

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)`` in the variables of all rows, ``(rows.dim,)``: a pass over all rows."""
        rows = self.rows

        def add(total, chunk):
            def energy(z):
                return -self.N * jnp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))

            where = rows.coordinates(chunk["index"])
            return total.at[where].add(jax.grad(energy)(z[where])), None

        first = rows.coordinates(jnp.zeros(1, jnp.int32))
        start = jnp.zeros_like(z).at[first].add(self.prior_gradient(z[first]))
        return jax.lax.scan(add, start, self.chunks)[0]


def of_batch(problem, size: int):
    """``problem`` as a step with ``size`` rows sees it: itself, unless rows have variables of their own."""
    make = getattr(problem, "of_batch", None)
    return problem if make is None else make(size)


def rows_of(problem) -> Rows | None:
    """The rows of a problem as a batch sees it, see ``OfBatch``; None if rows have no variables of their own."""
    return getattr(problem, "rows", None)


def amortised(estimator: Estimator, problem: OfBatch) -> Estimator:
    """An estimator of a batch's mean-field gradient, through the encoder to the parameters of an ``AmortisedGuide``.

    The rows' gradients count ``N`` times their weights, so the estimate is unbiased where the batch's is.
    """
    guide, rows, whole = problem.whole.guide, problem.rows, problem.whole

    def estimate(state, params, noise):
        here, back = jax.vjp(lambda params: guide.of_batch(params, noise.index), params)
        if noise.eps.shape[-1] == whole.noise_dim:  # the noise of all rows
            noise = noise._replace(eps=noise.eps[:, rows.coordinates(noise.index)])
        gradient, state = estimator.estimate(state, here, noise)
        counted = rows.by_row(problem.N * noise.weight)
        return back({block: value * counted for block, value in gradient.items()})[0], state

    return replace(estimator, problem=whole, estimate=estimate)


@dataclass(frozen=True)
class Shared:
    """The part of a ``VariationalProblem`` that a decomposition of the gradient in what rows share reads."""

    name: str
    backend: Any
    N: int
    noise_dim: int
    dtype: Any
    blocks: Mapping[str, int]
    sites: Mapping[str, slice]

    def part(self, block: str, where: slice) -> slice:
        """See ``VariationalProblem``."""
        return where


def shared(problem: OfBatch) -> Shared:
    """The shared variables of a problem with local ones.

    Raises:
        UserError: rows share nothing.
    """
    whole, D = problem.whole, len(problem.rows.shared)
    if not D:
        raise UserError(
            f"{problem.name}: all latent variables are in the data plate: rows share none, so there is no subsampling "
            "noise to decompose"
        )
    sites, offset = {}, 0
    for site, where in sorted(whole.sites.items(), key=lambda item: item[1].start):
        if where.start in problem.rows.shared:
            sites[site] = slice(offset, offset + where.stop - where.start)
            offset = sites[site].stop
    return Shared(
        problem.name, whole.backend, whole.N, whole.noise_dim, whole.dtype, dict.fromkeys(whole.blocks, D), sites
    )


def of_shared(estimator: Estimator) -> Estimator:
    """An estimator restricted to the gradient in what rows share: all of it, unless it is of an ``OfBatch``.

    Its state, parameters and base noise are those of all rows. A row's own variables have no subsampling noise: only
    batches with the row concern them. Of an amortised guide, the rows share the encoder too.
    """
    problem: Any = estimator.problem
    rows = rows_of(problem)
    if rows is None and problem.guide.amortised:
        p = problem
        return replace(estimator, problem=Shared(p.name, p.backend, p.N, p.noise_dim, p.dtype, p.blocks, {}))
    if rows is None:
        return estimator

    def estimate(state, params, noise):
        at = rows.coordinates(noise.index)
        state_here, params_here = jax.tree.map(
            lambda leaf: leaf[at] if leaf.shape == (rows.dim,) else leaf, (state, params)
        )
        gradient, _ = estimator.estimate(state_here, params_here, noise._replace(eps=noise.eps[:, at]))
        return {block: rows.shared_of(values) for block, values in gradient.items()}, state

    return replace(estimator, problem=shared(problem), estimate=estimate)


class DescentState(NamedTuple):
    """The state of a descent.

    Attributes:
        params: the guide's parameters.
        estimator: the estimator's state.
        optimizer: the optimizer's state.
    """

    params: Any
    estimator: Any
    optimizer: Any


@dataclass(frozen=True)
class Descent:
    """A solver made of pure functions; its methods can be vectorised over runs."""

    estimator: Estimator
    sampler: Sampler
    optimizer: Any

    def init(self, params) -> DescentState:
        """The state before the first epoch."""
        return DescentState(params, self.estimator.init(params), self.optimizer.init(params))

    def idle(self, params) -> DescentState:
        """The same, complete only once the first epoch has begun, see ``Estimator``."""
        start = self.estimator.idle or self.estimator.init
        return DescentState(params, start(params), self.optimizer.init(params))

    def begin_epoch(self, state: DescentState) -> DescentState:
        """Prepares an epoch."""
        return state._replace(estimator=self.estimator.begin_epoch(state.estimator, state.params))

    def end_epoch(self, state: DescentState, index) -> DescentState:
        """Closes an epoch whose batches were ``index (steps, B)``."""
        return state._replace(estimator=self.estimator.end_epoch(state.estimator, index))

    def step(self, state: DescentState, noise: Noise):
        """One update."""
        gradient, estimator = self.estimator.estimate(state.estimator, state.params, noise)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        params = self.estimator.problem.backend.tree_map(lambda p, u: p + u, state.params, updates)
        return DescentState(params, estimator, optimizer)

    def epoch(self, state: DescentState, noise: Noise | Plan) -> DescentState:
        """The updates of an epoch with noise ``sampler.epoch(key)`` or its plan, in a scan or a loop."""
        return self.end_epoch(self.steps(self.begin_epoch(state), noise), noise.index)

    def steps(self, state: DescentState, noise: Noise | Plan, part: Any = None) -> DescentState:
        """Successive updates, or those of ``part = (first, end)``, numbers that JAX may trace."""
        scan = self.estimator.problem.backend.scan_or_loop
        return scan(lambda state, batch: self.step(state, self.sampler.with_noise(batch)), state, noise, part)

    def oracles_of_run(self, epochs, rows: int, points: int) -> Oracles:
        """Oracle calls of a run's first ``epochs`` epochs, see ``Estimator``."""
        return self.estimator.oracles_of_run(epochs, rows, points, self.sampler.batches.steps)

    @property
    def table_bytes(self) -> int:
        """Bytes of the estimator's table of parameter vectors."""
        problem, declared = self.estimator.problem, self.estimator.properties
        length = sum(list(problem.blocks.values())[: declared.table_blocks])
        return declared.table_rows * length * np.dtype(problem.dtype).itemsize


class RowDescent(Descent):
    """A solver whose steps compute with the rows of their batch only; its estimator is of an ``OfBatch``.

    States have the coordinates of all rows: every vector of that length, such as a moment, is divided by rows.

    An epoch visits each row once. The state of the rows, in the order of the epoch's batches, is therefore the
    input of a loop, and their new state its output: the work of a step does not depend on the number of rows.

    **Convention.** The gradient is unbiased for that of the whole ELBO: a batch's rows count ``N / B`` times, all
    others have gradient zero. ``adam`` moves a row at its visits, which it counts row by row, see ``row_adam``.
    With a transformation of optax, the convention is that of PyTorch's ``SparseAdam``: averages of a row's
    gradients change at its visits only, while the count of steps, which corrects their bias and drives schedules,
    is that of the run. Rows that are visited a few dozen times then move far less than under dense Adam.
    """

    @property
    def _problem(self) -> OfBatch:
        return self.estimator.problem  # type: ignore[return-value]

    def step(self, state: DescentState, noise: Noise) -> DescentState:
        """One update."""
        return self.steps(state, jax.tree.map(lambda leaf: leaf[None], noise))

    def steps(self, state: DescentState, noise: Noise | Plan, part: Any = None) -> DescentState:
        """Successive updates, or those of ``part``, see ``Descent``."""
        rows, backend = self._problem.rows, self._problem.backend
        leaves, tree = jax.tree.flatten(state)
        local = [leaf.shape == (rows.dim,) for leaf in leaves]
        shared, own = jnp.asarray(rows.shared), jnp.asarray(rows.own)[noise.index]  # (D,), (steps, B, d)

        def body(carried, batch):
            (carried, mine), (t, noise) = carried, batch
            before = iter(mine)
            here = [
                rows.joined(leaf, next(before)[t]) if one else leaf for one, leaf in zip(local, carried, strict=True)
            ]
            moved = self._moved(jax.tree.unflatten(tree, here), self.sampler.with_noise(noise))
            pairs = list(zip(local, jax.tree.leaves(moved), strict=True))
            after = [rows.own_of(v) for one, v in pairs if one]
            return [rows.shared_of(v) if one else v for one, v in pairs], backend.set_rows(mine, t, after)

        carried = [leaf[shared] if one else leaf for one, leaf in zip(local, leaves, strict=True)]
        mine = [leaf[own] for one, leaf in zip(local, leaves, strict=True) if one]
        times = jnp.arange(len(noise.index))
        carried, mine = backend.scan_or_loop(body, (carried, mine), (times, noise), part)
        # padding repeats a row that the batch has already: it is not written
        to, mine = jnp.where((noise.weight > 0)[..., None], own, rows.dim), iter(mine)
        moved = [
            old.at[shared].set(new).at[to].set(next(mine), mode="drop") if one else new
            for one, old, new in zip(local, leaves, carried, strict=True)
        ]
        return jax.tree.unflatten(tree, moved)

    def _moved(self, state: DescentState, noise: Noise) -> DescentState:
        """One update of the state of a batch."""
        problem = self._problem
        gradient, estimator = self.estimator.estimate(state.estimator, state.params, noise)
        counted = problem.rows.by_row(problem.N * noise.weight)
        gradient = jax.tree.map(lambda g: g * counted, gradient)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        params = jax.tree.map(lambda p, u: p + u, state.params, updates)
        return DescentState(params, estimator, optimizer)


def descend(estimator: Estimator, sampler: Sampler, optimizer) -> Descent:
    """A solver that passes ``estimator``'s gradients under ``sampler``'s noise to ``optimizer``.

    Args:
        estimator: from ``lowvar.vi.estimators``.
        sampler: from ``lowvar.vi.batches``.
        optimizer: an optax gradient transformation (JAX), or one of ``core.optimizers.optimizer``.

    Raises:
        UserError: the estimator's table, or latent variables of the rows, need batches that cover an epoch, and the
            sampler's do not.
    """
    rows = rows_of(estimator.problem) is not None
    if (estimator.properties.needs_epochs or rows) and not sampler.batches.covers:
        raise UserError(f"{estimator.name}, built for reshuffled batches, cannot use {sampler.batches.name!r} ones")
    if rows:
        return RowDescent(estimator, sampler, optimizer)
    return Descent(estimator, sampler, optimizer)


def descents(estimator, spec, sampler):
    """``setting -> solver`` of an estimator under the optimizer of ``Settings``."""
    problem, plan = estimator.problem, spec.schedule
    step_size_at = spec.own.get("step_size_at")
    own = step_size_at and (lambda t, xp: step_size_at(xp.astype(t, xp.int32)))

    def at(setting):
        step_size, schedule = step_size_of(setting), plan
        if plan is not None and isinstance(setting, dict):
            schedule = replace(plan, **{name: value for name, value in setting.items() if name != "step_size"})
        if spec.per_row and spec.optimizer == "sgd":
            step_size = step_size / problem.N
        name, eta_at = spec.own.get("transformation", spec.optimizer), own or (schedule and schedule.eta)
        moves = optimizer(name, step_size, problem.backend, eta_at, rows_of(problem), average=spec.average)
        return descend(estimator, sampler, moves)

    return at


def step_size_of(setting):
    """The step size of a setting, see ``VariationalEngine``."""
    return setting["step_size"] if isinstance(setting, dict) else setting


def make_estimator(method, problem, batches, spec=None):
    """The estimator of a ``Method``; ``particles``, ``epochs`` and ``schedule`` default to the ``Settings``'.

    Raises:
        UserError: no such estimator, or it does not take the method's options.
    """
    if spec is not None:
        options = GRADIENT.options_of(method.factory)
        defaults = {"particles": spec.particles, "epochs": spec.epochs,
                    "schedule": spec.schedule}  # fmt: skip
        given = {name: value for name, value in defaults.items() if name in options} | dict(method.options)
        method = replace(method, options=given)
    backend = problem.backend.name
    GRADIENT.check_options(method.factory, method.options, where="estimator")
    factory = GRADIENT.get(method.factory)
    try:
        inspect.signature(factory).bind(problem, batches, **method.options)
    except TypeError as error:
        raise UserError(f"estimator {method.estimator!r}: its factory must take (problem, batches): {error}") from error
    estimator = factory(problem, batches, **method.options)
    if not isinstance(estimator, Estimator):
        raise UserError(f"{method.estimator}: the factory returned {kind_of(estimator)}, not an Estimator")
    if backend not in estimator.properties.backends:
        known = ", ".join(estimator.properties.backends)
        raise UserError(f"estimator {method.estimator!r} does not run on {backend}: it supports {known}")
    if (accept := getattr(problem, "accept", None)) is not None:
        accept(estimator, batches)
    if rows_of(problem) is None:
        return estimator
    if not _fits(estimator, problem):
        kind = "amortised latent variables" if estimator.properties.local else "latent variables"
        raise UserError(
            f"estimator {method.estimator!r} takes no {kind} in the data plate, as {problem.name!r} has: use "
            f"{', '.join(taking(problem, batches))}, or an estimator of your own that declares Properties(local=True)"
            + (" and no table_rows" if estimator.properties.local else "")
        )
    return amortised(estimator, problem) if problem.whole.guide.amortised else estimator


def _fits(estimator, problem) -> bool:
    """Whether an estimator takes the latent variables that the rows of a problem have, if any."""
    declared, rows = estimator.properties, rows_of(problem)
    return rows is None or (declared.local and not (declared.table_rows and problem.whole.guide.amortised))


def taking(problem, batches, names=tuple(OURS)) -> list[str]:
    """The estimators that take the latent variables of a problem's rows, among ``names`` of lowvar's own."""
    found = []
    for name in names:
        with contextlib.suppress(UserError):
            if _fits(GRADIENT.get(name)(problem, batches), problem):
                found.append(name)
    return found
