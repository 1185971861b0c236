"""One claim, one figure or all of a kept page made again, from nothing: the jobs that it needs, and no others."""

import dataclasses
import json
import math
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from lowvar.core.drawing import save
from lowvar.core.files import write_text
from lowvar.errors import UserError, check_known
from lowvar_studies.jobs import code, local
from lowvar_studies.jobs.study import Job, Study
from lowvar_studies.reports import claims as judging
from lowvar_studies.reports.gathered import Gathered
from lowvar_studies.reports.integral.errors import BASELINE
from lowvar_studies.reports.pages import BESIDE, Page, apart, same
from lowvar_studies.yaml_files import read_yaml


@dataclasses.dataclass(frozen=True)
class Part(Study):
    """A study reduced to some problems and methods, whose jobs run when a table first reads them.

    Attributes:
        only: the methods; None for all.
        workers: processes at a time.
        used: the jobs whose files were read, by kind and label.
        ran: those of them that ran.
    """

    only: frozenset[str] | None = None
    workers: int = 1
    used: dict[str, Job] = dataclasses.field(default_factory=dict)
    ran: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def reduced(cls, study: Study, problems: set[str], methods: set[str] | None, workers: int) -> "Part":
        """The part with these problems and methods of a study; its data are fetched and prepared."""
        every = study.experiment.problems
        wanted = {name for name in problems if name in every} or set(every)
        wanted |= {drawn for name in wanted if (drawn := study.experiment.drawn_from(name))}
        experiment = study.experiment.model_copy(update={"problems": {n: every[n] for n in every if n in wanted}})
        part = cls(study.path, study.scale, experiment, study.results, study.data,
                   None if methods is None else frozenset(methods), workers)  # fmt: skip
        for stage in local.data(part):
            part._complete({line: shlex.join(shlex.split(line)[1:3]) for line, current in stage if not current()}, 1)
        return part

    def jobs(self, *kinds: str) -> Iterator[Job]:
        """The jobs of these kinds that belong to the part; those that are not current run first."""
        wanted = [job for job in super().jobs(*kinds) if self._has(job)]
        before = [one for job in wanted for one in self._before(job)]
        for kind in ("sample", "tune"):
            self._make([one for one in before if one.kind == kind])
        self._make(wanted)
        yield from wanted

    def _has(self, job: Job) -> bool:
        method = job.names.get("method")
        return job.problem in self.experiment.problems and (None in (self.only, method) or method in self.only)  # type: ignore[operator]

    def _before(self, job: Job) -> Iterator[Job]:
        """The jobs whose files a run reads."""
        if job.kind == "run" and (drawn := self.experiment.drawn_from(job.problem)):
            yield self.job("sample", drawn)
        if job.search:
            yield job.search

    def _make(self, jobs: list[Job]) -> None:
        named = {f"{job.kind} {job.label}": job for job in jobs}
        due = {job.command: label for label, job in named.items() if not (local.made(job) and _current(job))}
        self._complete(due, self.workers)
        self.used.update(named)
        self.ran.extend(due.values())

    def _complete(self, labels: Mapping[str, str], workers: int) -> None:
        """Runs command lines, and prints the label of each as it begins."""
        from tqdm import tqdm

        numbers = count(1)

        def begins(line: str) -> None:
            said = f"lowvar: {self.name}: {labels[line]} ({next(numbers)} of {len(labels)})"
            tqdm.write(said, file=sys.stderr)  # above the progress bar, if there is one

        local.complete([[(line, lambda: False) for line in labels]], self.name, workers, begins)


