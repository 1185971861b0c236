"""Declarations of a family of studies: its tables, figures, files, and the effects that claims test.

A study is an experiment at a scale (``study.Study``). A family (``variational``, ``search``, ``integral``) is a folder
beside this file; its ``family.py`` lists the declarations. Files, the workflow's jobs, the report's captions and
``lowvar schema --page`` are made from them.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lowvar.errors import UserError, check_known

Frame: TypeAlias = Any  # a pandas.DataFrame, whose types are too loose to check
KEYS = ["problem", "method", "backend"]  # of a run
RUN = """
problem | string | | the experiment's name for the problem
method | string | | the experiment's name for the method
backend | string | | `jax` or `torch`; `jax` for searches of other libraries
"""


def always(experiment: Any) -> bool:
    """The condition of a table or figure that every experiment has."""
    return True


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: as in the file.
        dtype: the parquet type: ``string``, ``float64``, ``int64``, ``bool``.
        meaning: one line.
        unit: such as ``nats``, ``seconds``, ``data rows``; empty if there is none.
        perhaps: whether a file may lack the column.
    """

    name: str
    dtype: str
    meaning: str
    unit: str = ""
    perhaps: bool = False


def columns(*parts: str | tuple[Column, ...]) -> tuple[Column, ...]:
    """Columns, declared as lines of text: ``name | dtype | unit | meaning``.

    A name that ends with ``..`` stands for a statistic and the two ends of its 95 % interval. A dtype that ends with
    ``?`` marks a column that a file may lack. A line that begins with ``+`` continues the meaning above it.

    Args:
        *parts: lines of text, or declared columns.

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
    """A file that a job writes, other than a table of results.

    Attributes:
        path: below the study's results, with names in braces.
        about: its content, and the meaning of a row.
        columns: columns of a parquet file, arrays of an npz, or keys of a JSON text with dots between levels.
    """

    path: str
    about: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Table:
    """A table of a family.

    Attributes:
        name: of its files, and in claims.
        about: the meaning of a row, the selection of rows, and the definition of statistics.
        columns: in the order of the file.
        make: ``make(gathered) -> Frame or rows``; ``gathered[name]`` is another table, ``gathered.traces`` and the like
            are files of the runs. It may return additional columns, in any order.
        when: whether an experiment has the table.
        kept: whether it is written to a file; False for a table for claims only.
        timed: whether it holds wall times, which differ from run to run.
        rows_of: the kind of job that its rows come from.
    """

    name: str
    about: str
    columns: tuple[Column, ...]
    make: Callable[[Any], Frame]
    when: Callable[[Any], bool] = always
    kept: bool = True
    timed: bool = False
    rows_of: str = "run"

    def frame(self, rows: Any) -> Frame:
        """The declared columns, in order, of the frame or list of rows that ``make`` returned.

        Without rows, columns have their declared types. Whole numbers in a column of float64 become floats: one
        that some rows lack would be float anyway, and types must not depend on which rows there are.
        """
        import pandas as pd

        if not len(rows):
            dtypes = {"string": "str"}
            return pd.DataFrame({one.name: pd.Series(dtype=dtypes.get(one.dtype, one.dtype)) for one in self.columns})
        table = pd.DataFrame(rows)[[one.name for one in self.columns]].reset_index(drop=True)
        whole = {
            one.name: "float64" for one in self.columns if one.dtype == "float64" and table[one.name].dtype.kind in "iu"
        }
        return table.astype(whole)


def believed(table: Frame, columns: tuple[Column, ...], names: Mapping[str, str], where: str) -> Frame:
    """``table``, if it has the declared columns, and in those called like ``names`` no other value.

    Raises:
        UserError: a column is missing, or rows are of another job, as other code may have written them.
    """
    lacks = [one.name for one in columns if not one.perhaps and one.name not in table]
    other = [name for name, value in names.items() if name in table and (table[name] != value).any()]
    if lacks or other:
        said = f"it lacks the column {lacks[0]!r}" if lacks else f"it has rows of another {other[0]}"
        raise UserError(f"{where}: {said}, as another version of lowvar may have written it")
    return table


def names_of(tables: tuple[Table, ...], experiment: Any, *, timed: bool = False) -> tuple[str, ...]:
    """The names of the tables that an experiment writes to files: those of wall times, or all others."""
    return tuple(one.name for one in tables if one.kept and one.timed == timed and one.when(experiment))


@dataclass(frozen=True)
class Figure:
    """A figure of a family.

    Attributes:
        name: of its files.
        source: its table.
        select: ``select(table, **options) -> rows``: the rows to draw, which are saved beside the picture.
        draw: ``draw(rows, **options) -> matplotlib.figure.Figure``, from these rows only.
        caption: for the report.
        answer: one sentence on what it shows, for the top of the report.
        when: whether an experiment has the figure.
        options: keywords of ``select`` and ``draw``, which distinguish figures with the same functions.
        settings: ``settings(experiment)``: keywords that an experiment determines.
        titles: what the pictures say in place of the name of a problem, by its name.
    """

    name: str
    source: Table
    select: Callable[..., Frame]
    draw: Callable[..., Any]
    caption: str
    answer: str = ""
    when: Callable[[Any], bool] = always
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Callable[[Any], Mapping[str, Any]] = lambda experiment: {}
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The name of its table."""
        return self.source.name

    def picture(self, table: Frame, stem: str | os.PathLike, **options: Any) -> list[Path]:
        """Draws and saves the figure and its rows; returns the paths of the svg, the png and the csv.

        Args:
            table: the figure's table.
            stem: path without its ending.
            options: keywords of ``select`` and ``draw``, which override the figure's own.

        Raises:
            UserError: an unknown option, a missing column, or a folder that cannot be written.
        """
        from lowvar.core.drawing import save

        figure, rows = self.render(table, **options)
        return save(figure, stem, rows)

    def render(self, table: Frame, **options: Any) -> tuple[Any, Frame]:
        """The ``matplotlib.figure.Figure`` and the rows that it shows; raises like ``picture``."""
        rows = self.rows(table, **options)
        return self.drawn(rows, **options), rows

    def drawn(self, rows: Frame, **options: Any) -> Any:
        """The ``matplotlib.figure.Figure`` of rows that ``rows`` returned, with the same options."""
        from lowvar.core.drawing import with_style
        from lowvar_studies.reports.drawing.charts import round_ticks, uncover

        figure = with_style(self.draw)(rows, **self._keywords_for(self.draw, options))
        for text in figure.findobj(lambda one: hasattr(one, "set_text")):
            text.set_text(self._titled(text.get_text()))
        round_ticks(figure)
        with_style(uncover)(figure)
        return figure

    def rows(self, table: Frame, **options: Any) -> Frame:
        """The rows that the figure shows; raises like ``picture``."""
        known = dict.fromkeys([*_keywords(self.select), *_keywords(self.draw)])
        for option in options:
            check_known("option", option, known, where=f"figure {self.name}")
        where = f"the table {self.table!r}"
        if not len(believed(table, self.source.columns, {}, where)):
            raise UserError(f"{where} has no rows, so there is nothing to draw")
        return self.select(table, **self._keywords_for(self.select, options))

    def _titled(self, words: str) -> str:
        """A text of a picture, with the title of a problem in place of its name at the beginning.

        >>> starts = Figure("starts", None, None, None, "", titles={"hares_5": "Table 3, T = 5"})
        >>> starts._titled("hares_5: f"), starts._titled("hares_50")
        ('Table 3, T = 5: f', 'hares_50')
        """
        found = re.match(r"\w+", words)
        return self.titles.get(found[0], found[0]) + words[found.end() :] if found else words

    def _keywords_for(self, function, options):
        merged = {**self.options, **options}
        return {name: merged[name] for name in _keywords(function) if name in merged}


