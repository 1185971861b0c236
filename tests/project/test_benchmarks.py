"""Every benchmark runs, at its smallest size, as a user runs it; the numbers that it then prints mean nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
BENCHMARKS = sorted(path.name for path in (REPOSITORY / "benchmarks").glob("*.py") if path.name != "common.py")


def test_there_are_benchmarks():
    assert {
        "answer.py",
        "steps.py",
        "fits.py",
        "decompose.py",
        "search.py",
        "integrals.py",
        "posteriors.py",
        "thirty.py",
        "trust.py",
    } <= set(BENCHMARKS)
    for name in BENCHMARKS:  # each is on the list of benchmarks/README.md
        assert f"`{name}" in (REPOSITORY / "benchmarks/README.md").read_text("utf-8")


@pytest.mark.long
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_runs(name, tmp_path):
    for needed in ("pyro", "torch", "cma", "cmaes", "evosax", "pymoo"):
        pytest.importorskip(needed)
    out = tmp_path / "found" / "result.json"
    command = [sys.executable, f"benchmarks/{name}", "--smallest", "--out", str(out)]
    # most of the time goes into compiling programs that run for a moment
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.count("\n") > 3
    found = json.loads(out.read_text())
    assert isinstance(found, dict)
    assert found
    for case in found.get("cases", ()):
        assert case.get("numbers") or case["verdict"], case
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found"]
