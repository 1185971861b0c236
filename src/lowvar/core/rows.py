"""A user's data: arrays of numbers, their rounding, and rows that stay in files.

A source of rows, memory-mapped arrays or parquet, has ``N`` rows in blocks of ``sizes`` contiguous ones.
``read(block)`` and ``take(index)`` give their columns, ``{name: (rows, ...)}``, as NumPy arrays; nothing else is held
in memory.
"""

import glob
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known, require, whole

_BLOCK = 2**16  # bytes of a block of memory-mapped rows: large enough for reads in any order
_WINDOW = 2**26  # bytes of the rows that are shuffled together
USE_OF_PARQUET = (
    "lowvar.fit(model, lowvar.Parquet(path, x=['a', 'b'], y='c')), and functools.partial(model, ...) for what is the "
    "same for all rows"
)


class MappedArrays:
    """Arrays of equal length, of which some are memory-mapped.

    Args:
        arrays: the arrays, by name.

    Attributes:
        N: number of rows.
        sizes: rows of each block, ``(blocks,)``.
        window: rows to shuffle together, or some more.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = dict(arrays)
        self.N = len(next(iter(self._arrays.values())))
        bytes_of_row = sum(array.nbytes // self.N for array in self._arrays.values())
        block = max(1, _BLOCK // max(1, bytes_of_row))
        self._starts = np.arange(0, self.N, block)
        self.sizes = np.diff(np.append(self._starts, self.N))
        self.window = block * (_WINDOW // _BLOCK)

    def read(self, block: int) -> dict[str, np.ndarray]:
        """The columns of a block."""
        where = slice(self._starts[block], self._starts[block] + self.sizes[block])
        return {name: np.asarray(array[where]) for name, array in self._arrays.items()}

    def take(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """The columns of the rows ``index (n,)``, which ascends."""
        return {name: np.asarray(array[index]) for name, array in self._arrays.items()}

    def about(self) -> str:
        """What a user may not know of the columns' shapes, in words: these arrays have those that the user gave."""
        return ""


