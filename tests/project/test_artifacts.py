"""Results go to a DVC remote and come back; Snakemake and DVC agree about what is made."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import commands
import pandas as pd
import pytest
from projects import ROOT, call, git, plan, project, write

from lowvar.core import artifact
from lowvar_studies.jobs.study import Study

pytest.importorskip("snakemake")
pytest.importorskip("dvc")
TRACE = Path("results/smoke/one/runs/ellipsoid/fast_ingo-jax/trace.parquet")
EDITED = {"search": {"budget": 600, "repetitions": 2}}


@pytest.fixture(scope="module")
def artifacts():
    """The script behind `make pull`, `checkout` and `push`."""
    spec = importlib.util.spec_from_file_location("artifacts", ROOT / ".ci/artifacts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_dvc(folder, **experiments):
    """A project in git with DVC, lowvar's code beside it, and a remote in ``{folder}-remote``."""
    project(folder, **experiments)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    call(folder, "dvc", "init", "-q")
    for words in (["core.analytics", "false"], ["core.check_update", "false"], ["cache.type", "copy"]):
        call(folder, "dvc", "config", *words)
    call(folder, "dvc", "remote", "add", "-q", "-d", "mine", f"{folder}-remote")
    return committed(folder)


def committed(folder, message="a state"):
    installed = folder / ".venv/installed"
    installed.parent.mkdir(exist_ok=True)
    installed.touch()  # `make` has nothing to install
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return folder


def faked(folder):
    """All files of the experiments ``one`` and ``two``, with the right stamps but next to no content."""
    for name in ("one", "two"):
        study = Study.load(folder / f"workflow/experiments/{name}.yaml", "smoke", folder / f"results/smoke/{name}")
        mark, table = artifact.stamp(study.experiment.hash, {}), pd.DataFrame({"x": [0.0]})
        for job in study.jobs():
            mine = artifact.stamp(job.spec.hash, {})
            for path in job.outputs + job.records:
                mine["place"] = job.place(path.name)
                if path.suffix == ".parquet":
                    artifact.write_table(path, table, mine)
                elif path.suffix == ".npz":
                    artifact.write_arrays(path, {}, mine)
                else:
                    artifact.write_provenance(path, mine, {})
        for path in [*study.table_files(*study.tables, *study.timed), study.verdicts.with_suffix(".parquet")]:
            artifact.write_table(path, table, mark | {"place": study.place(path)})
        empty = study.table_files(*study.tables, *study.timed, ending="csv")
        empty += [path for ending in ("svg", "png", "csv") for path in study.figure_files(ending=ending)]
        for path in [*empty, study.metrics, study.verdicts]:
            path.parent.mkdir(exist_ok=True)
            path.write_text("{}\n")


