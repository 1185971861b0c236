"""What the subcommands of ``lowvar`` do: one job of the workflow each.

What differs between families of experiments is in a module for each family: ``FAMILIES``.
"""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from lowvar.errors import UserError, unknown_name
from lowvar.files import all_or_none, sweep, write_text
from lowvar.runs import artifact, loop
from lowvar.studies.gathered import Gathered
from lowvar.studies.integral import samples
from lowvar.studies.integral import tables as integral
from lowvar.studies.search import tables as search
from lowvar.studies.study import Study
from lowvar.studies.variational import tables as variational
from lowvar.studies.variational import tuning

# family -> module with: engine, packages, decomposition, TABLES, metrics
FAMILIES = {"variational": variational, "search": search, "integral": integral}

__all__ = ["Study", "claims", "decompose", "figure", "progress_bar", "run", "sample", "tables", "tune"]


def run(place: Study, problem: str, method: str, backend: str, data=None, out=None, study=None, *,
        checkpoint_every=10.0):  # fmt: skip
    """Runs a method on a problem; resumes where a killed run stopped.

    ``study`` is the file of the settings that it tunes, if it tunes any and the file is not where the workflow puts it.
    """
    spec = place.experiment.run(problem, method, backend)
    out = Path(out or place.run_folder(problem, method, backend))
    source = place.load_source(problem, data)
    family = FAMILIES[place.experiment.family]
    inputs = {problem: source.sha256} if source else {}
    settled, inputs = tuning.settled(place, spec, problem, method, backend, inputs, study)
    mark = artifact.stamp(spec.hash, inputs, packages=(*artifact.PACKAGES, *family.packages(spec)))
    engine = family.engine(settled, source)
    with progress_bar(engine.stops[-1], f"{problem} {method} {backend}") as tick:
        result = loop.run(engine, progress=tick, checkpoint=out / "checkpoint.npz", mark=mark, every=checkpoint_every)
    trace = result.trace
    for position, (name, value) in enumerate({"problem": problem, "method": method, "backend": backend}.items()):
        trace.insert(position, name, value)
        result.timing.insert(position, name, value)
    names = ("params.npz", "timing.parquet", "provenance.json", "trace.parquet")
    for name in names:
        sweep(out, name)
    with all_or_none(*(out / name for name in names)):
        artifact.write_arrays(out / "params.npz", result.params, mark)
        artifact.write_table(out / "timing.parquet", result.timing, mark)
        about = settled.model_dump(mode="json")
        artifact.write_provenance(out / "provenance.json", mark, about, device=_device(backend))
        artifact.write_table(out / "trace.parquet", trace, mark)
    (out / "checkpoint.npz").unlink(missing_ok=True)
    return out / "trace.parquet"


def tune(place: Study, problem: str, method: str, backend: str, data=None, out=None, *, checkpoint_every=10.0):
    """Searches the settings that a method tunes on a problem; resumes where a killed search stopped."""
    return tuning.tune(place, problem, method, backend, data, out, device=_device(backend), every=checkpoint_every,
                       progress_bar=progress_bar)  # fmt: skip


def sample(place: Study, problem: str, data=None, out=None):
    """Draws the points that all methods estimate the integrals of a problem from, and computes the truth.

    Raises:
        UserError: the experiment draws no points beforehand.
    """
    experiment: Any = place.experiment
    if not experiment.samples():
        raise UserError(f"experiment {experiment.name!r} draws no points beforehand: its runs draw their own noise")
    job = experiment.sample(problem)
    out = Path(out or place.job("sample", problem).folder)
    prepared = place.load_data(problem, data)
    inputs = {problem: prepared.sha256} if prepared else {}
    mark = artifact.stamp(job.hash, inputs, packages=(*artifact.PACKAGES, *integral.SAMPLING))
    drawn, about = integral.draw(job, prepared)
    for name in (names := ("samples.npz", "provenance.json")):
        sweep(out, name)
    with all_or_none(*(out / name for name in names)):
        samples.write(out / "samples.npz", drawn, about, mark)
        artifact.write_provenance(out / "provenance.json", mark, job.model_dump(mode="json"), device=_device("jax"))
    return out / "samples.npz"


