"""Pages of finished experiments in ``docs/reproduction``: claims, small figures, wall times and provenance."""

import json
from pathlib import Path

from lowvar.core import artifact
from lowvar.core.files import write_bytes, write_text
from lowvar.errors import UserError
from lowvar_studies.jobs import code, commands
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports import kept
from lowvar_studies.reports.gathered import Gathered
from lowvar_studies.reports.text import claims_table, figures, markdown, own_table, summary


def keep(study: Study, folder: str | Path, *, draft: bool = False) -> list[Path]:
    """Writes ``NAME.md``, ``NAME-FIGURE.png`` and the rows behind them, of an experiment whose runs are complete.

    Makes tables, verdicts and figures again from the files of the jobs; refuses stale files.

    Args:
        study: the experiment, its scale and its results.
        folder: of the page.
        draft: whether jobs may be of several commits, or of a checkout with changes; the page then says so.

    Raises:
        UserError: a result is missing or stale, the existing page is of another scale, or jobs, tables and figures are
            not all of one commit.
    """
    import pandas as pd

    name, folder = study.name, Path(folder)
    page = folder / f"{name}.md"
    if page.is_file() and f"at scale `{study.scale}`" not in page.read_text(encoding="utf-8"):
        raise UserError(f"{page}: it is of another scale than {study.scale}; remove it first, or choose another --out")
    about = _about(study, draft)
    runs = [(*job.names.values(), job.read("timing.parquet")) for job in study.jobs("run")]
    commands.tables(study)
    commands.tables(study, seconds=True)
    claims = pd.read_csv(commands.claims(study))
    drawn = {path.stem: path for path in commands.figures(study) if path.suffix == ".png"}
    about |= {"code": about["code"] | code.loaded(study.experiment.family)}
    rows = kept.write(study, folder, about)
    pictures = {
        kind: kept.small(drawn[kind].read_bytes()) for kind in kept.Page(folder / kept.ROWS / name, about).kinds
    }
    elsewhere = "" if folder == Path(kept.PAGES) else f" --folder {folder}"
    parts = [
        f"# {study.experiment.title}",
        f"`lowvar remake {name}{elsewhere}` makes all of this page again ({minutes(about)}), with `--claim ID` or "
        f"`--figure NAME` one of it. Experiment `{name}` at scale `{study.scale}`, written by "
        f"`lowvar keep {study.path} --scale {study.scale}`.",
        _origin(about),
        *filter(None, [study.experiment.remarks.strip()]),
        *(["## Claims", summary(claims), claims_table(claims)] if len(claims) else []),
        *own_table(study.family, Gathered(study, study.family.tables, made=False)),
        figures(name, pictures),
        *(["## Wall time", "Minutes of each job, including compilation.", markdown(_minutes(runs))] if runs else []),
    ]
    for path in set(folder.glob(f"{name}-*.png")) - {folder / f"{name}-{kind}.png" for kind in pictures}:
        path.unlink()  # of an earlier page
    for kind, content in pictures.items():
        write_bytes(folder / f"{name}-{kind}.png", content)
    write_text(page, "\n\n".join(parts) + "\n")
    return [page, *(folder / f"{name}-{kind}.png" for kind in pictures), *rows]


def minutes(about) -> str:
    """The CPU minutes of all jobs behind a page, in words."""
    spent = sum(about["jobs"].values()) / 60
    return f"{spent:.0f} CPU minutes" if spent >= 10 else f"{spent:.1f} CPU minutes"


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
        "code": {name: digest for one in records.values() for name, digest in one["code"].items()},
    }


def _record(file):
    """The content of a ``provenance.json``."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if not {"commit", "platform", "device", "date", "stamp", "code", "cpu_seconds"} <= set(record):
            raise ValueError("a key is missing")
        return record
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{file}: missing, damaged, or of an earlier version; make the job again") from error


def _origin(about):
    """Commit, machines, dates and versions."""
    when = " to ".join(about["dates"])
    return f"Made {when} at {about['commit']}, on {'; '.join(about['machines'])}; {', '.join(about['versions'])}."


def _minutes(runs):
    rows = {}
    for problem, method, backend, timing in runs:
        last = timing.iloc[-1]
        rows.setdefault(f"{method} ({backend})", {})[problem] = (last["seconds"] + last["compile_seconds"]) / 60
    import pandas as pd

    table = pd.DataFrame(rows).T.rename_axis("method").reset_index()
    return table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else value).replace("nan", "")
