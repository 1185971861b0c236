"""What a finished run leaves in ``docs/reproduction``: claims, small figures, wall times, and where it was made."""

import json
import subprocess
from pathlib import Path

from lowvar.commands.place import Place
from lowvar.errors import UserError
from lowvar.files import write_bytes, write_text
from lowvar.runs import artifact


def keep(place: Place, folder: str | Path) -> list[Path]:
    """Writes ``NAME.md`` and ``NAME-FIGURE.png`` of an experiment whose results are complete.

    Args:
        place: the experiment, its scale and its results.
        folder: where to.

    Raises:
        UserError: a result is missing or stale.
    """
    import pandas as pd

    name, folder = place.experiment.name, Path(folder)
    stated = place.results / "claims.csv"
    if not stated.is_file():
        raise UserError(f"{stated}: no such file; make it with: {place.command('claims', results=place.results)}")
    claims = pd.read_csv(stated)
    pictures = [kind for kind in place.experiment.figures if (place.results / "figures" / f"{kind}.png").is_file()]
    written = []
    for kind in pictures:
        place.table(place.experiment.figures[kind])  # refuses a stale one
        target = folder / f"{name}-{kind}.png"
        write_bytes(target, (place.results / "figures" / f"{kind}.png").read_bytes())
        written.append(target)
    parts = [
        f"# {place.experiment.title}",
        f"Experiment `{name}` at scale `{place.scale}`, as `lowvar keep {place.path} --scale {place.scale}` wrote it.",
        _made(place),
        "## Claims",
        _summary(claims),
        _claims(claims),
        "## Figures",
        *(f"![{kind}]({name}-{kind}.png)" for kind in pictures),
        "## Wall time",
        "Minutes of each task, compiling included, on the machine above; others worked on it too.",
        _markdown(_minutes(place)),
    ]
    write_text(folder / f"{name}.md", "\n\n".join(part for part in parts if part) + "\n")
    return [folder / f"{name}.md", *written]


def _made(place):
    """Commit, machines and dates."""
    records = [
        json.loads(path.read_text())
        for _, _, _, path in place.gather("provenance.json", lambda path, **_: Path(path))
        if path.is_file()
    ]
    days = sorted({record["date"][:10] for record in records})
    machines = sorted({f"{record['platform'].split('-')[0]}, {record['device']}" for record in records})
    versions = {f"{key} {value}" for record in records for key, value in record["stamp"]["versions"].items()}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    at = f" at commit {commit.stdout.strip()}" if commit.returncode == 0 else ""
    when = " and ".join(sorted({days[0], days[-1]}))
    return f"Made {when}{at}, on {'; '.join(machines)}; {', '.join(sorted(versions))}."


def _summary(claims):
    counts = claims["verdict"].value_counts()
    return ", ".join(f"{counts.get(verdict, 0)} {word}" for verdict, word in
                     (("holds", "hold"), ("fails", "fail"), ("undecided", "are undecided"))) + "."  # fmt: skip


def _claims(claims):
    table = claims.copy()
    table["interval"] = [
        f"[{low:.3g}, {high:.3g}]" if low == low else "" for low, high in zip(table["low"], table["high"], strict=True)
    ]
    table["published"] = [f"{value:.4g}" if value == value else "" for value in table["published"]]
    table["ours"] = [f"{value:.4g}" if value == value else "" for value in table["ours"]]
    return _markdown(table[["verdict", "statement", "source", "published", "ours", "interval", "note"]].fillna(""))


def _minutes(place):
    rows = {}
    for problem, method, backend, timing in place.gather("timing.parquet", artifact.read_table):
        last = timing.iloc[-1]
        rows.setdefault(f"{method} ({backend})", {})[problem] = (last["seconds"] + last["compile_seconds"]) / 60
    import pandas as pd

    table = pd.DataFrame(rows).T.rename_axis("method").reset_index()
    return table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else value).replace("nan", "")


def _markdown(table):
    """A table in Markdown."""
    lines = [table.columns, ["---"] * table.shape[1], *table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
