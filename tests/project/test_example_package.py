"""A package of somebody else's: installed, held against the contract, and listed beside lowvar's own."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
from projects import call


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a command where the example is installed, in a folder outside of the repository."""
    root, home = Path(__file__).parents[2], tmp_path_factory.mktemp("stranger")
    installed, source = home / "site", root / "examples" / "lowvar_example"
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        pip = ["uv", "pip"]
    done = subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(installed), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    paths = [installed, root / "src"]
    run = functools.partial(call, home, sys.executable, "-m", path=paths, JAX_PLATFORMS="cpu")
    run.source = source
    return run


@pytest.mark.parametrize("which", ["signature or epoch", pytest.param("", marks=pytest.mark.long)])
def test_it_passes_the_contract_tests(run, which):
    """All of them in ``make test-long``; lowvar's own control variates pass them in ``make test``."""
    said = run("pytest", "-q", "-p", "no:cacheprovider", "-k", which, str(run.source / "test_lowvar_example.py"))
    assert " passed" in said
    assert "failed" not in said


def test_it_is_listed(run):
    assert "damped_cv" in run("lowvar.cli", "list", "estimators")
