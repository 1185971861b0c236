"""The interface of gradient estimators: their declared properties, schedules, and helpers they share.

Estimators see a doubly stochastic objective ``f(w) = E_n E_eps f(w; n, eps)`` over data rows ``n`` and base noise
``eps ~ N(0, I)``. Its approximation ``f~(w; n, eps)`` has ``E_eps grad f~`` in closed form: control variates combine
the two (Wang, Geffner and Domke, 2024, section 4 and Algorithm 3).

Parameters and gradients are dicts of vectors by block: ``{"mu", "log_sigma"}`` for mean-field variational
inference, ``{"w"}`` for a layer with dropout. Values of ``f~`` may lack blocks that it does not approximate. Of a
problem, estimators use the methods that ``VariationalProblem`` has under "the interface of estimators".
``noise`` has ``index (B,)``, ``weight (B,)``, which sums to one, and ``eps (S, noise_dim)``, which the rows share.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

from lowvar.errors import UserError, check_known
from lowvar.vi.variational import VariationalProblem


@dataclass(frozen=True)
class Properties:
    """Declared properties of an estimator; the contract tests measure each of them.

    Attributes:
        unbiased: its mean over iid noise is the exact gradient, at any params and any state.
        carryover: of a biased estimator: its mean given the past is the exact gradient plus ``carryover`` times the
            error of the previous estimate.
        backends: the backends it runs on.
        gradients: gradients per data row and particle in one call.
        gradients_without_noise: further gradients per data row, at points without noise.
        hvps: Hessian-vector products per data row (each gives the gradient at its point too).
        full_passes: gradients over all data rows, per epoch.
        full_passes_at_start: gradients over all data rows, once, when a run starts.
        full_gradients_per_call: gradients over all data rows, for each particle, in every call.
        full_hvps_per_call: Hessian-vector products over all data rows, in every call.
        table_rows: stored vectors.
        table_blocks: blocks of the parameters in each stored vector: 2 for ``mu`` and ``log sigma``.
        needs_epochs: its memory is correct only if every epoch visits each row once.
        local: whether it takes latent variables of the rows, see ``OfBatch``: its memory has the form of the
            parameters, and no entry depends on those of other rows.
    """

    unbiased: bool
    carryover: float = 0.0
    gradients: int = 1
    gradients_without_noise: int = 0
    hvps: int = 0
    full_passes: int = 0
    full_passes_at_start: float = 0
    full_gradients_per_call: int = 0
    full_hvps_per_call: int = 0
    table_rows: int = 0
    table_blocks: int = 2
    needs_epochs: bool = False
    local: bool = False
    backends: tuple[str, ...] = ("jax", "torch")


class Oracles(NamedTuple):
    """Oracle calls, in data rows: a machine-independent cost of an estimate."""

    gradients: Any
    hvps: Any


@dataclass(frozen=True)
class Estimator:
    """An estimator of ``grad_w f(w)`` bound to its problem, made of pure functions.

    Attributes:
        name: as in the registry.
        problem: the objective.
        properties: declared properties.
        init: ``params -> state``.
        estimate: ``(state, params, noise) -> (gradient, state)``; the gradient has the form of ``params``.
        begin_epoch: ``(state, params) -> state``, before an epoch.
        end_epoch: ``(state, index (steps, B)) -> state``, after an epoch with those batches. Between epochs a
            state is complete: ``estimate`` is unbiased with any batch, including batches of another kind.
        particles: ``(epoch, state) -> number of particles`` for the steps of an epoch, if it changes during a run; the
            sampler then draws that many. Without it, the sampler's own number.
        review: epochs between updates of ``particles`` from the state (NumPy arrays) of a single run. The state's entry
            ``taken`` then counts the particles of all steps so far, and ``particles`` those of the next step. If 0,
            ``particles`` depends on the epoch alone and gets None as state.
        sizes: all numbers of particles that ``particles`` may return, if it depends on the state.
        spared: ``(epochs, particles per batch) -> Oracles`` that the first ``epochs`` epochs of a run do not need.
        idle: ``params -> state`` for a run that calls ``begin_epoch`` before its first step: as ``init``, but NaN in
            place of what ``begin_epoch`` computes anew; ``init`` if not given.
    """

    name: str
    problem: Any
    properties: Properties
    init: Callable[[Any], Any]
    estimate: Callable[[Any, Any, Any], tuple[Any, Any]]
    begin_epoch: Callable[[Any, Any], Any] = lambda state, params: state
    end_epoch: Callable[[Any, Any], Any] = lambda state, index: state
    particles: Callable[[int, Any], int] | None = None
    review: int = 0
    sizes: tuple[int, ...] = ()
    spared: Callable[[Any, int], Oracles] = lambda epochs, particles: Oracles(0, 0)
    idle: Callable[[Any], Any] | None = None

    def oracles_of_run(self, epochs, rows: int, particles: int, steps: int | None = None) -> Oracles:
        """Oracle calls of a run's first ``epochs`` epochs.

        Args:
            epochs: a number of epochs, or an array of them.
            rows: data rows that an epoch visits.
            particles: particles per batch.
            steps: batches in an epoch; required for estimators that pass over all rows in every call.
        """
        declared, N = self.properties, self.problem.N
        per_row = declared.gradients * particles + declared.gradients_without_noise
        passes = epochs * declared.full_passes + declared.full_passes_at_start
        gradients, hvps = epochs * rows * per_row + N * passes, epochs * rows * declared.hvps
        if declared.full_gradients_per_call or declared.full_hvps_per_call:
            if steps is None:
                raise ValueError(f"{self.name} passes over all rows in every call: give the number of steps")
            gradients = gradients + epochs * steps * N * particles * declared.full_gradients_per_call
            hvps = hvps + epochs * steps * N * declared.full_hvps_per_call
        spared = self.spared(epochs, particles)
        return Oracles(gradients - spared.gradients, hvps - spared.hvps)


def stateless(name: str, problem, properties: Properties, gradient: Callable[[Any, Any], Any]) -> Estimator:
    """An estimator without memory, from ``gradient(params, noise)``."""

    def estimate(state, params, noise):
        return gradient(params, noise), state

    return Estimator(name, problem, properties, lambda params: (), estimate)


def plus(gradient, control, scale: Any = 1):
    """``gradient`` with ``scale`` times ``control`` added to the blocks that ``control`` has."""
    return {**gradient, **{block: gradient[block] + scale * value for block, value in control.items()}}


def minus(gradient, control):
    """``gradient`` minus ``control`` in the blocks that ``control`` has."""
    return {**gradient, **{block: gradient[block] - value for block, value in control.items()}}


def variational(problem, name: str) -> VariationalProblem:
    """``problem``, checked to be a ``VariationalProblem``, for the estimator ``name``.

    Raises:
        UserError: the problem is not variational.
    """
    if not isinstance(problem, VariationalProblem):
        raise UserError(f"estimator {name!r} needs a model with a guide; {problem.name!r} has none")
    return problem


KINDS = ("time", "step", "exponential", "piecewise", "cosine")
_SETTINGS = ("kind", "beta", "r", "values", "rounded")


@dataclass(frozen=True)
class Schedule:
    """``eta_t``, which starts at 1 and never increases; ``t`` counts steps.

    Attributes:
        kind: ``"time"``, ``eta_t = 1 / (1 + beta t)``; ``"step"``, ``beta^floor(t / r)``; ``"exponential"``,
            ``exp(-beta t)``; ``"piecewise"``, with ``values``; or ``"cosine"``, 1 until ``(1 - beta) r`` and from there
            half a cosine down to 0 at step ``r``.
        beta: rate of decay, in (0, 1]; for ``"cosine"``, the share of the ``r`` steps over which it falls.
        r: steps between drops, for ``"step"``; number of steps, for ``"cosine"``.
        values: pairs ``(step, eta from there on)``, for ``"piecewise"``.
        rounded: whether numbers of particles are rounded up to one of about twenty, as for smooth schedules.
    """

    kind: str
    beta: Any = None
    r: Any = None
    values: tuple[tuple[int, float], ...] = ()
    rounded: bool = False

    def eta(self, t, xp: Any = math):
        """``eta_t`` at step ``t``: a number, or an array of ``xp``."""
        if self.kind == "time":
            return 1 / (1 + self.beta * t)
        if self.kind == "exponential":
            return xp.exp(-self.beta * t)
        if self.kind == "step":
            return self.beta ** (t // self.r)
        if self.kind == "cosine":
            left = (1 - t / self.r) / self.beta  # of the fall: above 1 before it, below 0 after its end
            left = min(max(left, 0.0), 1.0) if xp is math else xp.clip(left, 0.0, 1.0)
            return (1 - xp.cos(math.pi * left)) / 2
        eta = 1.0
        for start, value in self.values:
            reached = t >= start
            eta = (value if reached else eta) if xp is math else xp.where(reached, value, eta)
        return eta

    def particles(self, t: int, first: int) -> int:
        """``N_t = ceil(eta_{t-1} N_0)`` with ``N_0 = first``.

        A smooth schedule passes through every number of particles, and each number needs its own compiled program.
        They are therefore rounded up to one of about twenty.
        """
        exact = max(1, math.ceil(self.eta(max(t - 1, 0)) * first - 1e-9))
        few = self.kind in ("step", "piecewise") and not self.rounded
        return exact if few else min(first, rounded_up(exact))


def schedule(
    kind: str, beta: float | None = None, r: int | None = None, values: Iterable = (), rounded: bool = False
) -> Schedule:
    """A checked ``Schedule``.

    Raises:
        UserError: the kind is unknown, a setting is missing, out of range or belongs to another kind, or values
            increase.

    References:
        Fujisawa and Sato (2021), Appendix D.

    >>> [schedule("step", beta=0.5, r=2).eta(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    >>> [schedule("step", beta=0.5, r=2).particles(t, 10) for t in range(5)]
    [10, 10, 10, 5, 5]
    >>> [round(schedule("cosine", beta=0.5, r=8).eta(t), 2) for t in range(10)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """
    check_known("schedule", kind, KINDS)
    if not isinstance(values, list | tuple):
        raise UserError(f"schedule {kind!r}: values = {values!r}: give pairs of a step and a value")
    pairs: Any = tuple(tuple(pair) if isinstance(pair, list | tuple) else (pair,) for pair in values)
    present = {"beta": beta is not None, "r": r is not None, "values": bool(pairs)}
    wanted = {"piecewise": ("values",), "step": ("beta", "r"), "cosine": ("beta", "r")}.get(kind, ("beta",))
    for name, there in present.items():
        if there != (name in wanted):
            raise UserError(
                f"schedule {kind!r} takes {' and '.join(wanted)}: {name} {'is not one' if there else 'is missing'}"
            )
    if beta is not None and (isinstance(beta, bool) or not (isinstance(beta, Real) and 0 < beta <= 1)):
        raise UserError(f"schedule {kind!r}: beta = {beta!r}; it must be above 0 and at most 1")
    if r is not None and (isinstance(r, bool) or not (isinstance(r, Integral) and r >= 1)):
        raise UserError(f"schedule {kind!r}: r = {r!r}; it must be a whole number of steps, 1 or more")
    last_step, last = 0, 1.0
    for pair in pairs:
        if len(pair) != 2 or not (isinstance(pair[0], Integral) and pair[0] > last_step):
            raise UserError(f"schedule 'piecewise': {list(pair)}; give pairs of a step and a value, steps ascending")
        if not (isinstance(pair[1], Real) and 0 < pair[1] <= last):
            raise UserError(f"schedule 'piecewise': {pair[1]} from step {pair[0]}; it must not increase, or reach 0")
        last_step, last = pair
    return Schedule(kind, beta, r, pairs, rounded)


def schedule_of(given: Mapping[str, Any], where: str) -> Schedule:
    """A checked ``Schedule`` from its settings by name; ``where`` begins the messages.

    Raises:
        UserError: as for ``schedule``; or no mapping, an unknown setting, or no ``kind``.
    """
    if not isinstance(given, Mapping):
        raise UserError(f'{where} = {given!r}: give its settings, such as {{"kind": "step", "beta": 0.5, "r": 100}}')
    for name in given:
        check_known("setting", name, _SETTINGS, where=where)
    if "kind" not in given:
        raise UserError(f"{where}: kind is missing, one of {', '.join(KINDS)}")
    try:
        return schedule(**given)
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix('schedule ')}") from error


def rounded_up(count: int) -> int:
    """The smallest of 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, ... (ten per decade) that is at least ``count``.

    >>> [rounded_up(n) for n in (1, 7, 11, 90, 101)]
    [1, 8, 13, 100, 126]
    """
    k = 0
    while (size := round(10 ** (k / 10))) < count:
        k += 1
    return size


def rounded_to(count: float) -> int:
    """The nearest of 1, 2, 3, 4, 6, 10, 16, 25, 40, ... (five per decade) on a logarithmic scale; 1 below them.

    >>> [rounded_to(n) for n in (0.2, 7, 11, 26.8)]
    [1, 6, 10, 25]
    """
    return round(10 ** (max(0, round(5 * math.log10(count))) / 5))
