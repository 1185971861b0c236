"""Damaged artifacts are refused in one sentence, whatever byte has changed: none is believed."""

import json
import os
import sys

import numpy as np
import pandas as pd
import pytest

from lowvar.core import artifact, npz
from lowvar.errors import UserError
from lowvar_studies.datasets.load import load

MARK = {"spec": "0123456789abcdef", "inputs": {"sonar": "f" * 64}, "versions": {"lowvar": "0.1.0"}}


def table(path):
    rng = np.random.default_rng(0)
    content = {
        "iteration": np.tile(np.arange(60) * 114, 2),
        "missing": np.where(np.arange(120) % 7, rng.normal(size=120), np.nan),
        "held_out": pd.array([None if i % 5 else i for i in range(120)], dtype="Int64"),
        "status": np.where(np.arange(120) % 11, "ok", "diverged"),
        "converged": np.arange(120) % 2 == 0,
        "names": [["mu", "log_sigma"][: i % 3] for i in range(120)],
    }
    artifact.write_table(path, pd.DataFrame(content), MARK)
    return lambda: artifact.read_table(path, expect=MARK).to_json()


def arrays(path):
    rng = np.random.default_rng(0)
    content = {"mu": rng.normal(size=(2, 5, 30)), "done": np.array(7), "empty": np.zeros((0, 3)),
               "names": np.array(["naive", "joint"])}  # fmt: skip
    artifact.write_arrays(path, content, MARK)

    def read():
        read, mark = artifact.read_arrays(path, expect=MARK)
        return [(name, read[name].dtype.str, read[name].tobytes()) for name in sorted(read)], mark

    return read


def prepared(path):
    np.savez_compressed(path, x=np.arange(300.0).reshape(100, 3), y=np.arange(100) % 2, meta=np.array('{"format": 1}'))

    def read():
        found = load(path)
        return [(name, array.tobytes()) for name, array in found.arrays.items()], found.meta

    return read


def damaged(whole: bytes, kind: str, rng) -> bytes:
    content = bytearray(whole)
    if kind == "cut":
        return bytes(content[: rng.integers(len(content))])
    if kind == "zeroed":
        start = int(rng.integers(len(content)))
        content[start : start + 64] = bytes(len(content[start : start + 64]))
    for place in rng.integers(len(content), size={"bit": 1, "bits": 8}.get(kind, 0)):
        content[place] ^= 1 << int(rng.integers(8))
    return bytes(content)


def sweep(path, read, count):
    """Reads damaged copies: how many were refused, and how many read as before (padding, say). No other error."""
    whole, before = path.read_bytes(), read()
    rng, counts = np.random.default_rng(1), {"damaged": count, "refused": 0, "as before": 0}
    messages = set()
    for i in range(count):
        path.write_bytes(damaged(whole, ("bit", "bits", "zeroed", "cut")[i % 4], rng))
        try:
            after = read()
        except UserError as error:
            messages.add(str(error))
            counts["refused"] += 1
        else:
            assert after == before, f"damaged copy {i} was believed"
            counts["as before"] += 1
    path.write_bytes(whole)
    assert counts["refused"] > 0.5 * count
    assert all(message.startswith(str(path)) and "\n" not in message for message in messages), messages
    return counts


@pytest.mark.parametrize("make", [table, arrays, prepared])
@pytest.mark.parametrize("count", [400, pytest.param(1000, marks=pytest.mark.long)])
def test_no_damaged_artifact_is_believed(tmp_path, record_property, make, count):
    path = tmp_path / ("a.parquet" if make is table else "a.npz")
    for name, value in sweep(path, make(path), count).items():
        record_property(name, value)


def test_a_stamp_that_changed_is_damage(tmp_path):
    """Also its parts that readers do not compare, such as versions."""
    import pyarrow.parquet as pq

    table(tmp_path / "a.parquet")
    arrow = pq.read_table(tmp_path / "a.parquet")
    content = arrow.schema.metadata
    changed = {**content, b"lowvar": content[b"lowvar"].replace(b"0.1.0", b"0.2.0")}
    assert changed != content
    pq.write_table(arrow.replace_schema_metadata(changed), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet: damaged"):
        artifact.read_table(tmp_path / "b.parquet")


def test_a_file_of_an_earlier_version_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", __lowvar__=np.array(json.dumps(MARK)), x=np.ones(2))
    with pytest.raises(UserError, match=r"a\.npz: without the digest .*; make it with: lowvar run"):
        artifact.read_arrays(tmp_path / "a.npz", rebuild="lowvar run")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", r"its header has shape \(1000000000"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", "its header has shape"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "holds Python objects"),
        ("{'descr': '<f8', 'fortran_order'", "array 'x'"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path, header, message):
    import struct
    import zipfile

    text = header.ljust(118).encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 8)
    with pytest.raises(npz.Damaged, match=message):
        npz.read(tmp_path / "a.npz")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_no_text(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff")
    artifact.write_table(folder / "a.parquet", pd.DataFrame({"x": [1.0]}), MARK)
    artifact.write_arrays(folder / "a.npz", {"x": np.ones(1)}, MARK)
    assert artifact.read_table(folder / "a.parquet", expect=MARK)["x"].tolist() == [1.0]
    for name in ("a.parquet", "a.npz"):
        assert artifact.read_stamp(folder / name)["spec"] == MARK["spec"]


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
