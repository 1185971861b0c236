"""Pages of finished experiments in ``docs/reproduction``: claims, small figures, wall times and provenance."""

import io
import json
from pathlib import Path

from lowvar.core.files import write_bytes, write_text
from lowvar.errors import UserError
from lowvar_studies.jobs import commands
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.claims import NOT_MADE, VERDICTS
from lowvar_studies.reports.gathered import Gathered


def keep(study: Study, folder: str | Path) -> list[Path]:
    """Writes ``NAME.md`` and ``NAME-FIGURE.png`` of an experiment whose tables are complete.

    Judges claims and draws figures again from the tables; refuses stale tables.

    Args:
        study: the experiment, its scale and its results.
        folder: of the page.

    Raises:
        UserError: a result is missing or stale, or the existing page is of another scale.
    """
    import pandas as pd

    name, folder = study.name, Path(folder)
    page = folder / f"{name}.md"
    if page.is_file() and f"at scale `{study.scale}`" not in page.read_text(encoding="utf-8"):
        raise UserError(f"{page}: it is of another scale than {study.scale}; remove it first, or choose another --out")
    runs = [(*job.names.values(), job.read("timing.parquet")) for job in study.jobs("run")]
    claims = pd.read_csv(commands.claims(study))
    pictures = {path.stem: small(path.read_bytes()) for path in commands.figures(study) if path.suffix == ".png"}
    parts = [
        f"# {study.experiment.title}",
        f"Experiment `{name}` at scale `{study.scale}`, written by `lowvar keep {study.path} --scale {study.scale}`.",
        _origin(study),
        *filter(None, [study.experiment.remarks.strip()]),
        *(["## Claims", summary(claims), _claims(claims)] if len(claims) else []),
        *_tables(study),
        "## Figures",
        *(f"![{kind}]({name}-{kind}.png)" for kind in pictures),
        *(["## Wall time", "Minutes of each job, including compilation.", _markdown(_minutes(runs))] if runs else []),
    ]
    for kind, content in pictures.items():
        write_bytes(folder / f"{name}-{kind}.png", content)
    write_text(page, "\n\n".join(parts) + "\n")
    return [page, *(folder / f"{name}-{kind}.png" for kind in pictures)]


def small(png: bytes) -> bytes:
    """A PNG file of the same picture and resolution in 256 colours: about a third of the bytes.

    Lines, areas and text keep their colours; blends at their edges take the nearest one.
    """
    from PIL import Image

    stream, picture = io.BytesIO(), Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _origin(study):
    """Commits, machines, dates and versions of the runs and decompositions."""
    files = [job.folder / "provenance.json" for job in study.jobs("run", "decompose")]
    records = [_record(file) for file in files if file.is_file()]
    if not records:
        return "The machines and dates of the runs are unknown: they have no provenance.json."
    days = sorted({day for day, *_ in records})
    machines = sorted({machine for _, machine, *_ in records})
    versions = {version for *_, made_with in records for version in made_with}
    commits = sorted({commit for *_, commit, _ in records if commit})
    at = f" at {', '.join(commits)}" if commits else ""
    when = " to ".join(sorted({days[0], days[-1]}))
    return f"Made {when}{at}, on {'; '.join(machines)}; {', '.join(sorted(versions))}."


def _record(file):
    """Day, machine, commit and versions of a job."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        machine = f"{record['platform'].split('-')[0]}, {record['device']}"
        versions = [f"{key} {value}" for key, value in record["stamp"]["versions"].items()]
        return record["date"][:10], machine, record.get("commit"), versions
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file}: not a provenance.json of lowvar, or damaged; remove it, and the page leaves it out"
        ) from error


def _tables(study):
    """The family's own table of the page, under its title."""
    if study.family.summary is None:
        return []
    made = study.family.summary(Gathered(study, study.family.tables, made=False))
    return [f"## {made[0]}", _markdown(made[1])] if made else []


def summary(claims):
    """How many claims have each verdict."""
    counts = claims["verdict"].value_counts()
    words = [word for word in VERDICTS if word != NOT_MADE or word in counts]
    return "Verdicts: " + ", ".join(f"{counts.get(word, 0)} {word}" for word in words) + "."


def _claims(claims):
    table = claims.copy()
    ends = zip(table["ours"], table["low"], table["high"], strict=True)
    table["interval"] = [interval(*one) if one[1] == one[1] else "" for one in ends]
    table["published"] = [f"{value:.4g}" if value == value else "" for value in table["published"]]
    table["ours"] = [f"{value:.4g}" if value == value else "" for value in table["ours"]]
    return _markdown(table[["verdict", "statement", "source", "published", "ours", "interval", "note"]].fillna(""))


def interval(value, low, high):
    """Its ends with as many digits, three or more, as they need to enclose the printed value.

    >>> interval(0.382, 0.19, 0.7664), interval(72.8786, 72.8785, 72.8787)
    ('[0.19, 0.766]', '[72.88, 72.88]')
    """
    for digits in (3, 4, 5, 6):
        ends = f"{low:.{digits}g}", f"{high:.{digits}g}"
        if float(ends[0]) <= float(f"{value:.4g}") <= float(ends[1]):
            break
    return f"[{', '.join(ends)}]"


def _minutes(runs):
    rows = {}
    for problem, method, backend, timing in runs:
        last = timing.iloc[-1]
        rows.setdefault(f"{method} ({backend})", {})[problem] = (last["seconds"] + last["compile_seconds"]) / 60
    import pandas as pd

    table = pd.DataFrame(rows).T.rename_axis("method").reset_index()
    return table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else value).replace("nan", "")


def _markdown(table):
    """A table in Markdown."""
    lines = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
