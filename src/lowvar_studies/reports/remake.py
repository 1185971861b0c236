"""One claim, one figure or all of a kept page made again, from nothing: the jobs that it needs, and no others."""

import dataclasses
import json
import math
import time
from collections.abc import Iterator
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
from lowvar_studies.reports.kept import Page, apart, same
from lowvar_studies.yaml_files import read_yaml


@dataclasses.dataclass(frozen=True)
class Part(Study):
    """A study reduced to some problems and methods, whose jobs run when a table first reads them.

    Attributes:
        only: the methods; None for all.
        workers: processes at a time.
        ran: the jobs that ran, by kind and label.
    """

    only: frozenset[str] | None = None
    workers: int = 1
    ran: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, study: Study, problems: set[str], methods: set[str] | None, workers: int) -> "Part":
        """The part with these problems and methods of a study; its data are fetched and prepared."""
        every = study.experiment.problems
        wanted = {name for name in problems if name in every} or set(every)
        wanted |= {drawn for name in wanted if (drawn := study.experiment.drawn_from(name))}
        experiment = study.experiment.model_copy(update={"problems": {n: every[n] for n in every if n in wanted}})
        part = cls(study.path, study.scale, experiment, study.results, study.data,
                   None if methods is None else frozenset(methods), workers)  # fmt: skip
        local.complete(list(local.data(part)), part.name)
        return part

    def jobs(self, *kinds: str) -> Iterator[Job]:
        """The jobs of these kinds that belong to the part; those that are not current run first."""
        wanted = [job for job in super().jobs(*kinds) if self._has(job)]
        self._make([before for job in wanted for before in self._before(job)])
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
        due = {f"{job.kind} {job.label}": job.command for job in jobs if not (local.made(job) and _current(job))}
        local.complete([[(command, lambda: False) for command in due.values()]], self.name, self.workers)
        self.ran.extend(due)


def _current(job: Job) -> bool:
    """Whether the code that made a job's files is that of now."""
    try:
        return not code.changed(json.loads((job.folder / "provenance.json").read_text(encoding="utf-8"))["code"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


@dataclasses.dataclass(frozen=True)
class Remade:
    """What a page's claim or figure is now, beside what is kept.

    Attributes:
        lines: for a terminal.
        agree: whether verdicts are the same, and numbers up to rounding.
    """

    lines: list[str]
    agree: bool


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
        UserError: an unknown claim or figure, or a job that ended with a user's mistake.
    """
    begun, results = time.monotonic(), results or f"build/remade/results/{page.name}"
    study = Study.load(page.about["experiment"], page.about["scale"], results, data)
    stated = {one.id: one for one in judging.load(study.claims)} if study.claims else {}
    if claim is not None:
        check_known("claim", claim, stated, where=page.name)
    if figure is not None:
        check_known("figure", figure, study.figures, where=page.name)
    if claim is not None and figure is not None:
        raise UserError("--claim and --figure: give one of them")
    if other := seed not in (None, study.experiment.seed):
        study = with_seed(study, seed)
    claims = [claim] if claim else [] if figure else list(stated)
    figures = [figure] if figure else [] if claim else list(study.figures)
    part = Part.of(study, *_needed(study, stated[claim] if claim else None), workers)
    tables = Gathered(study, study.family.tables)
    tables.study, tables.experiment = part, part.experiment
    lines, agree = [], True
    if claims:
        verdicts = judging.judge([stated[name] for name in claims], tables, study).set_index("id")
        before = page.verdicts.set_index("id")
        for name in claims:
            now = verdicts.loc[name]
            keys = ("verdict",) if other else None
            differs = apart(now, before.loc[name], keys) if name in before.index else ["it is not on the page"]
            agree &= not differs
            lines += [f"{name}: {now['statement']}", f"  now: {_said(now)}",
                      *([f"  kept: {_said(before.loc[name])}"] if name in before.index else []),
                      "  " + ("; ".join(differs) or ("the verdict is the same" if other else "the same"))]  # fmt: skip
    for kind in figures:
        drawn, options = study.figures[kind], study.options(kind)
        rows = drawn.rows(tables[drawn.table], **options)
        path = save(drawn.drawn(rows, **options), Path(out) / f"{page.name}-{kind}", rows)[1]
        timed = drawn.table in study.timed
        alone = "wall times are" if timed else "rows of another seed are" if other else ""
        differs = [] if alone else unlike(rows, page.rows(kind))
        agree &= not differs
        lines += [f"{kind}: {path}", "  " + (f"{alone} not compared" if alone else
                                             "; ".join(differs) or f"all {len(rows)} rows are the same")]  # fmt: skip
    asked = sum(page.about["jobs"].get(label, 0.0) for label in part.ran)
    took = f"{time.monotonic() - begun:.0f} s in all"
    lines.append(f"{len(part.ran)} jobs ran, {took}; their CPU seconds when the page was made: {asked:.0f}")
    return Remade(lines, bool(agree))


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


def unlike(now, before) -> list[str]:
    """How the rows of a figure differ from the kept ones, a sentence each."""
    if list(now.columns) != list(before.columns) or len(now) != len(before):
        return [f"{len(now)} rows with {len(now.columns)} columns, kept are {len(before)} with {len(before.columns)}"]
    found = []
    for name in now:
        pairs = list(zip(now[name].tolist(), before[name].tolist(), strict=True))
        other = [(a, b) for a, b in pairs if not (same(a, b) if isinstance(a, float) else a == b)]
        if other:
            sizes = [abs(a - b) / abs(b) for a, b in other if isinstance(a, float) and b and math.isfinite(a - b)]
            by = f", by at most {max(sizes):.2g} of their size" if sizes else ""
            found.append(f"{name}: {len(other)} of {len(pairs)} values differ{by}")
    return found