def _current(job: Job) -> bool:
    """Whether the code that made a job's files is that of now."""
    try:
        return not code.changed(_record(job)["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _record(job: Job) -> dict[str, Any]:
    return json.loads((job.folder / "provenance.json").read_text(encoding="utf-8"))


@dataclasses.dataclass(frozen=True)
class Remade:
    """What a page's claim or figure is now, beside what is kept.

    Attributes:
        lines: for a terminal.
        agree: whether verdicts are the same, and numbers up to rounding.
        ran: the jobs that ran, by kind and label.
        seconds: CPU seconds of each job whose files were read, of those files and when the page was made.
    """

    lines: list[str]
    agree: bool
    ran: list[str]
    seconds: dict[str, tuple[float, float]]


def remake(page: Page, claim: str | None = None, figure: str | None = None, *, seed: int | None = None,
           out: str | Path = "build/remade", results: str | None = None, data: str = "data",
           workers: int = 1) -> Remade:  # fmt: skip
    """Makes one claim or figure of a kept page again, or all of it, and compares it with the kept rows.

    Args:
        page: the page.
        claim: the ``id`` of a claim.
        figure: the name of a figure.
        seed: another one than the page's. Of claims the verdicts are compared then, of figures nothing.
        out: the folder of pictures.
        results: the folder of the jobs' files, by default one of its own below ``build``. Jobs that are current
            there, of this code too, do not run again.
        data: the folder of raw and prepared data.
        workers: processes at a time.

    Raises:
        UserError: an unknown claim or figure, an experiment whose settings are not those of the page, kept rows that
            are missing or damaged, or a job that ended with a user's mistake.
    """
    page.check_settings()
    start, results = time.monotonic(), results or f"build/remade/results/{page.name}"
    study = Study.load(page.about["experiment"], page.about["scale"], results, data)
    stated = {one.id: one for one in judging.load(study.claims)} if study.claims else {}
    if claim is not None:
        claim = claim.removeprefix(f"{page.name}:")
        if claim not in stated and (elsewhere := _pages_of(claim, study)):
            raise UserError(f"--claim {claim}: it is a claim of {elsewhere}, not of page {page.name}")
        check_known("claim", claim, stated, where=page.name, see=str(page.text))
    if figure is not None:
        check_known("figure", figure, study.figures, where=page.name)
    if claim is not None and figure is not None:
        raise UserError("--claim and --figure: give one of them")
    if figure is not None or claim is None:
        _folder(out)
    claims = [claim] if claim else [] if figure else list(stated)
    figures = [figure] if figure else [] if claim else list(study.figures)
    kept_rows, kept_verdicts = {kind: page.rows(kind) for kind in figures}, page.verdicts.set_index("id")
    if other := seed not in (None, study.experiment.seed):
        study = with_seed(study, seed)
    part = Part.reduced(study, *_needed(study, stated[claim] if claim else None), workers)
    tables = Gathered(study, study.family.tables)
    tables.study, tables.experiment = part, part.experiment
    lines, agree = [], True
    if claims:
        verdicts = judging.judge([stated[name] for name in claims], tables, study).set_index("id")
        before = kept_verdicts
        for name in claims:
            now = verdicts.loc[name]
            keys = ("verdict",) if other else None
            on_page = name in before.index
            differs = apart(now, before.loc[name], keys, again=True) if on_page else ["it is not on the page"]
            agree &= not differs
            lines += [f"{name}: {now['statement']}", f"  now: {_said(now)}",
                      *([f"  page: {_said(before.loc[name])}"] if on_page else []),
                      "  " + ("; ".join(differs) or ("the verdict is the same" if other else "the same"))]  # fmt: skip
        if set(BESIDE) & set(tables.used):
            lines.append(_TIMED)
        if gone := [] if claim else page.gone(stated):
            agree, lines = False, [*lines, *gone]
    for kind in figures:
        drawn, options = study.figures[kind], study.options(kind)
        rows = drawn.rows(tables[drawn.table], **options)
        path = save(drawn.drawn(rows, **options), Path(out) / f"{page.name}-{kind}", rows)[1]
        timed = drawn.table in study.timed
        alone = "wall times are" if timed else "rows of another seed are" if other else ""
        before = kept_rows[kind]
        differs = [] if alone else unlike(rows, before)
        agree &= not differs
        beside = side_by_side(rows, before, _AT_A_GLANCE if figure else _OF_MANY, compared=not alone)
        lines += [f"{kind}: {path}", *(f"    {line}" for line in beside),
                  "  " + (f"{alone} not compared" if alone else "; ".join(differs)
                          or f"all {len(rows)} rows are the same, in {rows.shape[1]} columns")]  # fmt: skip
    seconds = {label: (_record(job)["cpu_seconds"], page.about["jobs"].get(label, math.nan))
               for label, job in part.used.items()}  # fmt: skip
    lines.append(_cost(part.ran, seconds, time.monotonic() - start))
    return Remade(lines, bool(agree), part.ran, seconds)


def _pages_of(claim: str, study: Study) -> str:
    """The pages that have a claim of this name, in words; none if no page has."""
    files = sorted(study.claims.parent.glob("*.yaml")) if study.claims else []
    return " or ".join(file.stem for file in files if any(one.id == claim for one in judging.load(file)))


def _folder(out: str | Path) -> None:
    """Makes the folder of pictures, before jobs run for them."""
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: it must be a folder that can be written ({error.strerror})") from error


def _cost(ran: list[str], seconds: Mapping[str, tuple[float, float]], wall: float) -> str:
    """The jobs and their CPU seconds, now and when the page was made, and the wall time, in a line."""
    both = [one for one in seconds.values() if one[1] == one[1]]
    now, before = (f"{sum(column):.1f}" for column in (zip(*both, strict=True) if both else ((), ())))
    earlier = f", and {len(seconds) - len(ran)} of an earlier command are current" if len(ran) < len(seconds) else ""
    new = f" (without {len(seconds) - len(both)} that the page does not have)" if len(both) < len(seconds) else ""
    return (f"jobs: {len(ran)} ran{earlier}; their CPU seconds{new}: {now} now, {before} when the page was made; "
            f"wall time of this command: {wall:.0f} s")  # fmt: skip


def with_seed(study: Study, seed: int) -> Study:
    """The study with another seed: a copy of its files among its results, which has results of its own."""
    folder = study.results / f"seed-{seed}"
    write_text(folder / study.path.name, yaml.safe_dump(read_yaml(study.path) | {"seed": seed}, sort_keys=False))
    for beside, files in (("claims", [study.claims] if study.claims else []), ("times", study.times)):
        for file in files:
            write_text(folder / beside / file.name, file.read_text(encoding="utf-8"))
    return Study.load(folder / study.path.name, study.scale, folder, str(study.data))


_OF_ALL = ("sensitivity", "selected", "profiles", "groups")  # effects, and tables, whose rows depend on all methods


def _needed(study: Study, claim: Any) -> tuple[set[str], set[str] | None]:
    """The problems and methods whose rows a claim reads; none of the first, and None of the second, stand for all."""
    if claim is None:
        return set(), None
    words = set(_words(claim.test.model_dump()))
    methods = words & set(study.experiment.methods)
    everything = not methods or words & set(_OF_ALL)
    methods |= {BASELINE} & set(study.experiment.methods)
    return words & set(study.experiment.problems), None if everything else methods


def _words(values: Any) -> Iterator[str]:
    """All texts among the arguments of a test."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, dict):
        yield from _words(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _words(value)


def _said(row) -> str:
    """A verdict in one line."""
    return f"{row['verdict']}, {row['ours']:.6g} [{row['low']:.6g}, {row['high']:.6g}]"


_TIMED = "times of steps are not made again: python benchmarks/steps.py --times measured those in workflow/times"
_AT_A_GLANCE, _OF_MANY = 10, 3  # rows of a table of a figure alone, and of each of a page


def side_by_side(now, before, most: int, *, compared: bool = True) -> list[str]:
    """A column of numbers of a figure's rows beside the kept ones, as lines of text: at most ``most`` rows.

    They are the column and the rows that differ most; if all are the same, or may differ, they are the first column
    with an interval, or of wall times, and rows at equal distances. There are no lines if the rows are of other cells.

    Args:
        now: the rows.
        before: the kept rows.
        most: the number of rows to show, at most.
        compared: whether they should be the same: not wall times, and not those of another seed.
    """
    import numpy as np
    import pandas as pd

    numbers = [name for name in now if pd.api.types.is_float_dtype(now[name]) and now[name].nunique()]
    if list(now.columns) != list(before.columns) or len(now) != len(before) or not numbers:
        return []
    width = _widths(before)
    off = {name: _off(now[name], before[name], width.get(name, np.zeros(len(before)))) for name in numbers}
    shown = max(numbers, key=lambda name: off[name].max())
    if differs := compared and bool(off[shown].any()):
        rows = np.sort(np.argsort(-off[shown], kind="stable")[:most])
    else:
        shown = _measure(now, numbers, compared)
        rows = np.unique(np.linspace(0, len(now) - 1, min(most, len(now))).round().astype(int))
    keys = _keys(now, shown)
    if any(list(now[key]) != list(before[key]) for key in keys if key not in numbers):
        return []
    table = now[keys].iloc[rows].assign(**{f"{shown}, kept": before[shown].iloc[rows], "now": now[shown].iloc[rows]})
    lines = table.to_string(index=False, float_format=lambda value: f"{value:.7g}").splitlines()
    more = "more rows" + (", which differ less or not at all" if differs else "")
    return lines + ([f"and {len(now) - len(rows)} {more}"] if len(rows) < len(now) else [])


def _widths(rows) -> dict[str, Any]:
    """The width of the interval of each number that has one, by column.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"points": [9.0], "bias": [0.1], "bias_low": [-1.0], "bias_high": [2.0]})
    >>> {name: width.tolist() for name, width in sorted(_widths(rows).items())}
    {'bias': [3.0], 'bias_high': [3.0], 'bias_low': [3.0]}
    """
    columns, found = list(rows), {}
    for low in (name for name in columns if name == "low" or name.endswith("_low")):
        stem, high = low.removesuffix("low"), f"{low.removesuffix('low')}high"
        if high in columns:
            before = columns[max(columns.index(low) - 1, 0)]  # the value stands before its interval
            named = [stem.rstrip("_"), *(f"{stem}{word}" for word in ("mean", "median"))]
            width = (rows[high] - rows[low]).to_numpy(float)
            found |= {name: width for name in (low, high, before, *named) if name in columns and name not in found}
    return found


def _off(now, before, width):
    """The difference of each number from the kept one, as a part of its size; 0 for the same."""
    import numpy as np

    alike = np.array([same(*each) for each in zip(now.tolist(), before.tolist(), width.tolist(), strict=True)])
    now, before = (one.to_numpy(float) for one in (now, before))
    with np.errstate(all="ignore"):
        part = np.abs(now - before) / np.abs(before)
    return np.where(alike, 0.0, np.nan_to_num(part, nan=np.inf))


def _measure(rows, numbers: list[str], compared: bool) -> str:
    """The column of a figure's rows that says most: of wall times, or the first that has an interval, or the last."""
    if not compared and (times := [name for name in numbers if name.startswith("seconds")]):
        return times[0]
    columns, varying = list(rows), [name for name in numbers if rows[name].nunique() > 1] or numbers
    for name in varying:
        stem = name.removesuffix("_mean").removesuffix("_median").removesuffix("mean")
        after = columns[columns.index(name) + 1 :][:1]
        if f"{stem}_low".strip("_") in columns or after == ["low"]:
            return name
    return varying[-1]