def _keywords(function) -> list[str]:
    return list(inspect.signature(function).parameters)[1:]  # without the table, or the rows


@dataclass(frozen=True)
class Family:
    """Declarations shared by all studies of a kind.

    Attributes:
        name: the key ``family`` of their experiment files.
        experiment: the pydantic model of their experiment files.
        method: the key of a method's spec that defaults to the method's name.
        tables: made from the runs.
        figures: in the order of a report.
        effects: functions that claims can test, by name.
        files: other files that jobs write.
        engine: ``engine(spec, source)``: advances a run.
        packages: ``packages(spec)``: packages that a run or a sample depends on, besides those of every job.
        tune: ``tune(spec, prepared, **settings_of_the_search)``: tables of trials and of seconds; None without tuning.
        sample: ``sample(spec, prepared)``: the arrays of a file of points; None if runs draw their own noise.
        read_samples: ``read_samples(path, expect=..., rebuild=...)``: the content of such a file.
        decomposition: ``decomposition(spec, prepared, progress_bar) -> Frame``; None without variance decomposition.
        metrics: ``metrics(gathered)``: rows of problem, quantity, run and value for ``metrics.json``.
        headlines: names of figures: the report opens with the first that an experiment has, or with its first figure.
        summary: ``summary(tables)``: a title and a table of text for the kept page, or None; None for none.
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
    tune: Callable[..., tuple[Frame, Frame]] | None = None
    sample: Callable[..., Mapping[str, Any]] | None = None
    read_samples: Callable[..., Any] | None = None
    decomposition: Callable[..., Frame] | None = None
    headlines: tuple[str, ...] = ()
    summary: Callable[[Mapping[str, Frame]], tuple[str, Frame] | None] | None = None

    def figures_of(self, experiment: Any, where: str = "") -> dict[str, Figure]:
        """The figures that an experiment's key ``draw`` names, or all possible ones if its family has no such key.

        Raises:
            UserError: an unknown figure.
        """
        tables = (*names_of(self.tables, experiment), *names_of(self.tables, experiment, timed=True))
        known = {name: one for name, one in self.figures.items() if one.table in tables and one.when(experiment)}
        for name in (chosen := getattr(experiment, "draw", known)):
            check_known("figure", name, known, where=f"{where}: draw")
        return {name: known[name] for name in chosen}
