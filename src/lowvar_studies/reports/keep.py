"""Pages of finished experiments in ``docs/reproduction``: claims, small figures, wall times and provenance."""

import json
from pathlib import Path

from lowvar.core import artifact
from lowvar.core.files import all_or_none, write_bytes, write_text
from lowvar.errors import UserError
from lowvar_studies import PAGES
from lowvar_studies.jobs import code, commands
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.gathered import Gathered
from lowvar_studies.reports.pages import ROWS, small, write_rows
from lowvar_studies.reports.text import markdown, own_table, page_parts, pictures

_CLOCK = "Minutes of each job on a clock, including compilation; other programs ran beside."


def keep(study: Study, folder: str | Path, *, draft: bool = False) -> list[Path]:
    """Writes ``NAME.md``, ``NAME-FIGURE.png`` and the rows behind them, of an experiment whose runs are complete.

    Makes tables and figures again from the files of the jobs; refuses stale files.

    Args:
        study: the experiment, its scale and its results.
        folder: of the page.
        draft: whether jobs may be of several commits, or of a checkout with changes, and a page among those of the
            papers of another scale than ``paper``; the page then says so.

    Raises:
        UserError: a result is missing or stale, the existing page is of another scale, jobs, tables and figures are
            not all of one commit, times of its steps are of a checkout with changes, or the page would be counted
            among those of the papers and is not of their scale.
    """
    name, folder = study.name, Path(folder)
    page = folder / f"{name}.md"
    if study.scale != "paper" and not draft and folder.resolve() == Path(PAGES).resolve():
        raise UserError(
            f"--scale {study.scale}: pages in {folder} are of scale paper, as the scoreboard counts their claims; add "
            "--scale paper, another --out, or --draft"
        )
    if page.is_file() and f"at scale `{study.scale}`" not in page.read_text(encoding="utf-8"):
        raise UserError(f"{page}: it is of another scale than {study.scale}; remove it first, or choose another --out")
    about = _about(study, draft)
    runs = [(*job.names.values(), job.read("timing.parquet")) for job in study.jobs("run")]
    commands.tables(study)
    commands.tables(study, seconds=True)
    drawn = {path.stem: path for path in commands.figures(study) if path.suffix == ".png"}
    about |= {"code": code.loaded(study.experiment.family) | about["code"]}
    with all_or_none():
        rows, claims = write_rows(study, folder, about)
        tables = [path.stem for path in rows if path.suffix == ".parquet" and "." not in path.stem]
        files = {kind: folder / f"{name}-{kind}.png" for kind in pictures(study, tables)}
        for kind, file in files.items():
            write_bytes(file, small(drawn[kind].read_bytes()))
        own = own_table(study, Gathered(study, study.family.tables, made=False))
        parts = page_parts(study, about, claims, own, tables, "" if folder == Path(PAGES) else str(folder))
        if runs:
            parts += [
                "## Wall time",
                _CLOCK,
                markdown(_minutes(runs)),
            ]
        write_text(page, "\n\n".join(parts) + "\n")
    for path in {*folder.glob(f"{name}-*.png"), *(folder / ROWS / name).iterdir()} - {*files.values(), *rows}:
        path.unlink()  # of an earlier page
    return [page, *files.values(), *rows]


def _about(study, draft):
    """Commit, dates, versions, CPU seconds and code of all jobs.

    Raises:
        UserError: a job without a record, or not all of one commit of a checkout without changes.
    """
    records = {f"{job.kind} {job.label}": _record(job.folder / "provenance.json") for job in study.jobs()}
    commits = sorted({one["commit"] or "no commit" for one in (*records.values(), {"commit": artifact.commit()})})
    if (len(commits) > 1 or commits[0].endswith("-dirty")) and not draft:
        raise UserError(
            f"{study.name}: its jobs and this checkout are of {', '.join(commits)}: a page is of one commit without "
            "changes; commit, and make the jobs again, or add --draft"
        )
    if (edited := _timed_with_edits(study)) and not draft:
        raise UserError(
            f"{edited}: its commit says 'with edits': measure it again from a clean checkout, or add --draft"
        )
    used, data = {}, [one for name in study.experiment.problems if (one := study.experiment.data(name))]
    for name, digest in (item for one in records.values() for item in one["code"].items()):
        if name not in used or code.changed({name: digest}):  # a draft's jobs may differ: what is not of now counts
            used[name] = digest
    versions = {f"{key} {value}" for one in records.values() for key, value in one["stamp"]["versions"].items()}
    days = sorted({one["date"][:10] for one in records.values()})
    return {
        "experiment": str(study.path),
        "scale": study.scale,
        "spec": study.experiment.hash,
        "commit": ", ".join(commits),
        "dates": sorted({days[0], days[-1]}),
        "machines": sorted({f"{one['platform'].split('-')[0]}, {one['device']}" for one in records.values()}),
        "versions": sorted(versions),
        "jobs": {name: one["cpu_seconds"] for name, one in records.items()},
        "code": code.of_data(data) | used,
    }


def _timed_with_edits(study):
    """The first file of times of a study's problems that was measured with changed code, if there is one."""
    for file in study.times:
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["problem"] in study.experiment.problems and "edits" in kept.get("commit", ""):
            return file
    return None


def _record(file):
    """The content of a ``provenance.json``."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if not {"commit", "platform", "device", "date", "stamp", "code", "cpu_seconds"} <= set(record):
            raise ValueError("a key is missing")
        return record
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{file}: missing, damaged, or of an earlier version; make the job again") from error


def _minutes(runs):
    rows = {}
    for problem, method, backend, timing in runs:
        last = timing.iloc[-1]
        rows.setdefault(f"{method} ({backend})", {})[problem] = (last["seconds"] + last["compile_seconds"]) / 60
    import pandas as pd

    table = pd.DataFrame(rows).T.rename_axis("method").reset_index()
    return table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else value).replace("nan", "")