def _keys(rows, shown: str) -> list[str]:
    """The first columns that tell the rows apart, of names and whole numbers before others."""
    import pandas as pd

    columns = [name for name in rows if name != shown and not {"low", "high"} & set(name.split("_"))]
    found, cells = [], 1
    for name in sorted(columns, key=lambda name: pd.api.types.is_float_dtype(rows[name])):
        if (more := len(rows[[*found, name]].drop_duplicates())) > cells:
            found, cells = [*found, name], more
        if cells == len(rows):
            break
    return found


def unlike(now, before) -> list[str]:
    """How the rows of a figure differ from the kept ones, a sentence each."""
    if list(now.columns) != list(before.columns) or len(now) != len(before):
        return [f"{len(now)} rows with {len(now.columns)} columns, kept are {len(before)} with {len(before.columns)}"]
    found, widths = [], _widths(before)
    for name in now:
        pairs = list(zip(now[name].tolist(), before[name].tolist(), strict=True))
        width = widths[name].tolist() if name in widths else [0.0] * len(pairs)
        other = [pair for pair, one in zip(pairs, width, strict=True)
                 if not (same(*pair, one) if isinstance(pair[0], float) else pair[0] == pair[1])]  # fmt: skip
        if other:
            sizes = [abs(a - b) / abs(b) for a, b in other if isinstance(a, float) and b and math.isfinite(a - b)]
            by = f", by at most {max(sizes):.2g} of their size" if sizes else ""
            found.append(f"{name}: {len(other)} of {len(pairs)} values differ{by}")
    return found
