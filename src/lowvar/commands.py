"""What the subcommands of ``lowvar`` do: one job of the workflow each."""

import contextlib
import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.errors import UserError, unknown_name
from lowvar.files import all_or_none, sha256, sweep, write_text
from lowvar.runs import artifact
from lowvar.runs.spec import Experiment, load_experiment


@dataclasses.dataclass(frozen=True)
class Place:
    """An experiment at a scale, and where its files are.

    Attributes:
        path: the experiment's YAML file.
        scale: ``smoke``, ``quick`` or ``paper``.
        experiment: its content.
        results: folder of its results.
        data: folder of raw and prepared data.
    """

    path: Path
    scale: str
    experiment: Experiment
    results: Path
    data: Path

    @classmethod
    def load(cls, path, scale, results=None, data="data") -> "Place":
        """Reads and checks the experiment."""
        experiment = load_experiment(path, scale)
        return cls(Path(path), scale, experiment, Path(results or f"results/{scale}/{experiment.name}"), Path(data))

    def prepared(self, problem: str) -> Path:
        """The prepared data of a problem."""
        spec = self.experiment.problems[problem]
        return self.data / "prepared" / f"{spec.dataset}-{spec.scaling}.npz"

    def inputs(self, problem: str) -> dict[str, str]:
        """The hash of a problem's prepared data, as stamps carry it."""
        path = self.prepared(problem)
        if not path.is_file():
            spec = self.experiment.problems[problem]
            raise UserError(
                f"{path}: no such file; make it with: lowvar prepare {spec.dataset} --scaling {spec.scaling} "
                f"--raw {self.data}/raw --out {path}"
            )
        return {problem: sha256(path)}

    def run_folder(self, problem: str, method: str, backend: str) -> Path:
        """Where a run's files are."""
        return self.results / "runs" / problem / f"{method}-{backend}"

    def command(self, verb: str, **options) -> str:
        """A command line that works on this experiment, for error messages."""
        words = ["lowvar", *verb.split(), str(self.path), "--scale", self.scale]
        for key, value in options.items():
            words += [f"--{key}", str(value)]
        return shlex.join(words)

    def tables_stamp(self) -> dict[str, Any]:
        """The stamp of tables: of the whole experiment, and of all its data."""
        inputs = {}
        for problem in self.experiment.problems:
            inputs |= self.inputs(problem)
        return artifact.stamp(self.experiment.hash, inputs, packages=("lowvar",))


def run(place: Place, problem: str, method: str, backend: str, data=None, out=None, *, checkpoint_every=10.0):
    """Runs a method on a problem: all step sizes and repetitions; resumes where a killed one stopped."""
    from lowvar.runs import engine, loop

    spec = place.experiment.run(problem, method, backend)
    out = Path(out or place.run_folder(problem, method, backend))
    prepared, inputs = _prepared(place, problem, data)
    mark = artifact.stamp(spec.hash, inputs)
    made = _problem(spec.problem.model, prepared, spec.solver.dtype, backend, problem)
    runs = engine.build(made, spec.method, spec.solver, seed=spec.seed, name=spec.name)
    with progress_bar(spec.solver.epochs, f"{problem} {method} {backend}") as tick:
        result = loop.run(runs, progress=tick, checkpoint=out / "checkpoint.npz", mark=mark, every=checkpoint_every)
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
        artifact.write_provenance(out / "provenance.json", mark, spec.model_dump(mode="json"), device=_device(backend))
        artifact.write_table(out / "trace.parquet", trace, mark)
    (out / "checkpoint.npz").unlink(missing_ok=True)
    return out / "trace.parquet"


