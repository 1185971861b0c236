"""SAGA's running means over data rows: the common part of the joint control variates.

``G`` is the mean over all rows of ``E grad f~(w^n; n, xi)``, with ``w^n`` the parameters at which row ``n`` was
last visited. Where an epoch visits every row, ``G`` is recomputed by its end from terms that the epoch produces
anyway, so that rounding does not accumulate. The first epochs are naive and fill the table. With iid batches, the
table starts full, at the initial parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from lowvar.vi.estimators.base import Estimator, Properties, plus
from lowvar.vi.estimators.tables import Table


class Terms(NamedTuple):
    """An estimator's terms from one batch.

    Attributes:
        gradient: ``grad f(w; B, eps)``, optionally with controls that need no memory, minus ``grad f~(w^n; n, eps)``
            once the table is ready; averaged over the batch.
        change: ``E grad f~(w; n, xi) - E grad f~(w^n; n, xi)`` averaged over the batch, in the form of ``G``.
        memory: the part of ``w`` that the table stores.
        fresh: the first term of ``change`` alone, from which ``G`` is recomputed; None where the recomputation would
            cost too much for the rounding error that it removes.
    """

    gradient: Any
    change: Any
    memory: Any
    fresh: Any = None


def saga(
    name: str,
    problem,
    batches,
    table: Table,
    properties: Properties,
    *,
    terms: Callable[[Any, Any, Any, Any], Terms],
    change: Callable[[Any, Any, Any, Any], Any],
    start: Callable[[Any], tuple[Any, Any]],
    full_mean: Callable[[Any], Any],
    mean: Callable[[Any, Any], Any] = lambda G, params: G,
    naive_epochs: int = 1,
    renewed: bool = True,
) -> Estimator:
    """``grad f(w; B, eps) + mean(G) - grad f~(w^n; n, eps)``.

    Args:
        name: name of the estimator.
        problem: the objective.
        batches: how rows are drawn.
        table: stores ``w^n``, or the part of it that is needed.
        properties: declared properties.
        terms: ``(rows, params, noise, once_ready) -> Terms``; ``once_ready`` makes arrays zero before the table is
            ready.
        change: ``(rows, params, index, weight) -> fresh - old`` averaged by other weights; for iid batches.
        start: ``params -> (initial content of the table, zeros in the form of G)``.
        renewed: whether terms have ``fresh``.
        full_mean: ``params -> G`` with all rows at ``params``: a pass over the data.
        mean: ``(G, params) ->`` the mean of ``grad f~(w^n; n, eps)`` over rows and noise.
        naive_epochs: epochs before the control is used, 1 or more; for batches that cover an epoch.
    """
    backend, xp, N = problem.backend, problem.backend.xp, problem.N

    def init(params):
        first, zero = start(params)
        epochs = xp.sum(xp.zeros_like(params[next(iter(params))]))  # a scalar: epochs completed
        if batches.covers:
            sums = {"G": zero, "G_next": zero} if renewed else {"G": zero}
            return {"table": table.init(first), **sums, "epochs": epochs}
        return {"table": table.init(first), "G": full_mean(params), "epochs": epochs + naive_epochs}

    def end_epoch(state, index):
        state = {**state, "table": table.end_epoch(state["table"], index)}
        if batches.covers:
            state["epochs"] = state["epochs"] + 1
            if renewed:
                state |= {"G": state["G_next"], "G_next": backend.tree_map(xp.zeros_like, state["G"])}
        return state

    def estimate(state, params, noise):
        ready = state["epochs"] >= naive_epochs

        def once_ready(tree):
            return backend.tree_map(lambda leaf: xp.where(ready, leaf, xp.zeros_like(leaf)), tree)

        rows = table.read(state["table"], noise.index)
        new = terms(rows, params, noise, once_ready)
        gradient = plus(new.gradient, once_ready(mean(state["G"], params)))
        if batches.covers:
            share = noise.rows / N
            state = {**state, "G": plus(state["G"], new.change, share)}
            if renewed:
                state["G_next"] = plus(state["G_next"], new.fresh, share)
        else:
            weight, distinct = first_visits(backend, noise.index, noise.weight)
            state = {**state, "G": plus(state["G"], change(rows, params, noise.index, weight), distinct / N)}
        state = {**state, "table": table.write(state["table"], noise, new.memory)}
        return gradient, state

    return Estimator(name, problem, properties, init, estimate, end_epoch=end_epoch)


def first_visits(backend, index, weight):
    """Weights of the rows of an iid batch, one drawn twice counted once, and how many distinct rows there are."""
    xp = backend.xp
    same = index[:, None] == index[None, :]
    order = xp.cumulative_sum(xp.ones_like(index))
    repeat = xp.any(same & (order[None, :] < order[:, None]), axis=1)
    first = xp.astype(~repeat, weight.dtype)
    return first / xp.sum(first), xp.sum(first)
