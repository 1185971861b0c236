"""What a family of studies declares, each thing once: its tables, its figures, the effects that claims are about.

A study is an experiment at a scale (``study.Study``). A family (``variational``, ``search``, ``integral``) is a folder
beside this file; its ``family.py`` lists what is declared there. Files, the workflow's jobs, the report's captions and
docs/results-schema.md are all made from these declarations.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lowvar.errors import check_known

Frame: TypeAlias = Any  # a pandas.DataFrame, whose own types are too loose to check


def always(experiment: Any) -> bool:
    """Of a table or figure that every experiment has."""
    return True


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: as in the file.
        dtype: as parquet has it: ``string``, ``float64``, ``int64``, ``bool``.
        meaning: one line.
        unit: ``nats``, ``seconds``, ``data rows``; empty where there is none.
        perhaps: whether a file can be without it.
    """

    name: str
    dtype: str
    meaning: str
    unit: str = ""
    perhaps: bool = False


def columns(*parts: str | tuple[Column, ...]) -> tuple[Column, ...]:
    """Columns, declared as lines of text: ``name | dtype | unit | meaning``.

    A name that ends with ``..`` stands for a statistic and the two ends of its 95 % interval. A dtype that ends with
    ``?`` is of a column that a file can be without. A line that begins with ``+`` continues the meaning above it.

    Args:
        *parts: lines of text, or columns that are declared already.

    >>> [(one.name, one.unit) for one in columns("gap_mean.. | float64 | nats | the gap")]
    [('gap_mean', 'nats'), ('gap_low', 'nats'), ('gap_high', 'nats')]
    """
    out: list[Column] = []
    for part in parts:
        if not isinstance(part, str):
            out += part
            continue
        for line in filter(None, map(str.strip, re.sub(r"\n\s*\+ ", " ", part).splitlines())):
            name, dtype, unit, meaning = (text.strip() for text in line.split("|", 3))
            plain, perhaps = dtype.removesuffix("?"), dtype.endswith("?")
            statistic = name.removesuffix("..")
            out.append(Column(statistic, plain, meaning, unit, perhaps))
            if statistic != name:
                stem = statistic.removesuffix("mean").removesuffix("_")
                for end, meaning in (("low", "lower end of its 95 % interval"), ("high", "upper end")):
                    out.append(Column(f"{stem}_{end}".strip("_"), plain, meaning, unit, perhaps))
    return tuple(out)


@dataclass(frozen=True)
class File:
    """A file that a job leaves and that is no table.

    Attributes:
        path: below the study's results, with names in braces.
        about: what it holds, and what a row is.
        columns: of a table, arrays of an npz, or keys of a JSON text with dots between levels.
    """

    path: str
    about: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Table:
    """A table of a family.

    Attributes:
        name: of its files, and in ``Figure.table`` and claims.
        about: what a row is, how rows were chosen, and how their statistics were made.
        columns: in the order of the file.
        make: ``make(gathered) -> Frame or rows``; ``gathered[name]`` is another table, ``gathered.traces`` and the like
            are what the runs left. It may return more columns than are declared, in any order.
        when: whether an experiment has it.
        kept: whether it is written as a file; False if it is for claims alone.
        timed: whether it holds wall times, which differ from run to run.
    """

    name: str
    about: str
    columns: tuple[Column, ...]
    make: Callable[[Any], Frame]
    when: Callable[[Any], bool] = always
    kept: bool = True
    timed: bool = False

    def frame(self, rows: Any) -> Frame:
        """The declared columns in their order, out of what ``make`` gave: a frame, or a list of rows.

        Without rows, columns have the types that are declared.
        """
        import pandas as pd

        if not len(rows):
            dtypes = {"string": "str"}
            return pd.DataFrame({one.name: pd.Series(dtype=dtypes.get(one.dtype, one.dtype)) for one in self.columns})
        return pd.DataFrame(rows)[[one.name for one in self.columns]].reset_index(drop=True)


def names_of(tables: tuple[Table, ...], experiment: Any) -> tuple[str, ...]:
    """The names of the tables that an experiment leaves as files, those of wall times apart."""
    return tuple(one.name for one in tables if one.kept and not one.timed and one.when(experiment))


