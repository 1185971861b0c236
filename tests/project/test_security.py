"""docs/security.md: files that are data run nothing."""

import io
import zipfile

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
