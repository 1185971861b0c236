"""Storage of the parameters ``w^n`` of each data row, for SAGA estimators.

With reshuffled epochs, ``w^n`` always comes from the previous epoch, where a whole batch shares one parameter vector.
So ``2 ceil(N / B)`` vectors, those of two epochs, replace ``N``: one set is only read, the other only written, and they
swap when an epoch ends.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known
from lowvar.vi.batches import Batches


@dataclass(frozen=True)
class Table:
    """A store of one parameter tree for each of ``N`` data rows.

    Attributes:
        rows: parameter vectors held.
        init: ``params -> state``, every row at ``params``.
        read: ``(state, index (B,)) -> rows``, each array ``(B, dim)``; ``(dim,)`` from a table of batches.
        write: ``(state, noise, params) -> state``, the batch's rows set to ``params``.
        end_epoch: ``(state, index (steps, B)) -> state``, after an epoch with those batches.
    """

    rows: int
    init: Callable[[Any], Any]
    read: Callable[[Any, Any], Any]
    write: Callable[[Any, Any, Any], Any]
    end_epoch: Callable[[Any, Any], Any]


def _repeated(backend, params, rows):
    return backend.tree_map(lambda leaf: backend.xp.broadcast_to(leaf, (rows, *leaf.shape)), params)


def _of_epochs(backend, batches: Batches, rows: int, content: Callable[[Any], Any], by_row: bool) -> Table:
    """The entries of each step of the previous and the current epoch, one for a batch, or one for each of its rows."""
    xp, steps, size = backend.xp, batches.steps, batches.size

    def init(params):
        table = content(params)
        return {"previous": table, "current": table, "slot": backend.asarray(np.zeros(batches.N, np.int32))}

    def read(state, index):
        table = xp.reshape(state["previous"], (steps * size, -1)) if by_row else state["previous"]
        return backend.take(table, backend.take(state["slot"], index))

    def write(state, noise, params):
        return {**state, "current": backend.set_rows(state["current"], noise.position, params)}

    def end_epoch(state, index):
        # padding repeats a batch's first row; writing in reverse order leaves each row's first position
        place = np.arange(steps * size, dtype=np.int32)[::-1] // (1 if by_row else size)
        slot = backend.set_rows(state["slot"], xp.flip(xp.reshape(index, (-1,))), backend.asarray(place))
        return {"previous": state["current"], "current": state["previous"], "slot": slot}

    return Table(rows, init, read, write, end_epoch)


def snapshots(backend, batches: Batches) -> Table:
    """The parameters at each step of the previous and the current epoch; for batches that cover each epoch."""
    steps = batches.steps
    return _of_epochs(backend, batches, 2 * steps, lambda params: _repeated(backend, params, steps), by_row=False)


def batch_snapshots(backend, batches: Batches) -> Table:
    """As ``snapshots``, for fixed batches: ``read`` gives the one vector that all rows of a batch share."""
    stored = snapshots(backend, batches)

    def read(state, index):
        return backend.tree_map(lambda leaf: leaf[0], stored.read(state, index[:1]))

    return replace(stored, read=read)


def by_row(backend, batches: Batches) -> Table:
    """One parameter vector for each data row, for any batches."""

    def write(state, noise, params):
        return backend.set_rows(state, noise.index, _repeated(backend, params, noise.index.shape[0]))

    def init(params):
        return _repeated(backend, params, batches.N)

    return Table(batches.N, init, backend.take, write, lambda state, index: state)


def cached(backend, batches: Batches) -> Table:
    """A short vector for each data row, for any batches; ``init`` takes all vectors, ``write`` those of a batch."""
    if not batches.covers:

        def write_rows(state, noise, values):
            return backend.set_rows(state, noise.index, values)

        return Table(0, lambda values: values, backend.take, write_rows, lambda state, index: state)
    xp, steps, size = backend.xp, batches.steps, batches.size

    def zeros(values):
        return xp.reshape(_repeated(backend, xp.zeros_like(values[0]), steps * size), (steps, size, -1))

    return _of_epochs(backend, batches, 0, zeros, by_row=True)


TABLES = {"snapshots": snapshots, "rows": by_row}
_NEEDED = {"batches": "fixed", "snapshots": "reshuffled or fixed"}


def table_of_vectors(estimator: str, table: str | None, backend, batches: Batches, by_batch=False) -> tuple[str, Table]:
    """The table called ``table`` for an estimator, or the smallest that its batches allow, with its name.

    Args:
        estimator: its name.
        table: ``"batches"``, ``"snapshots"`` or ``"rows"``; the first possible one if not given.
        backend: the backend of the arrays.
        batches: how rows are drawn.
        by_batch: whether the estimator can use one vector for a batch.

    Raises:
        UserError: an unknown table, or one that the batches do not allow.
    """
    makers = {"batches": batch_snapshots, **TABLES} if by_batch else TABLES
    possible = {"batches": batches.same, "snapshots": batches.covers, "rows": True}
    name = table or next(name for name in makers if possible[name])
    check_known("table", name, makers)
    if not possible[name]:
        raise UserError(
            f"{estimator}: table {name!r} needs {_NEEDED[name]} batches, not {batches.name!r}; use table='rows'"
        )
    return name, makers[name](backend, batches)
