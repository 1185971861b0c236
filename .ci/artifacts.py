"""Keeps Snakemake's records and DVC's in step: ``artifacts.py adopt``, ``artifacts.py record``, ``artifacts.py check``.

Snakemake records in ``.snakemake`` what it made; DVC records in ``dvc.lock`` what is in the remote.

    adopt   after `dvc pull` or `dvc checkout`: Snakemake takes the results that ``dvc.lock`` records as made. It has no
            records of results that another machine made, and wrong ones after the checkout of an older ``dvc.lock``.
    record  before `dvc push`: DVC takes the results that Snakemake made as its stages' outputs.
    check   names each table, figure and verdict of the experiments in ``params.yaml`` that was edited or exchanged.

An experiment is adopted only if its results, its own files and its claims are those that ``dvc.lock`` records. The code
of lowvar is not compared, as Snakemake does not compare it.
"""

import json
import subprocess
import sys
from pathlib import Path

from lowvar.core.artifact import read_stamp
from lowvar.errors import UserError
from lowvar_studies.jobs import commands as jobs
from lowvar_studies.jobs.study import Study
from lowvar_studies.yaml_files import read_yaml

STAGES, CODE = ("runs", "results"), "src/"


def said(*command):
    """Standard output and error of a command; exits with both if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr).strip()[-3000:]}")
    return done.stdout, done.stderr


def stages():
    """The stages that ``dvc.lock`` records."""
    lock = read_yaml("dvc.lock")
    if not isinstance(lock, dict) or not isinstance(lock.get("stages"), dict):
        raise UserError("dvc.lock: damaged, it has no stages: git checkout dvc.lock")
    return lock["stages"]


def status():
    """The differences from ``dvc.lock``, by stage."""
    return json.loads(said("dvc", "status", "--json")[0])


def studies():
    """The experiments that params.yaml selects, at its scale."""
    params = read_yaml("params.yaml")
    data, folder = params.get("data", "data"), Path(params.get("results", "results"), params["scale"])
    for name in params["experiments"]:
        if name.endswith((".yaml", ".yml")):
            sys.exit(f"params.yaml: experiments: {name}: DVC records experiments of workflow/experiments, by name")
        yield Study.load(f"workflow/experiments/{name}.yaml", params["scale"], folder / name, data)


def changed(differences, study, code=False):
    """What differs from ``dvc.lock`` in an experiment's stages, by path: files of results and settings, or of code."""
    found = {}
    for stage in STAGES:
        for kind in differences.get(f"{stage}@{study.name}", []):
            if isinstance(kind, dict):
                for paths in kind.values():
                    found |= paths if isinstance(paths, dict) else {}
    return {path: how for path, how in found.items() if path.startswith(CODE) == code}


def leftovers(study):
    """Files with wall times or dates, which DVC ignores, of other results than those beside them."""
    for job in study.jobs():
        yield from (path for path in job.records if path.is_file() and not belongs(path, job.outputs[0]))
    for name in study.timed:
        (table,) = study.table_files(name)
        if table.is_file() and not belongs(table, study.table_files()[0]):
            figures = [kind for kind, figure in study.figures.items() if figure.table == name]
            drawn = [file for end in ("svg", "png", "csv") for file in study.figure_files(*figures, ending=end)]
            yield from (table, table.with_suffix(".csv"), *(drawn if figures else []))


def belongs(path, result):
    """Whether a file is of the same spec and data as a result."""
    try:
        return read_stamp(path) == read_stamp(result)
    except UserError:
        return False


def adopt():
    """Marks results as made, one line for each experiment; the exit code is 1 if some are not adopted."""
    if not Path("dvc.lock").is_file():
        sys.exit("there is no dvc.lock: nothing is recorded; `make push` records what Snakemake made")
    recorded, differences = stages(), status()
    taken, refused = [], False
    for study in studies():
        if not any(study.results.rglob("*.parquet")):
            print(f"{study.name}: no results here; `snakemake {study.name}` makes them")
        elif missing := [f"{stage}@{study.name}" for stage in STAGES if f"{stage}@{study.name}" not in recorded]:
            refused = True
            print(f"{study.name}: not adopted, dvc.lock does not record {' and '.join(missing)}")
        elif differs := changed(differences, study):
            refused = True
            what = f"not adopted, dvc.lock records another {', '.join(list(differs)[:3])}"
            print(f"{study.name}: {what}: put that back (git stash, dvc checkout), or make all anew "
                  f"(snakemake {study.name} --forceall)")  # fmt: skip
        else:
            taken.append(study)
    for study in taken:
        old = [path for path in leftovers(study) if path.is_file()]
        for path in old:
            path.unlink(missing_ok=True)
        print(f"{study.name}: as dvc.lock records it" + (f"; {len(old)} files of other results removed" if old else ""))
    if taken:
        names = [study.name for study in taken]
        said("snakemake", *names, "--cores", "1", "--touch", "--forceall", "--quiet", "all")
    return int(refused)


def unknown(study):
    """Files among an experiment's results that none of its jobs makes."""
    made = {path for job in study.jobs() for path in job.outputs + job.records}
    for ending in ("csv", "parquet"):
        made.update(study.table_files(*study.tables, *study.timed, ending=ending))
    for ending in ("svg", "png", "csv"):
        made.update(study.figure_files(ending=ending))
    made |= {study.metrics, study.verdicts, study.verdicts.with_suffix(".parquet")}
    present = (path for path in study.results.rglob("*") if path.is_file())
    return [path for path in present if path not in made and not path.name.startswith(("checkpoint.", "."))]


def record():
    """Takes what Snakemake made into dvc.lock, if all of it is made and nothing else is there."""
    if not any("Nothing to be done" in part for part in said("snakemake", "-n")):
        sys.exit("the results are not all made: run `make` first, then `make push`")
    differences = status() if Path("dvc.lock").is_file() and stages() else {}
    for study in studies():
        if code := changed(differences, study, code=True):
            what = f"the code has changed since dvc.lock ({next(iter(code))}), and is recorded as it is"
            print(f"{study.name}: {what}: if that changes results, make them anew (snakemake {study.name} --forceall) "
                  "and push again")  # fmt: skip
        if extra := unknown(study):
            sys.exit(f"{study.name}: {len(extra)} files that no job of it makes, such as {extra[0]}: remove them first")
        for folder in ("decomposition", "samples"):  # DVC requires both, as in dvc.yaml
            (study.results / folder).mkdir(exist_ok=True)
    said("snakemake", "needs", "data", "--cores", "1", "--quiet", "all")
    said("dvc", "commit", "--force")
    print("recorded in dvc.lock: commit it to git")
    return 0


def check():
    """Names the files that were edited or exchanged after lowvar made them; the exit code is 1 if there are any."""
    found = [sentence for study in studies() for sentence in jobs.check(study)]
    print("\n".join(found) or "tables, figures and verdicts are as lowvar made them")
    return int(bool(found))


if __name__ == "__main__":
    try:
        sys.exit({"adopt": adopt, "record": record, "check": check}[sys.argv[1]]())
    except UserError as error:
        print(f"lowvar: {error}", file=sys.stderr)
        sys.exit(2)