@dataclass(frozen=True)
class Figure:
    """A figure of a family.

    Attributes:
        name: of its files.
        table: the table that it is drawn from.
        select: ``select(table, **options) -> rows``: what is drawn, and saved beside the picture.
        draw: ``draw(rows, **options) -> matplotlib.figure.Figure``, of those rows and nothing else.
        caption: for the report.
        answer: what it shows at a glance, for the head of the report.
        when: whether an experiment has it.
        options: keywords of ``select`` and ``draw`` that make this figure one of several of a kind.
        settings: ``settings(experiment)``: keywords that follow from what an experiment's file says.
    """

    name: str
    table: str
    select: Callable[..., Frame]
    draw: Callable[..., Any]
    caption: str
    answer: str = ""
    when: Callable[[Any], bool] = always
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Callable[[Any], Mapping[str, Any]] = lambda experiment: {}

    def picture(self, table: Frame, stem: str | os.PathLike, **options: Any) -> list[Path]:
        """Draws it and saves it with the rows that it shows; the paths of the vector, the bitmap and the csv.

        Args:
            table: what it is drawn from.
            stem: path without its ending.
            options: keywords of ``select`` and ``draw``, over its own.

        Raises:
            UserError: an unknown option, a missing column, or a folder that cannot be written.
        """
        from lowvar.studies.drawing.save import save

        figure, rows = self.drawn(table, **options)
        return save(figure, stem, rows)

    def drawn(self, table: Frame, **options: Any) -> tuple[Any, Frame]:
        """The ``matplotlib.figure.Figure`` and the rows that it shows; raises as ``picture``."""
        rows = self.rows(table, **options)
        return self.draw(rows, **self._of(self.draw, options)), rows

    def rows(self, table: Frame, **options: Any) -> Frame:
        """The rows that it shows; raises as ``picture``."""
        known = dict.fromkeys([*_keywords(self.select), *_keywords(self.draw)])
        for option in options:
            check_known("option", option, known, where=f"figure {self.name}")
        return self.select(table, **self._of(self.select, options))

    def _of(self, function, options):
        given = {**self.options, **options}
        return {name: given[name] for name in _keywords(function) if name in given}


def _keywords(function) -> list[str]:
    return list(inspect.signature(function).parameters)[1:]


@dataclass(frozen=True)
class Family:
    """What all studies of one kind have.

    Attributes:
        name: the ``family`` of their files.
        experiment: the model of their files.
        method: the key of a method that is a name alone.
        tables: what runs are gathered into.
        figures: what is drawn of them, in the order of a report.
        effects: what claims can be about, by name.
        files: what else their jobs leave.
        engine: ``engine(spec, source)``: what advances a run.
        packages: ``packages(spec)``: what a run, or a sample, depends on besides the packages of every job.
        sample: ``sample(spec, prepared)``: points, and what their file says of them; None where runs draw their noise.
        decomposition: ``decomposition(spec, prepared, progress_bar) -> Frame``; None where no variance is taken apart.
        metrics: ``metrics(gathered)``: numbers to watch from one run to the next, as rows of problem, quantity, run
            and value.
        headlines: names of figures: the report opens with the first that an experiment has, or with the first figure.
    """

    name: str
    experiment: type
    method: str
    tables: tuple[Table, ...]
    figures: Mapping[str, Figure]
    effects: Mapping[str, Any]
    files: tuple[File, ...]
    engine: Callable[..., Any]
    metrics: Callable[..., Any]
    packages: Callable[[Any], tuple[str, ...]] = lambda spec: ()
    sample: Callable[..., Any] | None = None
    decomposition: Callable[..., Frame] | None = None
    headlines: tuple[str, ...] = ()

    def figures_of(self, experiment: Any, where: str = "") -> dict[str, Figure]:
        """The figures that an experiment's key ``draw`` names; all that it can have where its family has no such key.

        Raises:
            UserError: it has no such figure.
        """
        there = (*names_of(self.tables, experiment), "seconds")
        known = {name: one for name, one in self.figures.items() if one.table in there and one.when(experiment)}
        for name in (chosen := getattr(experiment, "draw", known)):
            check_known("figure", name, known, where=f"{where}: draw")
        return {name: known[name] for name in chosen}
