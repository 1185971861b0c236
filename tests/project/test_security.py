"""docs/security.md: files that are data run nothing."""

import ast
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from projects import LITTLE
from stopped import read_checkpoint

import lowvar
from lowvar import user
from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar_studies.datasets.load import load
from lowvar_studies.jobs.load import load_experiment
from lowvar_studies.reports import claims
from lowvar_studies.yaml_files import read_yaml


class Payload:
    """Writes the file ``ran`` when it is unpickled."""

    def __reduce__(self):
        return open, ("ran", "w")


def hostile(path):
    """An npz with an array that only pickle could read."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([Payload()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("__lowvar__", "x", "meta", "samples", "scores", "values"):
            archive.writestr(f"{name}.npy", stream.getvalue())


@pytest.mark.parametrize(
    "read",
    [
        artifact.read_arrays,
        lambda path: lowvar.load(path, lambda: None),
        load,
        user._arrays,
        lambda path: read_checkpoint(path, {}),
    ],
)
def test_an_npz_with_a_pickle(tmp_path, monkeypatch, read):
    monkeypatch.chdir(tmp_path)
    hostile(tmp_path / "a.npz")
    with pytest.raises(UserError):
        read(tmp_path / "a.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("read", [read_yaml, claims.load, lambda path: load_experiment(path, "quick")])
def test_yaml_with_an_object(tmp_path, monkeypatch, read):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("a: !!python/object/apply:open [ran, w]\n")
    with pytest.raises(UserError):
        read(tmp_path / "a.yaml")
    assert not (tmp_path / "ran").exists()


def test_an_experiment_that_names_a_function_runs_its_module(tmp_path, monkeypatch):
    """As the page says: its author is trusted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside_it.py").write_text("open('ran', 'w').close()\ndef make(*, backend, **options): ...\n")
    methods = {"mine": {"solver": "beside_it:make"}}
    (tmp_path / "little.yaml").write_text(yaml.safe_dump({"name": "little", **LITTLE, "methods": methods}))
    experiment = load_experiment(tmp_path / "little.yaml", "quick")
    from lowvar.search.solvers import SEARCH

    SEARCH.get(experiment.methods["mine"].solver)
    assert (tmp_path / "ran").exists()


READERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "torch"}  # whose load may run what it reads
# of a pickle that the user reads by pickle itself, and of what worker processes send
ALLOWED = [("lowvar/search/evaluator.py", "cloudpickle.loads"), ("lowvar/vi/saved.py", "cloudpickle.loads")]


def readers(source):
    """Calls that may run what they read."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            package, _, function = name.rpartition(".")
            if package.partition(".")[0] in READERS and function in ("load", "loads", "Unpickler", "open"):
                yield name
            if any(one.arg == "allow_pickle" and ast.unparse(one.value) != "False" for one in node.keywords):
                yield name
            if name in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "eval"):
                yield name


def test_no_other_code_reads_what_could_run():
    src = Path(lowvar.__file__).parents[1]
    found = {
        (path.relative_to(src).as_posix(), name) for path in src.rglob("*.py") for name in readers(path.read_text())
    }
    assert sorted(found) == ALLOWED


@pytest.mark.parametrize(
    "line", ["torch.load(p)", "np.load(p, allow_pickle=True)", "yaml.load(t, L)", "pickle.Unpickler(f)"]
)
def test_such_code_is_noticed(line):
    assert list(readers(line))
