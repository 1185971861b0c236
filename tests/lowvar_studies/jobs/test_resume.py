"""A run that is killed and resumed ends with the same bytes as one that was not; stale files are refused."""

import json
import os
import time

import commands
import numpy as np
import pandas as pd
import pytest
import yaml
from stopped import GRADIENTS

from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar_studies.datasets.prepare import prepare

EXPERIMENT = {**GRADIENTS, "name": "small", "title": "small",
              "scales": {"quick": {"solver": {"epochs": 300}}, "smoke": {"solver": {"epochs": 12}}}}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    (folder / "small.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    prepare("breast_cancer", out=folder / "bc.npz")
    return folder


def words(place, out, *more, scale="quick", method="joint", backend="jax"):
    return ["run", str(place / "small.yaml"), "--scale", scale, "--problem", "bc", "--method", method, "--backend", backend,
            "--data", str(place / "bc.npz"), "--out", str(out), *more]  # fmt: skip


def run(place, out, *more, **options):
    """To its end, in a process of its own."""
    done = commands.lowvar(place, *words(place, out, *more, **options))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_checkpoint_in_a_folder_that_outlives_the_results(place, tmp_path):
    """As on a machine whose disk is lost with it: the run goes on elsewhere, from the checkpoint alone.

    It ends with the bytes of a run that was not killed.
    """
    lost, kept, out = tmp_path / "lost", tmp_path / "kept", tmp_path / "out"
    more = "--checkpoints", str(kept)
    process = commands.started(place, *words(place, lost, *more, "--checkpoint-every", "0", method="naive"))
    while process.is_alive() and not (kept / "checkpoint.npz").exists():
        time.sleep(0.02)
    process.kill()
    process.join()
    assert not (lost / "trace.parquet").exists(), "the run ended before the kill: the test shows little"
    laps = artifact.read_arrays(kept / "checkpoint.npz")[0]["laps"]
    run(place, out, *more, method="naive")
    run(place, tmp_path / "whole", method="naive")
    for result in ("trace.parquet", "params.npz"):
        assert (out / result).read_bytes() == (tmp_path / "whole" / result).read_bytes(), result
    assert list(kept.iterdir()) == []
    timing = artifact.read_table(out / "timing.parquet")
    assert len(laps) > 0
    assert list(timing["seconds"])[: len(laps)] == list(laps)  # wall times of the killed process


def test_a_checkpoint_of_another_spec_is_not_used(place, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    run(place, out, scale="smoke", method="naive")
    mark = json.loads((out / "provenance.json").read_text())["stamp"]
    first = (out / "trace.parquet").read_bytes()
    mark["place"] = artifact.verified(out / "trace.parquet")["place"].replace("trace.parquet", "checkpoint.npz")
    # the right spec and data, but a state of another layout, as another version may have written it
    artifact.write_arrays(out / "checkpoint.npz", {"done": np.array(7), "leaf0": np.ones(3)}, mark)
    (out / ".checkpoint.npz.tmp-left").write_text("half")
    run(place, out, scale="smoke", method="naive")
    trace = artifact.read_table(out / "trace.parquet")
    assert trace["epoch"].max() == 12
    assert (out / "trace.parquet").read_bytes() == first
    assert sorted(p.name for p in out.iterdir()) == ["params.npz", "provenance.json", "timing.parquet", "trace.parquet"]


def test_a_damaged_checkpoint_is_put_aside_and_the_run_starts_again(tmp_path):
    path, mark = tmp_path / "checkpoint.npz", {"spec": "1", "inputs": {}}
    artifact.write_arrays(path, {"done": np.array(7)}, mark)
    assert artifact.read_checkpoint(path, mark)["done"] == 7
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"checkpoint\.npz: .*damaged"):
        assert artifact.read_checkpoint(path, mark) is None
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint.npz.damaged"]
    assert artifact.read_checkpoint(path, mark) is None


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that cannot be read by anybody")
def test_a_checkpoint_that_cannot_be_read_now_stays(tmp_path):
    """A disk or a server may fail for a moment: it must not cost what has been computed."""
    path = tmp_path / "checkpoint.npz"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(UserError, match=r"checkpoint\.npz: cannot be read"):
        artifact.read_checkpoint(path, {"spec": "1", "inputs": {}})
    assert path.is_symlink()


@pytest.mark.parametrize("other", [{"spec": "new"}, {"inputs": {"d": "2"}}])
def test_stale_artifacts_are_refused(tmp_path, other):
    """With the command that makes them anew."""
    mark = {"spec": "old", "inputs": {"d": "1"}}
    artifact.write_table(tmp_path / "t.parquet", pd.DataFrame({"a": [1]}), mark)
    artifact.write_arrays(tmp_path / "t.npz", {"a": np.ones(2)}, mark)
    for name, read in (("t.parquet", artifact.read_table), ("t.npz", artifact.read_arrays)):
        read(tmp_path / name, expect=mark)
        with pytest.raises(UserError, match=r"stale.*make it with: lowvar run x"):
            read(tmp_path / name, expect=mark | other, rebuild="lowvar run x")
