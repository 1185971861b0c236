"""Without a shared folder: jobs find what they declare, and nothing else."""

import importlib.util
import itertools
import re
import shlex
import shutil
from pathlib import Path

import commands
import pytest
from projects import call, project

from lowvar.core import artifact
from lowvar_studies.datasets.prepare import prepare

pytest.importorskip("snakemake")
STORED = pytest.mark.skipif(
    importlib.util.find_spec("snakemake_storage_plugin_fs") is None or shutil.which("rsync") is None,
    reason="needs snakemake-storage-plugin-fs and rsync",
)
GRADIENTS = {
    "family": "variational",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": {"tune": {"step_size": {"low": 1e-4, "high": 1e-2}}}, "joint": None},
    "tuning": {"trials": 2},
    "solver": {"step_sizes": [1e-3], "batch_size": 50, "epochs": 2, "elbo_samples": 2},
    "decomposition": {"leader": "naive", "step_size": 1e-3, "epochs": 1, "points_along": 1, "replicates": 4, "columns": 2},
}  # fmt: skip
POINTS = {"family": "integral", "problems": {"evidence": {"problem": "van_der_pol", "sizes": [10]}},
          "methods": {"monte_carlo": None}, "estimation": {"repetitions": 2}, "draw": ["errors"]}  # fmt: skip
LONG = {"problems": {"ellipsoid": {"function": "ellipsoid", "dim": 40}}, "methods": {"es": None},
        "search": {"budget": 16_000_000, "repetitions": 10}}  # fmt: skip
CLAIM = """
- id: lower
  statement: joint has a lower gradient variance than naive
  source: ours
  test: {effect: variance_ratio, problem: bc, method: joint, others: [naive], below: 1}
"""
OF_ONE_RUN = ("timing.parquet", "provenance.json")
PLUGINS = Path(__file__).parents[1] / "plugins"


def stored(store, *more):
    return [*more, "--default-storage-provider", "fs", "--default-storage-prefix", str(store)]


def told(folder, *words):
    """The commands of a dry run's jobs, in words."""
    done = commands.snakemake(folder, "-n", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        shlex.split(line) for line in re.findall(r"^Shell command: (lowvar .*) > ", done.stdout + done.stderr, re.M)
    ]


@STORED
def test_a_job_is_told_where_its_files_are(tmp_path):
    folder, store = project(tmp_path / "project", points=POINTS), tmp_path / "store"
    jobs = told(folder, *stored(store))
    assert {words[1] for words in jobs} == {"prepare", "sample", "run", "table", "figure", "claims"}
    copies = f".snakemake/storage/fs{store}/"
    for words in jobs:
        options = dict(itertools.pairwise(words))
        files = {name: options[name] for name in ("--data", "--out", "--results", "--prepared") if name in options}
        assert files
        assert all(path.startswith(copies) for path in files.values()), words
        if words[1] == "run":
            assert options["--checkpoints"] == f"{store}/results/smoke/points/runs/evidence/monte_carlo-torch"
            assert options["--prepared"].endswith("data/prepared/van_der_pol-none.npz")


def test_a_folder_for_checkpoints(tmp_path):
    """It is named in params.yaml; only jobs that resume are told."""
    folder = project(tmp_path, points=POINTS)
    jobs = told(folder, "--config", "checkpoints=/mnt/my folder")
    assert {words[1] for words in jobs if "--checkpoints" in words} == {"run"}
    run = next(words for words in jobs if words[1] == "run")
    where = run[run.index("--checkpoints") + 1]
    assert where == "/mnt/my folder/results/smoke/points/runs/evidence/monte_carlo-torch"


@pytest.mark.long
def test_samples_and_the_data_behind_them_may_be_anywhere(tmp_path):
    """The samples of a problem with data are checked against the data, wherever they are."""
    folder = project(tmp_path / "project", points=POINTS)
    data = prepare("van_der_pol", scaling="none", out=tmp_path / "elsewhere/observed.npz")
    experiment = ["workflow/experiments/points.yaml", "--scale", "smoke", "--problem", "evidence"]
    samples = tmp_path / "drawn/samples.npz"
    run = ["run", *experiment, "--method", "monte_carlo", "--data", samples, "--prepared", data]
    for words in (["sample", *experiment, "--data", data, "--out", samples.parent], [*run, "--out", tmp_path / "run"]):
        done = commands.lowvar(folder, *words)
        assert done.returncode == 0, done.stderr
    other = tmp_path / "elsewhere/other.npz"
    other.write_bytes(data.read_bytes() + b"more")
    done = commands.lowvar(folder, *run[:-1], other, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert re.match(r"lowvar: .*samples.npz: stale, it was made from other input data", done.stderr)


@STORED
@pytest.mark.long
@pytest.mark.timeout(1800)  # about 20 jobs, each of which starts Snakemake three times
def test_every_kind_of_job_runs_apart_and_a_killed_one_resumes(tmp_path):
    """Each job in an empty folder of its own; all bytes as on one machine; a retry goes on from its checkpoint."""
    folder, store = project(tmp_path / "project", gradients=GRADIENTS, points=POINTS, long=LONG), tmp_path / "store"
    (folder / "workflow/claims/gradients.yaml").write_text(CLAIM)
    call(folder, "git", "add", "-A")
    results = Path("results/smoke/gradients")
    targets = [*map(str, (results / "claims.csv", results / "tables/seconds.csv", results / "figures/shares.svg")),
               "points", "long_runs"]  # fmt: skip
    checkpoint = store / "results/smoke/long/runs/ellipsoid/es-jax/checkpoint.npz"
    apart = ["--executor", "apart", "--jobs", "1", "--seconds-between-status-checks", "1", "--retries", "1"]
    said = call(folder, "snakemake", *targets, *stored(store, *apart), path=[PLUGINS], APART_KILL=str(checkpoint),
                XLA_FLAGS="")  # fmt: skip
    assert said.count("Trying to restart job") == 1, said
    assert not (folder / "results/smoke").exists()

    laps = artifact.read_arrays(f"{checkpoint}.seen")[0]["laps"]
    timing = artifact.read_table(checkpoint.with_name("timing.parquet"))
    assert len(laps) > 0
    assert list(timing["seconds"])[: len(laps)] == list(laps)  # wall times of the killed job
    assert not checkpoint.exists()

    again = call(folder, "snakemake", *targets, "-n", *stored(store, *apart), path=[PLUGINS])
    assert "Nothing to be done" in again
    call(folder, "snakemake", *targets, "--cores", "1", XLA_FLAGS="")
    made = [path.relative_to(folder) for path in (folder / "results/smoke").rglob("*") if path.is_file()]
    assert len(made) > 30
    for path in made:
        assert (store / path).is_file(), path
        if path.name not in OF_ONE_RUN and not path.name.startswith("seconds."):
            assert (store / path).read_bytes() == (folder / path).read_bytes(), path
