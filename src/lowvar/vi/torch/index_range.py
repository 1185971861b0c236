"""Rows of a PyTorch model whose log-likelihood reads an array at a negative index.

PyTorch counts those from the end, as the -1 by which pandas codes a missing category; it refuses those beyond the end
itself. As in ``index_range``, NaN takes the place of these entries: a row that uses one is then not finite, and a row
whose model replaces it, as by ``torch.where``, is.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary


class Strict(TorchDispatchMode):
    """Reads NaN at negative indices that are computed from rows, or that an array has for each row.

    Others, as in ``x[:, [0, -1]]``, are meant.

    Args:
        rows: the row numbers of the batch.
        N: number of rows of the data.

    Attributes:
        found: whether there was such an index.
    """

    def __init__(self, rows: torch.Tensor, N: int):
        super().__init__()
        self._of_rows, self._N, self.found = WeakTensorKeyDictionary(), N, False
        self._of_rows[rows] = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Runs one operation of PyTorch."""
        if func is torch.ops.aten.index.Tensor and (ways := self._negative(args[1])):
            self.found, args = True, _padded(args[0], args[1], ways)
        out = func(*args, **(kwargs or {}))
        if any(self._is_of_rows(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)):
            for one in tree_leaves(out):
                if isinstance(one, torch.Tensor):
                    self._of_rows[one] = True
        return out

    def _is_of_rows(self, one: torch.Tensor) -> bool:
        whole = not (one.is_floating_point() or one.is_complex())
        return one in self._of_rows or (whole and one.ndim > 0 and len(one) == self._N)

    def _negative(self, indices) -> list[int]:
        """The axes whose indices are rows' own and negative somewhere; none where a mask shifts the axes."""
        given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
        if any(one.dtype in (torch.bool, torch.uint8) for _, one in given):
            return []
        return [axis for axis, one in given if self._is_of_rows(one) and bool((one < 0).any())]


def _padded(source, indices, axes):
    """Arguments of an indexing in which negative indices read an additional last entry: NaN, or a negative number."""
    indices = list(indices)
    for axis in axes:
        gone = -1 if not source.is_floating_point() else torch.nan
        indices[axis] = torch.where(indices[axis] < 0, source.shape[axis], indices[axis])
        source = torch.cat([source, torch.full_like(source.narrow(axis, 0, 1), gone)], axis)
    return source, indices
