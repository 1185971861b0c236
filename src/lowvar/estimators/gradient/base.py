"""What a gradient estimator is, and the plain reparameterisation gradient that all of them start from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lowvar.problems.variational import VariationalProblem


@dataclass(frozen=True)
class Properties:
    """What an estimator claims of itself; the contract tests measure all of it.

    Attributes:
        unbiased: its mean over iid noise is the exact gradient, at any params and any state.
        backends: the backends it runs on.
        gradients: gradients per data row and noise point in one call.
        gradients_without_noise: further gradients per data row, at points without noise.
        hvps: Hessian-vector products per data row (each gives the gradient at its point too).
        full_passes: gradients over all data rows, per epoch.
        full_passes_at_start: the same, once, when a run starts.
        table_rows: stored parameter vectors.
        needs_epochs: its memory is right only when an epoch visits every row once.
    """

    unbiased: bool
    gradients: int = 1
    gradients_without_noise: int = 0
    hvps: int = 0
    full_passes: int = 0
    full_passes_at_start: int = 0
    table_rows: int = 0
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
        estimate: ``(state, params, noise) -> (gradient, state, oracles)``; the gradient has the params' form.
        begin_epoch: ``(state, params) -> state``, before an epoch.
        end_epoch: ``(state, index (steps, B)) -> state``, after an epoch with those batches. Between epochs a
            state is complete: ``estimate`` with any batch, also one of another kind, is unbiased.
    """

    name: str
    problem: VariationalProblem
    properties: Properties
    init: Callable[[Any], Any]
    estimate: Callable[[Any, Any, Any], tuple[Any, Any, Oracles]]
    begin_epoch: Callable[[Any, Any], Any] = lambda state, params: state
    end_epoch: Callable[[Any, Any], Any] = lambda state, index: state

    def oracles(self, noise) -> Oracles:
        """Oracle calls of one estimate with ``noise``, as the properties declare them."""
        declared, points = self.properties, noise.eps.shape[-2]
        per_row = declared.gradients * points + declared.gradients_without_noise
        return Oracles(noise.rows * per_row, noise.rows * declared.hvps)

    def oracles_of_run(self, epochs, rows: int, points: int) -> Oracles:
        """Oracle calls of a run's first ``epochs`` epochs.

        Args:
            epochs: a number of epochs, or an array of them.
            rows: data rows that an epoch visits.
            points: noise points a batch.
        """
        declared = self.properties
        per_row = declared.gradients * points + declared.gradients_without_noise
        passes = epochs * declared.full_passes + declared.full_passes_at_start
        return Oracles(epochs * rows * per_row + self.problem.N * passes, epochs * rows * declared.hvps)


def stateless(name: str, problem, properties: Properties, gradient: Callable[[Any, Any], Any]) -> Estimator:
    """An estimator without memory, from ``gradient(params, noise)``."""

    def estimate(state, params, noise):
        return gradient(params, noise), state, made.oracles(noise)

    made = Estimator(name, problem, properties, lambda params: (), estimate)
    return made


def mean_over_points(backend, function, eps):
    """The mean of ``function(eps_s)``, a tree, over the points ``eps (S, dim)``."""
    if eps.shape[0] == 1:
        return function(eps[0])
    return backend.tree_map(lambda leaf: backend.xp.mean(leaf, axis=0), backend.vmap(function)(eps))


def reparameterisation_gradient(problem, params, noise):
    """``grad_w f(w; B, eps)``: the model's part through ``z = mu + sigma eps``, the entropy's in closed form."""
    guide = problem.guide

    def of_model(eps):
        z = guide.transform(params, eps)
        return guide.pull_back(params, eps, problem.gradient(z, noise.index, noise.weight))

    model = mean_over_points(problem.backend, of_model, noise.eps)
    entropy = guide.entropy_gradient(params)
    return {block: model[block] - entropy[block] for block in model}


def plus_mean_part(gradient, control):
    """``gradient`` with ``control``, a vector of mean zero, added to its part for ``mu``."""
    return {**gradient, "mu": gradient["mu"] + control}
