"""Data flows one way: a room imports only from rooms above it, and heavy libraries stay where they belong."""

import ast
from pathlib import Path

import pytest
import yaml

ROOMS = ["datasets", "problems", "noise", "estimators", "solvers", "runs", "analysis", "studies"]
SHARED = {"errors", "files", "npz", "registry", "backends"}
PACKAGE = Path(__file__).parents[1] / "src" / "lowvar"


def imports(path):
    """The parts of lowvar that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "lowvar" else [f"lowvar.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("lowvar."))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_rooms_above(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1]) | SHARED
    for path in (PACKAGE / room).rglob("*.py"):
        assert set(imports(path)) <= allowed, path


def test_dvc_knows_the_code_of_runs():
    """What engines and families import of studies, besides declarations, makes a run: an edit must rerun it."""
    stages = yaml.safe_load((PACKAGE.parents[1] / "dvc.yaml").read_text())["stages"]
    listed = {Path(one) for one in stages["runs"]["do"]["deps"] if one.startswith("src/lowvar/studies")}
    declarations = {"declarations", "common_spec", "common_files", "effect"}
    declarations |= {"spec", "files", "figures", "effects", "experiment"}
    declarations |= {"convergence", "times", "diagnostics", "selection", "variances"}  # tables
    declarations |= {"errors", "illustrations", "progress", "rates", "summary"}
    needed = set()
    for file in listed:
        for name in studies_of(PACKAGE.parents[1] / file):
            if name.rpartition(".")[2] not in declarations:
                needed.add(Path("src", *name.split(".")).with_suffix(".py"))
    assert {Path("src/lowvar/studies/variational") / f"{one}.py" for one in ("pilot", "engine")} <= needed
    assert needed <= listed


def studies_of(path):
    """The modules of families that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lowvar.studies."):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (one for one in names if PACKAGE.parent.joinpath(*one.split(".")).with_suffix(".py").is_file())


def test_shared_modules_import_no_room():
    for path in [
        PACKAGE / "errors.py",
        PACKAGE / "files.py",
        PACKAGE / "registry.py",
        *(PACKAGE / "backends").rglob("*.py"),
    ]:
        assert set(imports(path)) <= SHARED, path


def test_no_code_asks_for_the_name_of_a_backend():
    """What differs is carried by ``Backend``; a method that runs on one of them refuses the other."""
    refusals = {"evosax_solver.py", "saved.py"}
    asks = {
        path.name
        for path in PACKAGE.rglob("*.py")
        if "backend.name" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("backend.name")
    }
    assert asks <= refusals


def test_the_test_sees_imports():
    assert "estimators" in set(imports(PACKAGE / "api" / "settings.py"))
    assert {"errors", "noise"} <= set(imports(PACKAGE / "solvers" / "descent.py"))


def test_no_two_tests_draw_from_one_generator():
    """Which would make their numbers depend on the order of the tests: see the fixture `rng`."""
    shared = []
    for path in Path(__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        made = {
            target.id for node in tree.body if isinstance(node, ast.Assign) and _makes_a_generator(node.value)
            for target in node.targets if isinstance(target, ast.Name)
        } | {"RNG"}  # also where it is imported  # fmt: skip
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        names = {node.id for function in functions for node in ast.walk(function) if isinstance(node, ast.Name)}
        shared += [f"{path.name}: {name}" for name in sorted(names & made)]
    assert not shared


def _makes_a_generator(node):
    """``default_rng(0)`` and ``Generator().manual_seed(0)``, but not numbers drawn from them at once."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("default_rng", "Generator().manual_seed"))