class Parquet:
    """Rows of parquet files, for ``lowvar.fit(model, lowvar.Parquet(path, x=["age", "dose"], y="outcome"))``.

    A block is a row group. Those that are shuffled together are held in memory.

    Args:
        path: a file, a folder of files, or a list of files.
        memory: bytes of the rows that are shuffled together; 64 MiB if not given, and one row group at least.
        columns: for each argument of the model, a column, which gives an array ``(N,)``, or a list of ``k`` columns,
            which give ``(N, k)``.

    Raises:
        UserError: no such file or column, a column without numbers or of several types, or no rows; or pyarrow is
            missing.

    >>> import lowvar, os, pandas as pd, tempfile
    >>> table = pd.DataFrame({"age": [31.0, 47.0], "dose": [0.5, 1.0], "outcome": [0, 1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(os.path.join(folder, "rows.parquet"))
    ...     rows = lowvar.Parquet(folder, x=["age", "dose"], y="outcome")
    ...     rows.N, rows.read(0)["x"].tolist()
    (2, [[31.0, 0.5], [47.0, 1.0]])
    """

    def __init__(self, path: Any, *, memory: int = _WINDOW, **columns: str | Sequence[str]):
        require("Parquet", "pyarrow", "files")
        import pyarrow.dataset

        memory = whole("Parquet: memory", memory, 1)
        paths = [str(one) for one in _paths(path)]
        self._path = path = paths[0] if len(paths) == 1 else paths
        if not columns or not all(columns.values()):
            raise UserError("Parquet: name the model's arguments and their columns: Parquet(path, x=['a', 'b'], y='c')")
        try:
            data = pyarrow.dataset.dataset(path, format="parquet")
            files = list(data.get_fragments())
            _refuse_twice(file.path for file in files)
            self._groups = [group for file in files for group in file.split_by_row_group()]
            sizes = [group.row_groups[0].num_rows for group in self._groups]
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            raise UserError(f"Parquet: {path}: {' '.join(str(error).split())[:200]}") from error
        self._columns = {key: [of] if isinstance(of, str) else list(of) for key, of in columns.items()}
        self._scalar = {key for key, of in columns.items() if isinstance(of, str)}
        if not sum(sizes):
            raise UserError(f"Parquet: {path}: there are no rows")
        wanted = sorted({name for of in self._columns.values() for name in of})
        for name in wanted:
            check_known("column", name, data.schema.names, where=f"Parquet: {path}")
            kind = data.schema.field(name).type
            if not (
                pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
            ):
                raise UserError(f"Parquet: {path}: column {name!r} holds {kind}, not numbers; encode it as numbers")
            for file in files:
                at = file.physical_schema.get_field_index(name)
                held = file.physical_schema.field(at).type if at >= 0 else "missing"
                if held != kind:
                    raise UserError(
                        f"Parquet: {file.path}: column {name!r} is {held}, and {kind} in {files[0].path}: write all "
                        "files with the same type"
                    )
        self._names = wanted
        self.sizes, self.N = np.array(sizes, int), sum(sizes)
        self._starts = np.cumsum(self.sizes) - self.sizes
        self.window = max(1, memory // (8 * sum(map(len, self._columns.values()))))

    def about(self) -> str:
        """See ``MappedArrays``."""
        shapes = ", ".join(
            f"{key} (N,) of column {names[0]!r}" if key in self._scalar
            else f"{key} (N, {len(names)}) of columns {', '.join(map(repr, names))}"
            for key, names in self._columns.items()
        )  # fmt: skip
        return f"the Parquet gives {shapes}; a list of one column gives (N, 1)"

    def _table(self, block: int) -> dict[str, np.ndarray]:
        arrays = {}
        try:
            table = self._groups[block].to_table(columns=self._names)
        except (OSError, ValueError) as error:  # pyarrow's errors are one of these
            raise UserError(
                f"Parquet: {self._groups[block].path}: a row group cannot be read: {' '.join(str(error).split())[:200]}"
            ) from error
        for name in self._names:
            column = table.column(name)
            if column.null_count:
                row = int(self._starts[block] + np.flatnonzero(np.asarray(column.is_null()))[0])
                raise UserError(f"Parquet: {self._path}: column {name!r} is missing in row {row}; remove such rows")
            arrays[name] = column.to_numpy()
        return arrays

    def read(self, block: int) -> dict[str, np.ndarray]:
        """See ``MappedArrays``."""
        table = self._table(block)
        return {
            key: table[names[0]] if key in self._scalar else np.column_stack([table[name] for name in names])
            for key, names in self._columns.items()
        }

    def take(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """See ``MappedArrays``: reads every row group that has one of them."""
        first = np.searchsorted(index, self._starts)
        last = np.searchsorted(index, self._starts + self.sizes)
        found = [
            {key: of[index[i:j] - self._starts[block]] for key, of in self.read(block).items()}
            for block, (i, j) in enumerate(zip(first, last, strict=True))
            if i < j
        ]
        return {key: np.concatenate([one[key] for one in found]) for key in found[0]}


def _paths(path: Any) -> list[Any]:
    """The paths that a ``Parquet`` is given, which exist."""
    try:
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        missing = [one for one in paths if not str(one) or not Path(one).exists()]
    except TypeError as error:
        raise UserError(f"Parquet: {path!r}: give a file, a folder, or a list of files") from error
    if missing:
        if not str(missing[0]):
            raise UserError("Parquet: the path is an empty text; give a file, a folder, or a list of files")
        hint = "; give sorted(glob.glob(pattern)) for a pattern" if glob.has_magic(str(missing[0])) else ""
        raise UserError(f"Parquet: {missing[0]}: there is no such file or folder{hint}")
    if not paths:
        raise UserError("Parquet: the list of files is empty; if it is from a pattern, no file matches that")
    return paths


def _refuse_twice(paths: Iterable[str]) -> None:
    """Raises a ``UserError`` for a file that is named twice, whose rows would count twice."""
    count = Counter(os.path.realpath(one) for one in paths)
    if twice := [path for path, times in count.items() if times > 1]:
        raise UserError(f"Parquet: {twice[0]} is in the list more than once; its rows would count as often")


def in_files(data: Any) -> tuple["MappedArrays | Parquet | None", dict[str, Any]]:
    """The rows that a model's data have in files, and the data that are the same for all rows.

    Memory-mapped arrays are rows, and so are all arrays of the same length beside them.

    Returns:
        ``(source, others)``; the source is None if all data are in memory.

    Raises:
        UserError: memory-mapped arrays of different lengths, one without rows, or a masked array beside them.
    """
    if not isinstance(data, Mapping):
        return (data, {}) if callable(getattr(data, "read", None)) and hasattr(data, "sizes") else (None, {})
    lengths = {key: len(value) if value.ndim else 0 for key, value in data.items() if isinstance(value, np.memmap)}
    if not lengths:
        return None, dict(data)
    N = next(iter(lengths.values()))
    if len(set(lengths.values())) > 1 or not N:
        told = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise UserError(
            f"data: memory-mapped arrays have different numbers of rows, or none: {told}; load an array that has "
            "another meaning than rows: numpy.array(x)"
        )
    for key, value in data.items():
        refuse_mask("data", key, value)
    rows = {key: np.asarray(value) for key, value in data.items() if _length(value) == N}
    return MappedArrays(rows), {key: value for key, value in data.items() if key not in rows}


def refuse_mask(where: str, key: str, value: Any) -> None:
    """Raises a ``UserError`` for a masked array, whose mask NumPy would drop."""
    if isinstance(value, np.ma.MaskedArray):
        raise UserError(f"{where}: {key!r} is a masked array, whose mask would be lost; remove the masked rows")


def native(value: Any) -> Any:
    """``value``, an array of NumPy in the machine's byte order: those of FITS and HDF5 files have another."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value


def numeric_array(where: str, key: str, value: Any) -> Any:
    """``value``, an array of NumPy in the machine's byte order; raises a ``UserError`` unless it holds numbers."""
    refuse_mask(where, key, value)
    value = native(value)
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
        names = {"U": "text", "S": "bytes", "M": "dates", "m": "durations"}
        other = next((type(one).__name__ for one in value.flat if not isinstance(one, Number)), "")
        held = names.get(value.dtype.kind, other or str(value.dtype))
        if value.dtype == object and value.size and not other:
            raise UserError(f"{where}: {key!r} has numbers as objects (dtype object); give it with .astype(float)")
        raise UserError(
            f"{where}: {key!r} holds {held}, not numbers; encode categories as integers, and dates as floats"
        )
    return value


def _length(value) -> int | None:
    """The length of an array, a column of a data frame or a list."""
    shape = np.shape(value) if hasattr(value, "shape") else (len(value),) if isinstance(value, list | tuple) else ()
    return shape[0] if shape else None


_LOST, _NOTED = 1e-3, 2e-5  # rounding errors, in standard deviations of a column: refused, and told
_TIES, _OFFSET = 0.1, 2e-7  # rows that become equal to another one, in columns far from 0 for their spread
_CONSTANT = 1e-12  # a smaller spread, relative to the values, is rounding of a constant in double precision
_MOST, _NEIGHBOURS = 2**22, 1000  # most entries whose errors are computed; contiguous rows that are told apart


def float32_merges_rows(given: Any) -> tuple[bool, str] | None:
    """Whether float32 loses what distinguishes the rows of an array.

    A column is a position in the row. Data of any size and spread around 0 lose nothing: their errors are 3e-8 standard
    deviations. Errors that are larger come from an offset, as of dates, large identifiers and coordinates.

    Args:
        given: an array of numbers, ``(rows, ...)``.

    Returns:
        ``(whether it is lost, the values in words)`` of the worst column; None if the errors are negligible.
    """
    value = np.asarray(given)
    if value.ndim == 0 or len(value) < 2 or value.dtype.kind not in "iuf" or np.finfo(np.float32).nmant >= _bits(value):
        return None
    table = value.reshape(len(value), -1)
    rows = max(_NEIGHBOURS, _MOST // max(1, table.shape[1]))
    some = table[:: -(-len(table) // rows)].astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        single = some.astype(np.float32).astype(float)
        known = np.isfinite(single)  # other checks are about entries that are not
        error = np.where(known, some - single, 0.0)
        count = np.maximum(known.sum(axis=0), 1)  # a column may have no finite entry
        centred = np.where(known, some - np.sum(some, axis=0, where=known) / count, 0.0)
        spread = np.sqrt(np.sum(centred**2, axis=0) / count)
        varies = spread > _CONSTANT * np.max(np.abs(some), axis=0, where=known, initial=0)
        relative = np.sqrt(np.mean(error**2, axis=0)) / np.where(varies, spread, np.inf)
    relative = np.nan_to_num(relative)
    for column in np.argsort(-relative)[:50]:
        ratio = relative[column]
        lost = ratio > _LOST or (ratio > _OFFSET and _ties(table[:, column]) > _TIES)
        if not lost and ratio <= _NOTED:
            continue
        row = int(np.abs(error[:, column]).argmax())
        place = f"column {column} of the array: " if table.shape[1] > 1 else ""
        return bool(lost), (
            f"{place}{float(some[row, column])!r} becomes {float(single[row, column])!r} in single precision, and the "
            f"standard deviation is {spread[column]:.3g}"
        )
    return None


def _bits(value: np.ndarray) -> int:
    """The bits of a type's numbers: the values of small types are exact in single precision."""
    return np.finfo(value.dtype).nmant if value.dtype.kind == "f" else 8 * value.dtype.itemsize


def _ties(column: np.ndarray) -> float:
    """The largest share of distinct numbers that become equal to another one, among neighbouring rows."""
    shares = []
    for first in {0, max(0, len(column) // 2 - _NEIGHBOURS // 2), max(0, len(column) - _NEIGHBOURS)}:
        some = np.unique(column[first : first + _NEIGHBOURS].astype(float))
        shares.append(1 - len(np.unique(some.astype(np.float32))) / len(some))
    return max(shares)
