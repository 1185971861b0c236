"""Many short runs on a real Slurm are few submissions, and all their results are there."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import commands
import pytest
from cluster import accounting, cpu
from projects import project
from resident import CALL

TESTS = Path(__file__).parents[1]
RUNS, GROUP, COMPARED = int(os.environ.get("RUNS", 1000)), 20, 20


@pytest.fixture
def resident(tmp_path):
    """A folder with a command `lowvar` that starts fast, on the path of jobs."""
    with tempfile.TemporaryDirectory() as place:  # the address of a socket is short
        at, environment = f"{place}/socket", {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
        process = subprocess.Popen([sys.executable, Path(__file__).with_name("resident.py"), at], env=environment)
        while not Path(at).exists():
            assert process.poll() is None
            time.sleep(0.1)
        (tmp_path / "lowvar").write_text(CALL.format(python=sys.executable, place=at))
        (tmp_path / "lowvar").chmod(0o755)
        yield tmp_path
        process.kill()
        process.wait()


@pytest.mark.slurm
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_short_runs_are_few_submissions(tmp_path_factory, resident, record_property):
    if shutil.which("sbatch") is None:
        pytest.skip("no Slurm: .ci/slurm brings one up")
    problems = {f"p{i}": {"function": "ellipsoid", "dim": 3} for i in range(RUNS // GROUP)}
    methods = {f"m{i}": {"solver": "pycma", "budget": 100 + i} for i in range(GROUP)}
    folder = project(tmp_path_factory.mktemp("many"), many={"problems": problems, "methods": methods})
    path = os.pathsep.join([str(resident), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    start = time.monotonic()
    done = subprocess.run(["snakemake", "many_runs", "--workflow-profile", "profiles/slurm", "--quiet", "all"], cwd=folder,
                          env=environment, capture_output=True, text=True)  # fmt: skip
    seconds = time.monotonic() - start
    assert done.returncode == 0, done.stderr[-4000:]
    time.sleep(3)  # for accounting
    jobs = accounting()
    runs = sorted((folder / "results/smoke/many/runs").glob("*/*/trace.parquet"))
    assert len(runs) == len(problems) * GROUP
    assert {job["State"] for job in jobs} == {"COMPLETED"}
    assert len(jobs) == len(problems)
    sample = runs[:: len(runs) // COMPARED][:COMPARED]
    for trace in sample:  # without a cluster
        problem, method = trace.parent.parent.name, trace.parent.name.removesuffix("-jax")
        done = commands.lowvar(folder, "run", "workflow/experiments/many.yaml", "--scale", "smoke", "--problem", problem,
                               "--method", method, "--out", "alone")  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (folder / "alone/trace.parquet").read_bytes() == trace.read_bytes(), trace
    for what, count in {"runs": len(runs), "submissions": len(jobs), "runs compared": len(sample), "seconds": seconds,
                        "seconds of CPU in jobs": cpu()}.items():  # fmt: skip
        record_property(what, round(count))
