"""The incremental gradient against subsampling noise: SAGA at the batch's own base noise."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowvar.vi.batches import Noise
from lowvar.vi.estimators.base import Estimator, Properties, minus, plus
from lowvar.vi.estimators.tables import TABLES

_ROWS = 1024  # maximum number of data rows in a chunk of the full pass


def inc(problem, batches) -> Estimator:
    """``grad f(w; B, eps) + E_m grad f(w^m; m, eps) - grad f(w^n; n, eps)`` averaged over the batch.

    ``w^n`` are the parameters at which datum ``n`` was last visited. With batches that cover an epoch, this means the
    previous epoch: rows already visited in the current one are updated when it ends, which keeps the control's mean at
    zero. The middle term depends on ``eps`` and cannot be a running mean: every call is a pass over all rows, each at
    its own ``w^m``. With batches that cover an epoch, one vector for each batch of the previous epoch serves all its
    rows, and the first epoch is naive; with iid batches there is a vector for each row. It removes subsampling noise
    only: its variance is never below that of Monte Carlo noise, ``V_eps``.

    References:
        Defazio, Bach and Lacoste-Julien, "SAGA: a fast incremental gradient method", 2014; "inc" (eq. 13) in
        Wang, Geffner and Domke, 2024.
    """
    memory = incremental(problem, batches)

    def estimate(state, params, noise):
        control, state = memory.control(state, params, noise)
        return plus(problem.objective_gradient(params, noise), control), state

    properties = Properties(
        unbiased=True,
        gradients=2,
        full_gradients_per_call=1,
        table_rows=memory.rows,
        table_blocks=len(problem.blocks),
        needs_epochs=batches.covers,
    )
    return Estimator("inc", problem, properties, memory.init, estimate, end_epoch=memory.end_epoch)


class Incremental(NamedTuple):
    """The control variate ``E_m grad f(w^m; m, eps) - grad f(w^n; n, eps)`` with its memory.

    Attributes:
        rows: parameter vectors held.
        init: ``params -> state``.
        control: ``(state, params, noise) -> (control, state)``.
        end_epoch: ``(state, index (steps, B)) -> state``.
    """

    rows: int
    init: Callable[[Any], Any]
    control: Callable[[Any, Any, Any], tuple[Any, Any]]
    end_epoch: Callable[[Any, Any], Any]


def incremental(problem, batches) -> Incremental:
    """The memory and the control variate of ``inc``."""
    backend, xp = problem.backend, problem.backend.xp
    table = TABLES["snapshots" if batches.covers else "rows"](backend, batches)
    full, index = (of_snapshots if batches.covers else of_rows)(problem, batches)

    def init(params):
        state = {"table": table.init(params)}
        if batches.covers:
            epochs = xp.sum(xp.zeros_like(next(iter(params.values()))))  # a scalar: epochs completed
            state |= {"index": backend.asarray(index), "epochs": epochs}
        return state

    def control(state, params, noise):
        old = problem.objective_gradient_by_row(table.read(state["table"], noise.index), noise)
        change = minus(full(state, noise.eps), old)
        if batches.covers:
            ready = state["epochs"] > 0
            change = {block: xp.where(ready, value, xp.zeros_like(value)) for block, value in change.items()}
        return change, {**state, "table": table.write(state["table"], noise, params)}

    def end_epoch(state, index):
        state = {**state, "table": table.end_epoch(state["table"], index)}
        return state | {"index": index, "epochs": state["epochs"] + 1} if batches.covers else state

    return Incremental(table.rows, init, control, end_epoch)


def of_snapshots(problem, batches):
    """``(state, eps) -> E_m grad f(w^m; m, eps)``, batch by batch of the previous epoch: each vector is read once.

    Also returns ``index (steps, B)`` for the first epoch, in which all vectors are equal.
    """
    backend, steps, size = problem.backend, batches.steps, batches.size
    order = np.arange(steps * size).reshape(steps, size)
    there = order < batches.N
    rows = there.sum(axis=1, keepdims=True)
    chunks, single = cut(
        steps, max(1, _ROWS // size), {"weight": there / rows, "share": rows[:, 0] / batches.N}, problem
    )

    def full(state, eps):
        parts = state["table"]["previous"], state["index"]

        def of_slot(params, index, weight):
            return problem.objective_gradient(params, Noise(index, weight, None, eps, None))

        def add(total, chunk):
            params, index = parts if single else backend.take(parts, chunk["at"])
            gradients = backend.vmap(of_slot)(params, index, chunk["weight"])
            return plus(total, {block: chunk["share"] @ values for block, values in gradients.items()})

        return backend.scan_or_loop(add, zeros(backend, parts[0]), chunks)

    return full, np.minimum(order, batches.N - 1).astype(np.int32)


def of_rows(problem, batches):
    """``(state, eps) -> E_m grad f(w^m; m, eps)`` with a vector for each row."""
    backend = problem.backend
    chunks, single = cut(batches.N, _ROWS, {"weight": np.full(batches.N, 1 / batches.N)}, problem)

    def full(state, eps):
        def add(total, chunk):
            params = state["table"] if single else backend.take(state["table"], chunk["at"])
            noise = Noise(chunk["at"], chunk["weight"], None, eps, None)
            return plus(total, problem.objective_gradient_by_row(params, noise))

        return backend.scan_or_loop(add, zeros(backend, state["table"]), chunks)

    return full, None


def cut(count: int, most: int, arrays, problem):
    """``arrays`` and their indices ``at`` in chunks of at most ``most``, zero-padded, and whether there is only one."""
    chunks = -(-count // most)
    each = -(-count // chunks)
    padding = chunks * each - count
    cut = {"at": np.minimum(np.arange(chunks * each), count - 1).astype(np.int32)}
    for name, array in arrays.items():
        padded = np.concatenate([array, np.zeros((padding, *array.shape[1:]))])
        cut[name] = padded.astype(problem.dtype)
    of = problem.backend.asarray
    return {name: of(array.reshape(chunks, each, *array.shape[1:])) for name, array in cut.items()}, chunks == 1


def zeros(backend, table):
    """Zeros in the form of one of the table's entries."""
    return backend.tree_map(lambda leaf: backend.xp.zeros_like(leaf[0]), table)
