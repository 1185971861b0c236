"""Damaged, stale and unreadable artifacts are refused in one sentence: none is believed.

Bytes that changed: test_fuzz.py.
"""

import json
import os
import sys

import numpy as np
import pandas as pd
import pytest

from lowvar.core import artifact, npz
from lowvar.errors import UserError

MARK = {"spec": "0123456789abcdef", "inputs": {"sonar": "f" * 64}, "versions": {"lowvar": "0.1.0"}}


def test_a_file_of_an_earlier_version_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", __lowvar__=np.array(json.dumps(MARK)), x=np.ones(2))
    with pytest.raises(UserError, match=r"a\.npz: without the digest .*; make it with: lowvar run"):
        artifact.read_arrays(tmp_path / "a.npz", rebuild="lowvar run")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f8', 'fortran_order'",
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path, header):
    import struct
    import zipfile

    text = header.ljust(118).encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 8)
    with pytest.raises(npz.DamagedFile, match="array 'x'"):
        npz.read(tmp_path / "a.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_no_text(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    artifact.write_table(folder / "a.parquet", pd.DataFrame({"x": [1.0]}), MARK)
    artifact.write_arrays(folder / "a.npz", {"x": np.ones(1)}, MARK)
    assert artifact.read_table(folder / "a.parquet", expect=MARK)["x"].tolist() == [1.0]
    assert artifact.read_arrays(folder / "a.npz", expect=MARK)[1]["spec"] == MARK["spec"]


# --- stale files, and checkpoints


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
