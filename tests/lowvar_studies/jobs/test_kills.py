"""Jobs and workflows that are killed at random moments end with the same bytes as those that were not."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time

import commands
import pytest
import yaml
from projects import LITTLE, call, project

from lowvar.core import artifact
from lowvar_studies.datasets.prepare import prepare

DATA = {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}}
GRADIENTS = {
    "problems": DATA,
    "backends": ["jax", "torch"],
    "methods": {"joint": None, "naive": None},
    "solver": {"optimizer": "adam", "step_sizes": [1e-2, 1e-3], "batch_size": 5, "epochs": 1500, "repetitions": 2},
    "decomposition": {"leader": "joint", "step_size": 1e-3, "epochs": 10, "replicates": 64, "columns": 8,
                      "points_along": 2},
    "scales": {"smoke": {"solver": {"epochs": 60}}, "paper": {"solver": {"epochs": 300}}},
}  # fmt: skip
TUNED = {"naive": {"tune": {"step_size": {"low": 1e-4, "high": 1e-2}}}}
TUNING = {"problems": DATA, "methods": TUNED, "tuning": {"trials": 6},
          "solver": {"step_sizes": [1e-3], "batch_size": 5, "epochs": 100}}  # fmt: skip
SEARCH = {**LITTLE, "problems": {"e": {"function": "ellipsoid", "dim": 40}}, "methods": {"es": None},
          "search": {"budget": 3_000_000, "repetitions": 4}}  # fmt: skip
INTEGRAL = {"family": "integral", "problems": {"b": {"problem": "borehole", "sizes": [100, 150]}},
            "methods": {"vector_valued": None}, "estimation": {"repetitions": 60}}  # fmt: skip
RUN, BC = ("trace.parquet", "params.npz"), ["--problem", "bc", "--data", "bc.npz"]
JOBS = {  # experiment, words of the command, results, kills
    "gradient_jax": (GRADIENTS, ["run", *BC, "--method", "joint"], RUN, 10),
    "gradient_torch": (GRADIENTS, ["run", *BC, "--method", "joint", "--backend", "torch", "--scale", "smoke"], RUN, 8),
    "search": (SEARCH, ["run", "--problem", "e", "--method", "es"], RUN, 8),
    "integral": (
        INTEGRAL,
        ["run", "--problem", "b", "--method", "vector_valued", "--data", "drawn/samples.npz"],
        RUN,
        6,
    ),
    "tune": (TUNING, ["tune", *BC, "--method", "naive"], ("study.parquet",), 4),
    "decompose": (GRADIENTS, ["decompose", *BC], ("decomposition.parquet",), 3),
    "sample": (INTEGRAL, ["sample", "--problem", "b"], ("samples.npz",), 1),
}
RESUMED = ("run", "tune")


def newer(path, moment):
    try:
        return path.stat().st_mtime > moment
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    for name, (content, *_) in JOBS.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, "title": name, **content}))
    prepare("breast_cancer", out=folder / "bc.npz")
    done = commands.lowvar(folder, "sample", "integral.yaml", "--problem", "b", "--out", "drawn")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
@pytest.mark.slow
def test_a_checkpoint_in_a_folder_that_outlives_the_results(place, tmp_path):
    """As on a machine whose disk is lost with it: the run goes on elsewhere, from the checkpoint alone."""
    lost, kept, out, whole = (tmp_path / name for name in ("lost", "kept", "out", "whole"))
    words = ["run", "gradient_jax.yaml", *BC, "--method", "naive", "--scale", "paper"]
    more = "--checkpoints", kept
    process = commands.started(place, *words, "--out", lost, *more, "--checkpoint-every", "0")
    while process.is_alive() and not (kept / "checkpoint.npz").exists():
        time.sleep(0.02)
    process.kill()
    process.join()
    assert not (lost / "trace.parquet").exists(), "the run ended before the kill: the test shows little"
    laps = artifact.read_arrays(kept / "checkpoint.npz")[0]["laps"]
    for folder, options in ((out, more), (whole, ())):
        done = commands.lowvar(place, *words, "--out", folder, *options)
        assert done.returncode == 0, done.stderr
    for result in RUN:
        assert (out / result).read_bytes() == (whole / result).read_bytes(), result
    assert list(kept.iterdir()) == []
    timing = artifact.read_table(out / "timing.parquet")
    assert len(laps) > 0
    assert list(timing["seconds"])[: len(laps)] == list(laps)  # wall times of the killed process


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_kill_nine_and_resume(place, tmp_path, record_property, name):
    _, (verb, *more), results, kills = JOBS[name]
    resumes = verb in RESUMED
    words = [verb, f"{name}.yaml", *more, *(["--checkpoint-every", "0"] if resumes else [])]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = time.monotonic()
    done = commands.lowvar(place, *words, "--out", whole)
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - start
    moments, met, resumed = random.Random(7), 0, 0
    for kill in range(kills):
        process = commands.started(place, *words, "--out", killed)
        began = time.time()
        if resumes and kill % 2 == 0:  # in the middle of the work: a little after a checkpoint of this process
            while process.is_alive() and not any(newer(path, began) for path in killed.glob("checkpoint*.npz")):
                time.sleep(0.02)
            time.sleep(moments.uniform(0.0, 0.5))
        else:  # at any moment, starting up included
            time.sleep(moments.uniform(0.0, 0.95) * seconds)
        met += process.is_alive()
        process.kill()
        process.join()
        resumed += any(killed.glob("checkpoint*.npz"))
        for result in results:  # never half a file
            if (killed / result).exists():
                assert (killed / result).stat().st_size == (whole / result).stat().st_size
    done = commands.lowvar(place, *words, "--out", killed)
    assert done.returncode == 0, done.stderr
    assert not resumes or resumed >= kills // 2, f"only {resumed} of {kills} kills left a checkpoint"
    for result in results:
        assert (killed / result).read_bytes() == (whole / result).read_bytes(), result
    assert sorted(path.name for path in killed.iterdir()) == sorted(path.name for path in whole.iterdir())
    for what, count in {"kills": kills, "met a job at work": met, "left a checkpoint": resumed}.items():
        record_property(what, count)


OF_ONE_RUN = re.compile(r"timing\.parquet|provenance\.json|seconds\..*")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_killed_snakemake_goes_on_after_unlock(tmp_path, record_property):
    """Master and jobs are killed together, or the master alone: its job goes on, and the next one waits for it."""
    pytest.importorskip("snakemake")
    whole, killed = project(tmp_path / "whole", little={}), project(tmp_path / "killed", little={})
    words = ["snakemake", "--cores", "1", "--quiet"]
    start = time.monotonic()
    call(whole, *words)
    seconds = time.monotonic() - start
    kills, moments, locked = 12, random.Random(3), 0

    def locks():
        return any((killed / ".snakemake/locks").glob("*"))

    for kill in range(kills):
        process = subprocess.Popen([sys.executable, "-m", *words], cwd=killed, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        while process.poll() is None and not locks():
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.15) * seconds)
        if kill % 3 == 2:
            process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if locks():
            locked += 1
            if locked == 1:
                assert "--unlock" in call(killed, *words, code=1)
            call(killed, "snakemake", "--unlock")
    assert locked > kills // 3, f"only {locked} of {kills} kills met a locked folder: the test shows little"
    call(killed, *words)
    assert "Nothing to be done" in call(killed, "snakemake", "-n")
    files = [path.relative_to(whole) for path in (whole / "results/smoke").rglob("*") if path.is_file()]
    same = [path for path in files if not OF_ONE_RUN.fullmatch(path.name)]
    assert len(same) > 10
    for path in files:
        assert (killed / path).is_file(), path
    for path in same:
        assert (killed / path).read_bytes() == (whole / path).read_bytes(), path
    for what, count in {"kills": kills, "left a lock": locked, "files compared": len(same)}.items():
        record_property(what, count)
