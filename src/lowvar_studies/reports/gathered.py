"""The files of a study's runs, and the tables made from them."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from lowvar.core import artifact
from lowvar_studies.reports.declarations import Frame, Table


class Gathered(Mapping):
    """The tables of a study by name, each made or read on first access.

    Stale files are refused: the message names the file and the command that rebuilds it.

    Args:
        study: the experiment and its files.
        tables: declared by its family.
        made: whether tables are made from the files of the runs. If not, kept tables are read from their files.

    Attributes:
        study: as above.
        experiment: its content.
    """

    def __init__(self, study: Any, tables: tuple[Table, ...], *, made: bool = True) -> None:
        self.study, self.experiment, self._made = study, study.experiment, made
        self._tables = {one.name: one for one in tables if one.when(study.experiment)}
        self._frames: dict[str, Frame] = {}
        self._values: dict[Callable, Any] = {}

    def __getitem__(self, name: str) -> Frame:
        if name not in self._frames:
            table = self._tables[name]
            read = table.kept and not table.timed and not self._made
            self._frames[name] = self.study.table(name) if read else table.frame(table.make(self))
        return self._frames[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    @property
    def used(self) -> tuple[str, ...]:
        """The tables that were read so far."""
        return tuple(self._frames)

    def get(self, name: str, default: Any = None) -> Any:
        """A table, or the default if the experiment has none of that name."""
        if name not in self:  # Mapping.get would take a KeyError inside Table.make for a missing table
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, table in self._tables.items() if not table.timed)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def once(self, make: Callable[["Gathered"], Any]) -> Any:
        """``make(self)``, computed once for all tables that use it."""
        if make not in self._values:
            self._values[make] = make(self)
        return self._values[make]

    @cached_property
    def traces(self) -> Frame:
        """The traces of all runs, concatenated."""
        return self.study.gather("run", "trace.parquet")

    @cached_property
    def timings(self) -> Frame:
        """The timings of all runs, concatenated."""
        return self.study.gather("run", "timing.parquet")

    @property
    def params(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        """Problem, method, backend and the arrays in ``params.npz`` of every run."""
        for job in self.study.jobs("run"):
            problem, method, backend = job.names.values()
            yield problem, method, backend, job.read("params.npz", artifact.read_arrays)[0]

    @cached_property
    def decompositions(self) -> Frame:
        """The decompositions of all problems, concatenated."""
        return self.study.gather("decompose", "decomposition.parquet")
