"""Where each data row's stored parameters ``w^n`` are kept, for estimators of the SAGA kind.

With reshuffled epochs the row of a datum always comes from the previous epoch, where one parameter vector
served a whole batch. So the vectors of two epochs, ``2 ceil(N / B)`` of them, replace ``N``: one set is only
read, the other only written, and they change places when an epoch begins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.noise import Batches


@dataclass(frozen=True)
class Table:
    """A store of one parameter tree for each of ``N`` data rows.

    Attributes:
        rows: parameter vectors held.
        init: ``params -> state``, every row at ``params``.
        begin_epoch: ``(state, index (steps, B)) -> state``, before an epoch with those batches.
        read: ``(state, index (B,)) -> rows``, each array ``(B, dim)``.
        write: ``(state, noise, params) -> state``, the batch's rows set to ``params``.
    """

    rows: int
    init: Callable[[Any], Any]
    begin_epoch: Callable[[Any, Any], Any]
    read: Callable[[Any, Any], Any]
    write: Callable[[Any, Any, Any], Any]


def _repeated(backend, params, rows):
    return backend.tree_map(lambda leaf: backend.xp.broadcast_to(leaf, (rows, *leaf.shape)), params)


def snapshots(backend, batches: Batches) -> Table:
    """The parameters of the steps of the last epoch and of this one; for batches that cover each epoch."""
    xp, steps = backend.xp, batches.steps

    def init(params):
        table = _repeated(backend, params, steps)
        slot = backend.asarray(np.zeros(batches.N, np.int32))
        return {"previous": table, "current": table,
                "slot": slot, "next_slot": slot}  # fmt: skip

    def begin_epoch(state, index):
        position = xp.broadcast_to(backend.asarray(np.arange(steps, dtype=np.int32))[:, None], index.shape)
        next_slot = backend.set_rows(state["slot"], index.reshape(-1), position.reshape(-1))
        return {"previous": state["current"], "current": state["previous"],
                "slot": state["next_slot"], "next_slot": next_slot}  # fmt: skip

    def read(state, index):
        return backend.take(state["previous"], backend.take(state["slot"], index))

    def write(state, noise, params):
        return {**state, "current": backend.set_rows(state["current"], noise.position, params)}

    return Table(2 * steps, init, begin_epoch, read, write)


def by_row(backend, batches: Batches) -> Table:
    """One parameter vector for each data row, for any batches."""

    def write(state, noise, params):
        return backend.set_rows(state, noise.index, _repeated(backend, params, noise.index.shape[0]))

    return Table(
        batches.N,
        lambda params: _repeated(backend, params, batches.N),
        lambda state, index: state,
        lambda state, index: backend.take(state, index),
        write,
    )


TABLES = {"snapshots": snapshots, "rows": by_row}
