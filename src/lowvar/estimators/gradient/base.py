"""What a gradient estimator is, and the plain reparameterisation gradient that all of them start from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lowvar.errors import UserError
from lowvar.problems.objective import Objective
from lowvar.problems.variational import VariationalProblem


@dataclass(frozen=True)
class Properties:
    """What an estimator claims of itself; the contract tests measure all of it.

    Attributes:
        unbiased: its mean over iid noise is the exact gradient, at any params and any state.
        keeps: share of its last error that an estimate keeps, where it is not: its mean given the past is the exact
            gradient and that share of the last estimate's error.
        backends: the backends it runs on.
        gradients: gradients per data row and noise point in one call.
        gradients_without_noise: further gradients per data row, at points without noise.
        hvps: Hessian-vector products per data row (each gives the gradient at its point too).
        full_passes: gradients over all data rows, per epoch.
        full_passes_at_start: the same, once, when a run starts.
        full_gradients_per_call: gradients over all data rows, for each noise point, in every call.
        full_hvps_per_call: Hessian-vector products over all data rows, in every call.
        table_rows: stored vectors.
        table_blocks: blocks of the parameters in each of them: 2 for ``mu`` and ``log sigma``.
        needs_epochs: its memory is right only when an epoch visits every row once.
    """

    unbiased: bool
    keeps: float = 0.0
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
    backends: tuple[str, ...] = ("jax", "torch")


class Oracles(NamedTuple):
    """Oracle calls, in data rows: the cost of an estimate that does not depend on the machine."""

    gradients: Any
    hvps: Any


@dataclass(frozen=True)
class Estimator:
    """An estimator of ``grad_w f(w)`` bound to its problem, made of pure functions.

    Attributes:
        name: as in the registry.
        problem: what it estimates for.
        properties: what it declares.
        init: ``params -> state``.
        estimate: ``(state, params, noise) -> (gradient, state)``; the gradient has the params' form.
        begin_epoch: ``(state, params) -> state``, before an epoch.
        end_epoch: ``(state, index (steps, B)) -> state``, after an epoch with those batches. Between epochs a
            state is complete: ``estimate`` with any batch, also one of another kind, is unbiased.
        points: ``(epoch, state) -> noise points`` of the epoch's steps, where they change along a run; the sampler
            then draws so many. Without it, as many as the sampler was made for.
        review: epochs after which ``points`` may change with the state (NumPy arrays) of a single run, whose entry
            ``taken`` then counts the points of all steps so far, and ``points`` those of the next; if 0, it depends
            on the epoch alone and is given None.
        sizes: the numbers of points that it may ask for, where it depends on the state.
    """

    name: str
    problem: Objective
    properties: Properties
    init: Callable[[Any], Any]
    estimate: Callable[[Any, Any, Any], tuple[Any, Any]]
    begin_epoch: Callable[[Any, Any], Any] = lambda state, params: state
    end_epoch: Callable[[Any, Any], Any] = lambda state, index: state
    points: Callable[[int, Any], int] | None = None
    review: int = 0
    sizes: tuple[int, ...] = ()

    def oracles_of_run(self, epochs, rows: int, points: int, steps: int | None = None) -> Oracles:
        """Oracle calls of a run's first ``epochs`` epochs.

        Args:
            epochs: a number of epochs, or an array of them.
            rows: data rows that an epoch visits.
            points: noise points a batch.
            steps: batches in an epoch; asked of estimators that pass over all rows in every call.
        """
        declared, N = self.properties, self.problem.N
        per_row = declared.gradients * points + declared.gradients_without_noise
        passes = epochs * declared.full_passes + declared.full_passes_at_start
        gradients, hvps = epochs * rows * per_row + N * passes, epochs * rows * declared.hvps
        if declared.full_gradients_per_call or declared.full_hvps_per_call:
            if steps is None:
                raise ValueError(f"{self.name} passes over all rows in every call: say how many steps an epoch has")
            gradients = gradients + epochs * steps * N * points * declared.full_gradients_per_call
            hvps = hvps + epochs * steps * N * declared.full_hvps_per_call
        return Oracles(gradients, hvps)


def stateless(name: str, problem, properties: Properties, gradient: Callable[[Any, Any], Any]) -> Estimator:
    """An estimator without memory, from ``gradient(params, noise)``."""

    def estimate(state, params, noise):
        return gradient(params, noise), state

    return Estimator(name, problem, properties, lambda params: (), estimate)


def plus(gradient, control, scale: Any = 1):
    """``gradient`` with ``scale`` times ``control`` added to the blocks that ``control`` has."""
    return {**gradient, **{block: gradient[block] + scale * value for block, value in control.items()}}


def minus(gradient, control):
    """``gradient`` less ``control`` in the blocks that ``control`` has."""
    return {**gradient, **{block: gradient[block] - value for block, value in control.items()}}


def variational(problem, name: str) -> VariationalProblem:
    """``problem``, as the one kind of objective that estimator ``name`` can work on.

    Raises:
        UserError: it is no variational problem.
    """
    if not isinstance(problem, VariationalProblem):
        raise UserError(f"estimator {name!r} needs a model with a guide, which {problem.name!r} has not")
    return problem
