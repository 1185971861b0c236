"""The subcommands of ``lowvar`` that the workflow runs."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lowvar.core import artifact, loop
from lowvar.core.files import all_or_none, folder_lock, sha256, write_text
from lowvar.errors import UserError, check_known
from lowvar_studies.jobs import code
from lowvar_studies.jobs.common_files import CLAIMS
from lowvar_studies.jobs.study import Job, Study
from lowvar_studies.reports.gathered import Gathered


def run(job: Job, data=None, out=None, study=None, *, prepared=None, checkpoints=None, checkpoint_every=10.0) -> Path:
    """Runs a method on a problem; resumes a killed run.

    ``study`` is the file of the tuned settings, and ``prepared`` that of the data behind samples, if there are any and
    the file is not where the workflow writes it. ``checkpoints`` is the folder of the checkpoint, by default ``out``.
    """
    spec, family, out = job.spec, job.study.family, Path(out or job.folder)
    checkpoint = Path(checkpoints or out, "checkpoint.npz")
    source = job.study.load_source(job.problem, data, prepared)
    settled, inputs = job.settled(_hash(job, source), study)
    mark = artifact.stamp(spec.hash, inputs, packages=(*artifact.PACKAGES, *family.packages(spec)))
    engine = family.engine(settled, source)
    at_start = _code(job)
    saved = mark | {"place": job.place("checkpoint.npz"), "commit": at_start["commit"]}
    with folder_lock(out, checkpoint.parent), progress_bar(engine.stops[-1], " ".join(job.names.values())) as tick:
        result = loop.complete(engine, progress=tick, checkpoint=checkpoint, mark=saved, every=checkpoint_every)
        files = {"params.npz": result.params, "timing.parquet": _named(job, result.timing),
                 "provenance.json": settled, "trace.parquet": _named(job, result.trace)}  # fmt: skip
        made = _leave(job, out, mark, files, at_start)
        checkpoint.unlink(missing_ok=True)
    return made


def tune(job: Job, data=None, out=None, *, checkpoints=None, checkpoint_every=10.0) -> Path:
    """Tunes the settings of a method on a problem; resumes a killed search, whose checkpoints are as those of a run."""
    spec, out = job.spec, Path(out or job.folder)
    checkpoint = Path(checkpoints or out, "checkpoint.npz")
    prepared = job.study.load_data(job.problem, data)
    mark = artifact.stamp(spec.hash, _hash(job, prepared), packages=(*artifact.PACKAGES, "optuna"))
    search: Callable[..., Any] = job.study.family.tune  # type: ignore[assignment]
    label, at_start = f"{' '.join(job.names.values())} tuning", _code(job)
    saved = mark | {"place": job.place("checkpoint.npz"), "commit": at_start["commit"]}
    with folder_lock(out, checkpoint.parent), progress_bar(spec.trials, label, "trial") as tick:
        study, timing = search(spec, prepared, checkpoint=checkpoint, mark=saved, progress=tick, every=checkpoint_every)
        files = {"timing.parquet": _named(job, timing), "provenance.json": spec, "study.parquet": _named(job, study)}
        made = _leave(job, out, mark, files, at_start)
        checkpoint.unlink(missing_ok=True)
    return made


def sample(job: Job, data=None, out=None) -> Path:
    """Draws the points of an integral problem, which all methods share, and computes the truth."""
    spec, family, out = job.spec, job.study.family, Path(out or job.folder)
    prepared = job.study.load_data(job.problem, data)
    mark = artifact.stamp(spec.hash, _hash(job, prepared), packages=(*artifact.PACKAGES, *family.packages(spec)))
    draw: Callable[..., Any] = family.sample  # type: ignore[assignment]
    at_start = _code(job)
    return _leave(job, out, mark, {"provenance.json": spec, "samples.npz": draw(spec, prepared)}, at_start)


def decompose(job: Job, data=None, out=None) -> Path:
    """Decomposes the variance of gradients on a problem."""
    spec, out = job.spec, Path(out or job.folder)
    prepared = job.study.load_data(job.problem, data)
    mark = artifact.stamp(spec.hash, _hash(job, prepared))
    make: Callable[..., Any] = job.study.family.decomposition  # type: ignore[assignment]
    at_start = _code(job)
    table = make(spec, prepared, progress_bar)
    return _leave(job, out, mark, {"provenance.json": spec, "decomposition.parquet": _named(job, table)}, at_start)


def _hash(job, source) -> dict[str, str]:
    """The hash of a job's input, as in stamps."""
    return {job.problem: source.sha256} if source else {}


def _named(job, table):
    """A table with the job's names as first columns, unless it has them."""
    for position, (name, value) in enumerate(job.names.items()):
        if name not in table:
            table.insert(position, name, value)
    return table


def _code(job) -> dict[str, Any]:
    """The code with which a job begins: the commit, which a checkpoint has too, and the hashes of loaded modules."""
    return {"commit": artifact.commit(), "code": code.loaded(job.study.family.name)}


def _leave(job, out, mark, files, at_start) -> Path:
    """Writes all files of a job or none: tables, arrays, and the spec as provenance; returns the path of the last.

    The commit is that at which the job began; one that is another by now counts as a changed tree.
    """
    commit = at_start["commit"]
    if not (commit is None or commit.endswith("-dirty") or artifact.commit() == commit):
        commit = f"{commit}-dirty"
    with all_or_none():
        for name, content in files.items():
            if name == "provenance.json":
                about = content.model_dump(mode="json")
                device, used = _device(job.names.get("backend", "jax")), code.loaded(job.study.family.name)
                spent = round(time.process_time(), 3)
                artifact.write_provenance(
                    out / name, mark, about, device=device, code=used | at_start["code"], cpu_seconds=spent,
                    commit=commit,
                )  # fmt: skip
            else:
                write = artifact.write_arrays if name.endswith(".npz") else artifact.write_table
                write(out / name, content, mark | {"place": job.place(name)})
    return out / list(files)[-1]