@pytest.mark.long
def test_what_dvc_records_is_adopted_and_nothing_else(tmp_path):
    """Snakemake has no records of results that another machine made: `adopt` makes them."""
    folder = with_dvc(tmp_path / "project", one={}, two={})
    script = [sys.executable, ".ci/artifacts.py"]
    assert "no dvc.lock: nothing is recorded" in call(folder, *script, "adopt", code=1)
    faked(folder)
    (folder / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    said = call(folder, *script, "adopt", code=1)
    assert "one: not adopted, dvc.lock does not record runs@one and results@one" in said
    done = commands.snakemake(folder, "--touch", "--forceall", "--cores", "1")
    assert done.returncode == 0, done.stderr
    assert plan(folder) == {}
    assert "recorded in dvc.lock" in call(folder, *script, "record")

    shutil.rmtree(folder / ".snakemake")
    warned = "lowvar: Snakemake has no records of the results in results/smoke, and would not notice an edit"
    assert warned in commands.snakemake(folder, "-n").stderr
    said = call(folder, *script, "adopt")
    assert "one: as dvc.lock records it\ntwo: as dvc.lock records it\n" in said
    assert plan(folder) == {}
    assert warned not in commands.snakemake(folder, "-n").stderr
    write(folder, "one", **EDITED)
    only_one = plan(folder)
    assert (only_one["run"], only_one["one_tables"]) == (1, 1)
    assert "two_tables" not in only_one
    said = call(folder, *script, "adopt", code=1)
    assert "one: not adopted, dvc.lock records another workflow/experiments/one.yaml: put that back" in said
    assert "two: as dvc.lock records it" in said
    assert plan(folder) == only_one

    tables = folder / "results/smoke/two/tables"
    cut_off = {path.read_bytes(): path for path in (folder / ".dvc/cache").rglob("*") if path.is_file()}[
        (tables / "ends.parquet").read_bytes()
    ]
    cut_off.chmod(0o644)
    cut_off.write_bytes(cut_off.read_bytes()[:100])
    shutil.rmtree(tables)
    call(folder, "dvc", "checkout", "results@two")  # DVC copies what is left of it
    assert "two: not adopted, dvc.lock records another results/smoke/two/tables" in call(
        folder, *script, "adopt", code=1
    )


def test_files_of_other_results_are_found(artifacts, tmp_path):
    """DVC ignores wall times: after the checkout of other results, those of the former ones lie beside them."""
    folder = project(tmp_path, one={}, two={})
    faked(folder)
    study = Study.load(folder / "workflow/experiments/one.yaml", "smoke", folder / "results/smoke/one")
    assert list(artifacts.leftovers(study)) == []
    assert artifacts.unknown(study) == []
    former = (folder / TRACE).parents[1] / "former-jax/trace.parquet"  # no job makes it
    former.parent.mkdir()
    shutil.copy(folder / TRACE, former)
    (folder / TRACE).with_name("checkpoint.npz").touch()
    assert artifacts.unknown(study) == [former]
    other = artifact.stamp("f" * 16, {})
    artifact.write_table(folder / TRACE, pd.DataFrame({"x": [1.0]}), other)
    beside = {path.name for path in artifacts.leftovers(study)}
    assert beside == {"timing.parquet", "provenance.json"}
    artifact.write_table(study.table_files()[0], pd.DataFrame({"x": [1.0]}), other)
    assert {path.name for path in artifacts.leftovers(study)} - beside == {
        f"{name}.{end}" for name in study.timed for end in ("parquet", "csv")}  # fmt: skip
    (folder / TRACE).with_name("timing.parquet").write_bytes(b"damaged")
    assert {path.name for path in artifacts.leftovers(study)} >= beside


@pytest.mark.long
def test_results_go_to_a_remote_and_come_back(tmp_path):
    """Made, pushed, cloned, pulled, edited, made again; then the older results again; then another scale."""
    first = with_dvc(tmp_path / "first", one={}, two={})
    assert "the results are not all made: run `make` first" in call(first, "make", "push", code=2)
    call(first, "snakemake", "--cores", "1")
    assert "files pushed" in call(first, "make", "push")
    committed(first, "made")
    assert call(first, "dvc", "status").strip().endswith("up to date.")

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(first), str(clone))
    (clone / ".venv").mkdir()
    (clone / ".venv/installed").touch()
    said = call(clone, "make", "pull")
    assert "one: as dvc.lock records it" in said
    assert (clone / "report.html").is_file()
    assert plan(clone) == {}
    assert call(clone, "dvc", "status").strip().endswith("up to date.")
    older = (clone / TRACE).read_bytes()
    assert older == (first / TRACE).read_bytes()

    write(clone, "one", **EDITED)
    assert {rule for rule in plan(clone) if "two" in rule} == set()
    assert plan(clone)["run"] == 1
    said = call(clone, "dvc", "repro", LOWVAR_CORES="1")
    assert set(re.findall(r"Running stage '(.*)'", said)) == {"needs", "runs@one", "results@one", "report"}
    assert plan(clone) == {}
    committed(clone, "edited")
    assert (clone / TRACE).read_bytes() != older
    timing = (clone / TRACE).with_name("timing.parquet")
    assert timing.is_file()

    git(clone, "checkout", "-q", "HEAD~1")
    said = call(clone, "make", "checkout")
    assert "files of other results removed" in said
    assert (clone / TRACE).read_bytes() == older
    assert not timing.exists()
    assert plan(clone) == {}
    assert call(clone, "dvc", "status").strip().endswith("up to date.")

    call(clone, "dvc", "exp", "run", "-S", "scale=quick", LOWVAR_CORES="1")
    assert (clone / "results/quick/one/metrics.json").is_file()
    assert plan(clone) == {}
