"""A package of somebody else's: installed, held against the contract, and run beside lowvar's own."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

EXPERIMENT = """
name: mine
title: A damped control variate beside the naive estimator
problems:
  cancer: {model: logistic_regression, dataset: breast_cancer, scaling: minmax}
methods:
  naive:
  %s
solver: {step_sizes: [1.0e-3], batch_size: 100, epochs: 2}
decomposition: {leader: naive, step_size: 1.0e-3, epochs: 2, points_along: 1, replicates: 4, columns: 2, rows: 32}
"""


@pytest.fixture(scope="module")
def run(repository_root, tmp_path_factory):
    """Runs a command where the example is installed, in a folder outside of the repository."""
    home = tmp_path_factory.mktemp("stranger")
    installed, source = home / "site", repository_root / "examples" / "lowvar_example"
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        pip = ["uv", "pip"]
    done = subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(installed), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    paths = [str(installed), str(repository_root / "src")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}

    def call(*command, fails=False, cwd=home):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    call.home, call.source = home, source
    return call


@pytest.fixture(scope="module")
def repository_root():
    return Path(__file__).parents[2]


@pytest.mark.parametrize("which", ["signature or epoch", pytest.param("", marks=pytest.mark.long)])
def test_it_passes_the_contract_tests(run, which):
    """All of them in ``make test-long``; lowvar's own control variates pass them in ``make test``."""
    said = run("pytest", "-q", "-p", "no:cacheprovider", "-k", which, str(run.source / "test_lowvar_example.py"))
    assert " passed" in said
    assert "failed" not in said


def test_it_is_listed(run):
    assert "damped_cv" in run("lowvar.cli", "list", "estimators")


@pytest.mark.long
@pytest.mark.parametrize("way", ["entry point", "module:function"])
def test_it_stands_in_tables_and_figures(run, way, tmp_path):
    """With no edit of lowvar, in an experiment file that lies anywhere.

    In ``make test``, ``test_open.py`` has the hash of an experiment with ``module:function``, and ``test_docs.py`` runs
    one to its tables and figures with the estimator that the documentation registers; neither has a package's.
    """
    file, results = tmp_path / "mine.yaml", tmp_path / "results" / "smoke" / "mine"
    if way == "entry point":
        file.write_text(EXPERIMENT % "damped_cv: {options: {coefficient: 0.5}}")
    else:  # the module lies beside the experiment's file
        (tmp_path / "own_cv.py").write_text((run.source / "lowvar_example.py").read_text())
        file.write_text(EXPERIMENT % "damped_cv: {estimator: 'own_cv:damped_cv'}")
    scale = "mine.yaml", "--scale", "smoke"
    commands = [
        ("prepare", "breast_cancer", "--scaling", "minmax", "--raw", "data/raw", "--out",
         "data/prepared/breast_cancer-minmax.npz"),
        *(("run", *scale, "--problem", "cancer", "--method", method) for method in ("naive", "damped_cv")),
        ("decompose", *scale, "--problem", "cancer"),
        ("table", *scale),
        ("figure", "convergence", *scale),
        ("figure", "shares", *scale),
    ]  # fmt: skip
    file_of_commands = tmp_path / "commands.py"
    file_of_commands.write_text(
        f"from lowvar.cli import main\nfor one in {commands}:\n    assert not main(list(one)), one"
    )
    run("commands", cwd=tmp_path)
    for name in ("convergence", "decomposition"):
        assert set(pd.read_parquet(results / "tables" / f"{name}.parquet")["method"]) == {"naive", "damped_cv"}
    for name in ("convergence", "shares"):
        assert (results / "figures" / f"{name}.png").stat().st_size > 1000
        assert "damped" in (results / "figures" / f"{name}.csv").read_text()
    if way == "module:function":  # an edit of the source makes what was run with it stale
        module = tmp_path / "own_cv.py"
        module.write_text(module.read_text().replace("float = 0.5", "float = 0.7"))
        assert "lowvar run" in run("lowvar.cli", "table", *scale, fails=True, cwd=tmp_path)


def test_options_are_checked_when_the_file_is_read(run, tmp_path):
    (tmp_path / "mine.yaml").write_text(EXPERIMENT % "damped_cv: {options: {coeficient: 0.5}}")
    said = run("lowvar.cli", "run", str(tmp_path / "mine.yaml"), "--scale", "smoke", "--problem", "cancer", "--method",
               "naive", fails=True)  # fmt: skip
    assert "mine.yaml: methods.damped_cv.options: damped_cv: unknown option 'coeficient': did you mean" in said