def tables(study: Study, *, seconds: bool = False) -> list[Path]:
    """Makes the tables from an experiment's runs and decompositions; refuses stale ones."""
    mark, declared = study.tables_stamp(), study.family.tables
    gathered = Gathered(study, declared, made=not seconds)
    names = study.timed if seconds else study.tables
    tables = {name: gathered[name] for name in names}  # all are made before one is written
    metrics = None if seconds else nested(study.experiment.problems, study.family.metrics(gathered))
    written = []
    if metrics is not None:
        write_text(study.metrics, json.dumps(metrics, indent=2, sort_keys=True) + "\n")
        written.append(study.metrics)
    for name, table in tables.items():
        (parquet,), (csv,) = study.table_files(name), study.table_files(name, ending="csv")
        write_text(csv, table.to_csv(index=False, float_format="%.8g"))
        beside = _beside(study, csv, *([study.metrics] if metrics is not None else []))
        artifact.write_table(parquet, table, mark | {"place": study.place(parquet), "beside": beside})
        written += [parquet, csv]
    return written


def figures(study: Study, *kinds: str) -> list[Path]:
    """Draws figures of an experiment from its tables, by default all of them; returns the files of each in turn."""
    kinds = kinds or tuple(study.figures)
    for kind in kinds:
        check_known("figure", kind, study.figures, where=f"experiment {study.name!r}")
    tables = {name: study.table(name) for name in dict.fromkeys(study.figures[kind].table for kind in kinds)}
    written = []
    for kind in kinds:
        drawn, (path,) = study.figures[kind], study.figure_files(kind)
        (table,) = study.table_files(drawn.table)
        svg, *others = drawn.picture(tables[drawn.table], path.with_suffix(""), **study.options(kind))
        mark = {"spec": study.experiment.hash, "place": study.place(svg), "beside": _beside(study, *others, table)}
        artifact.write_seal(svg, mark)
        written += [svg, *others]
    return written


def claims(study: Study, path=None) -> Path:
    """Judges the claims of a file by an experiment's tables; without a file there are no claims."""
    from lowvar_studies.reports import claims as analysis

    path = path or study.claims
    table = analysis.judge(analysis.load(path) if path else [], Gathered(study, study.family.tables, made=False), study)
    table = table.astype({one.name: one.dtype.replace("string", "str") for one in CLAIMS.columns})  # also without rows
    write_text(study.verdicts, table.to_csv(index=False))
    parquet = study.verdicts.with_suffix(".parquet")
    mark = study.tables_stamp() | {"place": study.place(parquet), "beside": _beside(study, study.verdicts)}
    artifact.write_table(parquet, table, mark)
    return study.verdicts


def check(study: Study) -> list[str]:
    """Published files of an experiment that differ from those that lowvar made, a sentence each."""
    found, where = [], {"results": study.results, "data": study.data}
    verdicts = [study.verdicts.with_suffix(".parquet"), study.verdicts]
    published = [(verdicts, study.command("claims", **where))]
    for name in (*study.tables, *study.timed):
        files = [study.table_files(name, ending=ending)[0] for ending in ("parquet", "csv")]
        published.append((files, study.table_command(name)))
    for kind in study.figures:
        files = [study.figure_files(kind, ending=ending)[0] for ending in ("svg", "png", "csv")]
        published.append((files, study.command(f"figure {kind}", **where)))
    for (path, *others), rebuild in published:
        if not path.is_file():
            rest = [file for file in others if file.is_file()]
            found += [f"{path}: it is missing, and {file.name} is there; make both with: {rebuild}" for file in rest]
            continue
        found += differences(study, path, others, rebuild)
    return list(dict.fromkeys(found))


def differences(study: Study, path: Path, others: Sequence[Path] = (), rebuild: str = "") -> list[str]:
    """How a published parquet or svg and the files beside it differ from those that lowvar made, a sentence each."""
    try:
        mark = artifact.verified_stamp(
            path, expect={"spec": study.experiment.hash, "place": study.place(path)}, rebuild=rebuild
        )
    except UserError as error:
        return [str(error)]
    found = []
    for name, digest in mark.get("beside", {}).items():
        if not (file := study.results / name).is_file() or sha256(file) != digest:
            apart = f"{file}: it is not what was made with {path.name}"
            if path.suffix == ".svg" and file not in others:
                apart = f"{path}: {name} is not the table that it was drawn from"
            found.append(f"{apart}; make it with: {rebuild}")
    return found


def _beside(study: Study, *paths: Path) -> dict[str, str]:
    """The hashes of published files, for the stamp of the one that they were made with."""
    return {study.place(path): sha256(path) for path in paths}


def nested(problems, rows) -> dict[str, dict[str, dict[str, float | None]]]:
    """Rows of problem, quantity, run and value as nested mappings, for JSON; values that are not finite become None."""
    out = {problem: {} for problem in problems}
    for problem, quantity, run, value in rows:
        out[problem].setdefault(quantity, {})[run] = float(value) if math.isfinite(value) else None
    return out


@contextlib.contextmanager
def progress_bar(total: int, label: str, unit: str = "step"):
    """A function that advances a progress bar, which appears on a terminal but not in a log."""
    from tqdm import tqdm

    with tqdm(total=total, desc=label, unit=unit, disable=None, leave=False) as bar:
        yield bar.update


def _device(backend):
    if backend == "torch" and "torch" not in sys.modules:  # which no method needed
        return "cpu"
    if backend == "torch":
        import torch

        return str(torch.get_default_device())
    import jax

    return str(jax.devices()[0])