def decompose(place: Place, problem: str, data=None, out=None):
    """Takes the variance of every method apart, along the leader's run on a problem."""
    from lowvar.analysis import decomposition
    from lowvar.runs import engine

    job = place.experiment.decompose(problem)
    out = Path(out or place.results / "decomposition" / problem)
    prepared, inputs = _prepared(place, problem, data)
    mark = artifact.stamp(job.hash, inputs)
    made = _problem(job.problem.model, prepared, job.solver.dtype, "jax", problem)
    runs, parts = engine.follow(made, job.methods, job.decomposition.leader, job.solver, seed=job.seed, name=job.name)
    moments = decomposition.moments(job.decomposition.epochs, job.decomposition.points_along)
    with progress_bar(job.decomposition.epochs, f"{problem} decomposition") as tick:
        table = decomposition.along_run(
            runs, parts, moments=moments, spec=job.decomposition, batch_size=job.solver.batch_size,
            key=decomposition.design_key(job.seed, job.name), progress=tick,
        )  # fmt: skip
    table.insert(0, "problem", problem)
    with all_or_none(out / "provenance.json", out / "decomposition.parquet"):
        artifact.write_provenance(out / "provenance.json", mark, job.model_dump(mode="json"), device=_device("jax"))
        artifact.write_table(out / "decomposition.parquet", table, mark)
    return out / "decomposition.parquet"


def tables(place: Place, *, seconds: bool = False) -> list[Path]:
    """Gathers an experiment's runs and decompositions into tables, refusing stale ones."""
    import json

    import pandas as pd

    from lowvar.analysis import convergence as analysis

    folder, mark = place.results / "tables", place.tables_stamp()
    if seconds:
        table = _read(place, "convergence")
        timings = _gather(place, "timing.parquet")
        return _write_both(folder, {"seconds": analysis.with_seconds(table, timings)}, mark)
    traces, rows, optima = _gather(place, "trace.parquet"), {}, []
    for problem, spec in place.experiment.problems.items():
        prepared, _ = _prepared(place, problem, None)
        made = _problem(spec.model, prepared, "float64", "jax", problem)
        rows[problem] = made.N
        if made.exact_elbo is not None:
            optima.append({"problem": problem, "elbo": analysis.optimum(made), "how": "L-BFGS on the exact ELBO"})
        else:
            seen = traces.loc[traces["problem"] == problem, "elbo"].max()
            optima.append({"problem": problem, "elbo": seen, "how": "largest seen in these runs"})
    optimum = pd.DataFrame(optima)
    values = dict(zip(optimum["problem"], optimum["elbo"], strict=True))
    table = analysis.convergence(traces, values, rows)
    best, ends = analysis.best(table), analysis.ends(traces, table, values)
    decomposition = pd.concat([_decomposition(place, problem) for problem in place.experiment.problems])
    written = _write_both(
        folder,
        {"optimum": optimum, "convergence": table, "best": best, "ends": ends, "decomposition": decomposition},
        mark,
    )
    write_text(folder / "metrics.json", json.dumps(_metrics(best, decomposition), indent=2, sort_keys=True) + "\n")
    return [*written, folder / "metrics.json"]


def figure(place: Place, kind: str) -> list[Path]:
    """Draws one figure of an experiment from its tables."""
    from lowvar import figures

    known = [*figures.FIGURES, "seconds"]
    if kind not in known:
        raise unknown_name("figure", kind, known)
    stem = place.results / "figures" / kind
    if kind == "seconds":
        return figures.picture("convergence", _read(place, "seconds"), stem, x="seconds")
    return figures.picture(kind, _read(place, figures.NEEDS[kind]), stem)


def claims(place: Place, path=None) -> Path:
    """Judges the claims of a file by an experiment's tables; an experiment without a file makes no claims."""
    from lowvar.analysis import claims as analysis

    beside = place.path.parent.parent / "claims" / f"{place.experiment.name}.yaml"
    stated = analysis.load(path or beside) if path or beside.is_file() else []
    table = analysis.judge(stated, _read(place, "decomposition"), _read(place, "ends"))
    target = place.results / "claims.csv"
    write_text(target, table.to_csv(index=False))
    return target


