"""Studies: settings of methods that are searched for before their runs."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from lowvar.errors import UserError
from lowvar.files import all_or_none, sha256, sweep
from lowvar.runs import artifact
from lowvar.studies.load import VariationalExperiment
from lowvar.studies.study import Study
from lowvar.studies.variational import tables as variational
from lowvar.studies.variational import trials as tuning

PACKAGES = (*artifact.PACKAGES, "optuna")
FILES = ("timing.parquet", "provenance.json", "study.parquet")


def studies(place: Study) -> list[tuple[str, str, str]]:
    """Problem, method and backend of the runs whose settings are searched for; none but in the family variational."""
    return place.experiment.studies() if isinstance(place.experiment, VariationalExperiment) else []


def source(place: Study, problem: str, method: str, backend: str) -> tuple[str, str, str] | None:
    """The run whose study chooses the settings of a run: itself, another with ``same_as``, or None."""
    experiment = place.experiment
    return experiment.study_of(problem, method, backend) if isinstance(experiment, VariationalExperiment) else None


def spec(place: Study, problem: str, method: str, backend: str):
    """The spec of the job that searches.

    Raises:
        UserError: there is nothing to search.
    """
    if not isinstance(place.experiment, VariationalExperiment):
        raise UserError(f"experiment {place.experiment.name!r} tunes nothing: only the family variational does")
    return place.experiment.tune(problem, method, backend)


def path(place: Study, problem: str, method: str, backend: str) -> Path:
    """Where the study of a run is."""
    return place.job("tune", problem, method, backend).outputs[0]


def tune(place: Study, problem: str, method: str, backend: str, data=None, out=None, *, device="", every=10.0,
         progress_bar) -> Path:  # fmt: skip
    """Searches the settings of a method on a problem; resumes where a killed search stopped."""
    job = spec(place, problem, method, backend)
    out = Path(out or path(place, problem, method, backend).parent)
    prepared: Any = place.load_data(problem, data)
    mark = artifact.stamp(job.hash, {problem: prepared.sha256}, packages=PACKAGES)
    with _made_once(), progress_bar(job.trials, f"{problem} {method} {backend} tuning", "trial") as tick:
        study, timing = tuning.search(
            job, lambda run: variational.engine(run, prepared), checkpoint=out / "checkpoint.npz", mark=mark,
            progress=tick, every=every,
        )  # fmt: skip
    for table in (study, timing):
        for position, (name, value) in enumerate({"problem": problem, "method": method, "backend": backend}.items()):
            table.insert(position, name, value)
    for name in FILES:
        sweep(out, name)
    with all_or_none(*(out / name for name in FILES)):
        artifact.write_table(out / "timing.parquet", timing, mark)
        artifact.write_provenance(out / "provenance.json", mark, job.model_dump(mode="json"), device=device)
        artifact.write_table(out / "study.parquet", study, mark)
    (out / "checkpoint.npz").unlink(missing_ok=True)
    return out / "study.parquet"


@contextlib.contextmanager
def _made_once():
    """Keeps the programs of trials, which differ in their arguments alone, from one trial to the next."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    settings = {"jax_compilation_cache_dir": None, "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, value in settings.items():
                jax.config.update(name, folder if value is None else value)
            compilation_cache.reset_cache()
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


def read(place: Study, problem: str, method: str, backend: str, file=None, inputs=None):
    """The study of a run.

    Args:
        place: the experiment.
        problem: of the run, as ``method`` and ``backend``.
        file: the study, if it is not where the workflow puts it.
        inputs: the hash of the problem's data, as stamps carry it, if it is not the experiment's.

    Raises:
        UserError: there is none, or it is of another experiment or other data.
    """
    file = Path(file or path(place, problem, method, backend))
    expect = {
        "spec": spec(place, problem, method, backend).hash,
        "inputs": place.data_inputs(problem) if inputs is None else inputs,
    }
    home = path(place, problem, method, backend).parent  # not the folder of a file that may be another run's
    return artifact.read_table(file, expect=expect, rebuild=_command(place, problem, method, backend, home))


def settled(place: Study, run, problem: str, method: str, backend: str, inputs: dict[str, str], file=None):
    """The spec of a run with the settings that its study chose, and what its stamp says of what it read.

    Args:
        place: the experiment.
        run: the spec of the run.
        problem: of the run, as ``method`` and ``backend``.
        inputs: the hash of the problem's data, as stamps carry it.
        file: the study, if it is not where the workflow puts it.

    Raises:
        UserError: a study is given and nothing is tuned, or as ``read``.
    """
    searched = source(place, problem, method, backend)
    if searched is None:
        if file is not None:
            name = place.experiment.name
            raise UserError(f"--study {file}: experiment {name!r} tunes nothing of {method!r} on {problem!r}")
        return run, inputs
    file = Path(file or path(place, *searched))
    study = read(place, *searched, file, inputs)
    return run.at(tuning.choice(study)), inputs | {_name(*searched): sha256(file)}


def inputs(place: Study, *jobs: tuple[str, str, str]) -> dict[str, str]:
    """The hashes of the studies that these runs read, as stamps carry them; stale studies are refused."""
    read_by_them = dict.fromkeys(searched for job in jobs if (searched := source(place, *job)))
    for searched in read_by_them:
        read(place, *searched)
    return {_name(*searched): sha256(path(place, *searched)) for searched in read_by_them}


def spec_of(place: Study, problem: str, method: str, backend: str):
    """The spec of a run as it was made: with the settings of its study, if it has one.

    Raises:
        UserError: as ``read``.
    """
    spec_of_run = place.experiment.run(problem, method, backend)
    return settled(place, spec_of_run, problem, method, backend, place.data_inputs(problem))[0]


def with_trials(place: Study, selected):
    """A table of chosen settings, by ``problem, method, backend``, with what is known of how they were found.

    Args:
        place: the experiment.
        selected: as ``analysis.diagnostics.selected`` gives it.

    Returns:
        The table with ``elbo`` of the best trial in nats, the number of ``trials``, and how many of them
        ``diverged``; NaN where nothing was searched.

    Raises:
        UserError: a study is missing or stale.
    """
    import pandas as pd

    rows = []
    for problem, method, backend in studies(place):
        study = read(place, problem, method, backend)
        rows.append((problem, method, backend, tuning.best(study)["value"], len(study),
                     int((study["status"] == "diverged").sum())))  # fmt: skip
    keys = ["problem", "method", "backend"]
    found = ["elbo", "trials", "diverged"]
    beside = selected.merge(pd.DataFrame(rows, columns=[*keys, *found]), on=keys, how="left")
    return beside.astype(dict.fromkeys(found, float))  # of all-missing columns, too


def _name(problem, method, backend):
    return f"{problem}/{method}-{backend}"


def _command(place, problem, method, backend, out):
    data = place.prepared(problem)
    return place.command("tune", problem=problem, method=method, backend=backend, data=data, out=out)
