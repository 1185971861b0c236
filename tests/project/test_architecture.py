"""Data flows one way: a room imports only from rooms above it, and heavy libraries stay where they belong."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SRC = Path(__file__).parents[2] / "src"
LIBRARY = SRC / "lowvar"
DOORS = {"vi", "integrals", "search"}
# of a NumPyro model with a plate
FIT = """
import numpyro, numpyro.distributions as dist

def model(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(x), subsample_size=10) as index:
        numpyro.sample("y", dist.Normal(x[index] @ w, 1.0), obs=y[index])

x = np.random.default_rng(0).normal(size=(60, 2))
"""


@functools.cache
def imports(path):
    """The modules, and perhaps names in them, that a file imports, wherever in it: ``lowvar.vi.fit.Fit``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def rooms(path):
    """The parts of the library that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("lowvar.")}


def test_the_library_never_imports_the_laboratory():
    for path in LIBRARY.rglob("*.py"):
        assert not any(name.split(".")[0] == "lowvar_studies" for name in imports(path)), path


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_door_imports_no_other(door):
    for path in (LIBRARY / door).rglob("*.py"):
        of_models = {"vi"} if door == "integrals" and path.name.startswith("scores") else set()
        assert not rooms(path) & (DOORS - {door} - of_models), path


def test_the_core_imports_no_door():
    for path in [LIBRARY / "errors.py", LIBRARY / "registry.py", *(LIBRARY / "core").rglob("*.py")]:
        assert not rooms(path) & DOORS, path


def test_the_tests_see_imports():
    assert {"core", "errors"} <= rooms(LIBRARY / "vi" / "descent.py") | rooms(LIBRARY / "vi" / "fit.py")
    assert "lowvar_studies.jobs.common_spec.Cost" in imports(SRC / "lowvar_studies" / "jobs" / "study.py")
    assert "vi" in rooms(LIBRARY / "integrals" / "scores.py")


# In a process of its own: files of ours with a function that a call enters, but for those that run while a module is
# imported. {setup} and {call} are Python.
ENTERED = """
import sys

import lowvar, numpy as np
{setup}
files = set()

def entered(frame, event, argument):
    file = frame.f_code.co_filename
    if event != "call" or "/src/lowvar/" not in file or file in files:
        return
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None:
        files.add(file)

sys.setprofile(entered)
{call}
sys.setprofile(None)
print(len(files), "jax" in sys.modules, *sorted(files))
"""


@pytest.mark.parametrize(
    ("most", "jax", "setup", "call"),
    [
        (
            6,
            False,
            "integrate, x = lowvar.integrate, np.random.default_rng(0).normal(size=(4000, 2))",
            "integrate(x, -x, x[:, 0] ** 2, method='monte_carlo')",
        ),
        (25, True, FIT, "lowvar.fit(model, {'x': x, 'y': x[:, 0]}, num_steps=30, progress=False)"),
    ],
    ids=["integrate", "fit"],
)
def test_a_call_enters_few_files(most, jax, setup, call):
    code = [sys.executable, "-W", "ignore", "-c", ENTERED.format(setup=setup, call=call)]
    number, loaded, *files = subprocess.run(code, capture_output=True, text=True, check=True).stdout.split()
    assert int(number) <= most, files
    assert loaded == str(jax)


def test_dvc_knows_the_code_of_runs():
    """The laboratory's code that a run calls, besides declarations, must rerun it after an edit."""
    stages = yaml.safe_load((SRC.parent / "dvc.yaml").read_text())["stages"]
    listed = {SRC.parent / one for one in stages["runs"]["do"]["deps"] if one.startswith("src/lowvar_studies/")}
    declarations = {"declarations", "common_spec", "common_files", "effect"}
    declarations |= {"spec", "files", "figures", "effects", "experiment"}
    declarations |= {"convergence", "times", "diagnostics", "selection", "variances"}  # tables
    declarations |= {"errors", "illustrations", "progress", "rates", "rows", "summary"}
    needed = set()
    for file in listed:
        for name in imports(file) if file.suffix else ():
            path = SRC.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith(("lowvar_studies.jobs.", "lowvar_studies.reports.")) and path.is_file():
                needed.add(path)
    needed = {path for path in needed if path.stem not in declarations}
    assert {"engine", "gathering", "trials"} <= {path.stem for path in needed}
    assert needed <= listed
    for room in ("core", "vi", "integrals", "search"):
        assert f"src/lowvar/{room}" in stages["runs"]["do"]["deps"]


def test_no_code_asks_for_the_name_of_a_backend():
    """What differs is carried by ``Backend``; a method that runs on one of them refuses the other."""
    refusals = {"evosax.py", "saved.py"}
    asks = {
        path.name
        for path in SRC.rglob("*.py")
        if "backend.name" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("backend.name")
    }
    assert asks <= refusals


def test_no_two_tests_draw_from_one_generator():
    """Which would make their numbers depend on the order of the tests: see the fixture `rng`."""
    shared = []
    for path in Path(__file__).parents[1].rglob("*.py"):
        tree = ast.parse(text := path.read_text())
        made = {
            target.id for node in tree.body if isinstance(node, ast.Assign) and _makes_a_generator(node.value)
            for target in node.targets if isinstance(target, ast.Name)
        } | {"RNG"}  # also where it is imported  # fmt: skip
        if not any(name in text for name in made):
            continue
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        names = {node.id for function in functions for node in ast.walk(function) if isinstance(node, ast.Name)}
        shared += [f"{path.name}: {name}" for name in sorted(names & made)]
    assert not shared


def _makes_a_generator(node):
    """``default_rng(0)`` and ``Generator().manual_seed(0)``, but not numbers drawn from them at once."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("default_rng", "Generator().manual_seed"))


def test_the_makefile_names_files_that_exist():
    """pytest ends at once where a path that it is given is gone."""
    text = (SRC.parent / "Makefile").read_text()
    folders = re.findall(r"\$\(addprefix (tests\S*), ([^)]*)\)", text)
    names = [f"{folder}{name}" for folder, group in folders for name in group.split()]
    names += re.findall(r"tests/\S+\.py", re.sub(r"\$\(addprefix[^)]*\)", "", text))
    assert len(names) > 20
    assert not [name for name in names if not (SRC.parent / name).exists()]
