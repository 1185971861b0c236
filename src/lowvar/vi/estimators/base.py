"""The interface of gradient estimators, and helpers that they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lowvar.errors import UserError
from lowvar.vi.objective import Objective
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
    problem: Objective
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