@contextlib.contextmanager
def progress_bar(total: int, label: str, unit: str = "epoch"):
    """A function that counts; it draws a bar on a terminal and nothing in a log."""
    from tqdm import tqdm

    with tqdm(total=total, desc=label, unit=unit, disable=None, leave=False) as bar:
        yield bar.update


def _prepared(place, problem, path):
    from lowvar.datasets.load import load

    prepared = load(path or (place.inputs(problem) and place.prepared(problem)))
    spec = place.experiment.problems[problem]
    for key, wanted in (("dataset", spec.dataset), ("scaling", spec.scaling)):
        if prepared.meta.get(key) != wanted:
            raise UserError(
                f"{path or place.prepared(problem)}: its {key} is {prepared.meta.get(key)!r}, {problem} needs "
                f"{wanted!r}; make it with: lowvar prepare {spec.dataset} --scaling {spec.scaling}"
            )
    return prepared, {problem: prepared.sha256}


def _problem(model, prepared, dtype, backend, name):
    from lowvar.problems import catalogue

    arrays = {
        key: value.astype(dtype) if np.issubdtype(value.dtype, np.floating) else value
        for key, value in prepared.arrays.items()
    }
    return catalogue.build(model, arrays, backend, name)


def _device(backend):
    if backend == "torch":
        import torch

        return str(torch.get_default_device())
    import jax

    return str(jax.devices()[0])


def _gather(place, name):
    """One table out of all runs' ``name``, each checked against the spec and the data of now."""
    import pandas as pd

    found = []
    experiment = place.experiment
    for problem in experiment.problems:
        inputs = place.inputs(problem)
        for method in experiment.methods:
            for backend in experiment.backends:
                expect = {"spec": experiment.run(problem, method, backend).hash, "inputs": inputs}
                folder = place.run_folder(problem, method, backend)
                rebuild = place.command("run", problem=problem, method=method, backend=backend,
                                        data=place.prepared(problem), out=folder)  # fmt: skip
                found.append(artifact.read_table(folder / name, expect=expect, rebuild=rebuild))
    return pd.concat(found, ignore_index=True)


def _decomposition(place, problem):
    folder = place.results / "decomposition" / problem
    expect = {"spec": place.experiment.decompose(problem).hash, "inputs": place.inputs(problem)}
    rebuild = place.command("decompose", problem=problem, data=place.prepared(problem), out=folder)
    return artifact.read_table(folder / "decomposition.parquet", expect=expect, rebuild=rebuild)


def _read(place, table):
    options = {"results": place.results, "data": place.data}
    rebuild = place.command("table", **options) + (" --seconds" if table == "seconds" else "")
    path = place.results / "tables" / f"{table}.parquet"
    return artifact.read_table(path, expect=place.tables_stamp(), rebuild=rebuild)


def _write_both(folder, tables, mark):
    """Each table as parquet, for programs, and as csv, for eyes."""
    written = []
    for name, table in tables.items():
        artifact.write_table(folder / f"{name}.parquet", table, mark)
        write_text(folder / f"{name}.csv", table.to_csv(index=False, float_format="%.8g"))
        written += [folder / f"{name}.parquet", folder / f"{name}.csv"]
    return written


def _metrics(best, decomposition):
    """Numbers to watch from one run to the next."""
    metrics: dict[str, Any] = {}
    for row in best.itertuples():
        key = f"{row.method}-{row.backend}"
        metrics.setdefault(row.problem, {}).setdefault("gap_at_best_step", {})[key] = round(row.gap_mean, 8)
    ends = decomposition[
        decomposition["end"] & (decomposition["block"] == "all") & (decomposition["source"] == "total")
    ]
    for row in ends.itertuples():
        metrics[row.problem].setdefault("gradient_variance", {})[row.method] = float(f"{row.variance:.8g}")
    return metrics