def decompose(place: Study, problem: str, data=None, out=None):
    """Takes the variance of gradients on a problem apart."""
    job = place.experiment.decompose(problem)
    out = Path(out or place.job("decompose", problem).folder)
    prepared = place.load_data(problem, data)
    mark = artifact.stamp(job.hash, {problem: prepared.sha256} if prepared else {})
    table = FAMILIES[place.experiment.family].decomposition(job, prepared, progress_bar)
    if "problem" not in table:
        table.insert(0, "problem", problem)
    with all_or_none(out / "provenance.json", out / "decomposition.parquet"):
        artifact.write_provenance(out / "provenance.json", mark, job.model_dump(mode="json"), device=_device("jax"))
        artifact.write_table(out / "decomposition.parquet", table, mark)
    return out / "decomposition.parquet"


def tables(place: Study, *, seconds: bool = False) -> list[Path]:
    """Gathers an experiment's runs and decompositions into tables, refusing stale ones."""
    family, mark = FAMILIES[place.experiment.family], place.tables_stamp()
    gathered = Gathered(place, family.TABLES, made=not seconds)
    names = [one.name for one in family.TABLES if one.timed] if seconds else place.experiment.tables
    tables = {name: gathered[name] for name in names}  # all of them before any is written
    if seconds:
        return _write_both(place, tables, mark)
    metrics = nested(place.experiment.problems, family.metrics(gathered))
    written = _write_both(place, tables, mark)
    write_text(place.results / "metrics.json", json.dumps(metrics, indent=2, sort_keys=True) + "\n")
    return [*written, place.results / "metrics.json"]


def figure(place: Study, kind: str) -> list[Path]:
    """Draws one figure of an experiment from its tables."""
    from lowvar.studies.drawing import declared

    experiment = place.experiment
    if kind not in experiment.figures:
        raise unknown_name("figure", kind, experiment.figures, where=f"experiment {experiment.name!r}")
    drawn = declared(experiment.family)[kind]
    options = experiment.figure_options.get(kind, {})
    return drawn.picture(place.table(drawn.table), place.results / "figures" / kind, **options)


def claims(place: Study, path=None) -> Path:
    """Judges the claims of a file by an experiment's tables; an experiment without a file makes no claims."""
    from lowvar.studies import claims as analysis

    path = path or place.claims
    stated = analysis.load(path) if path else []
    table = analysis.judge(stated, Gathered(place, FAMILIES[place.experiment.family].TABLES, made=False))
    target = place.results / "claims.csv"
    write_text(target, table.to_csv(index=False))
    return target


def nested(problems, rows) -> dict[str, dict[str, dict[str, float | None]]]:
    """Rows of problem, quantity, run and value as mappings in mappings, for JSON; what is not finite is None."""
    out = {problem: {} for problem in problems}
    for problem, quantity, run, value in rows:
        out[problem].setdefault(quantity, {})[run] = float(value) if math.isfinite(value) else None
    return out


@contextlib.contextmanager
def progress_bar(total: int, label: str, unit: str = "step"):
    """A function that counts; it draws a bar on a terminal and nothing in a log."""
    from tqdm import tqdm

    with tqdm(total=total, desc=label, unit=unit, disable=None, leave=False) as bar:
        yield bar.update


def _device(backend):
    if backend == "torch":
        import torch

        return str(torch.get_default_device())
    import jax

    return str(jax.devices()[0])


def _write_both(place, tables, mark):
    """Each table as parquet, for programs, and as csv, for eyes."""
    written = []
    for name, table in tables.items():
        stem = place.results / "tables" / name
        artifact.write_table(f"{stem}.parquet", table, mark)
        write_text(f"{stem}.csv", table.to_csv(index=False, float_format="%.8g"))
        written += [Path(f"{stem}.parquet"), Path(f"{stem}.csv")]
    return written
