"""Whatever differs from the content that was written, a reader refuses: each part of a digest and of a stamp counts."""

import numpy as np
import pandas as pd
import pytest

from lowvar.core import artifact
from lowvar.errors import UserError

MARK = {"spec": "a1", "inputs": {"data": "b2"}, "versions": {"lowvar": "0.1.0"}}
ARRAYS = {"x": np.arange(6.0).reshape(2, 3), "n": np.arange(3)}
CHANGED = {
    "value": {"x": ARRAYS["x"] + 1e-9},
    "shape": {"x": ARRAYS["x"].reshape(3, 2)},
    "type": {"n": ARRAYS["n"].astype(np.uint64)},
    "name": {"n": None, "m": ARRAYS["n"]},
    "more": {"y": np.zeros(1)},
}


@pytest.mark.parametrize("change", CHANGED)
def test_arrays(change, tmp_path):
    artifact.write_arrays(tmp_path / "a.npz", ARRAYS, MARK)
    with np.load(tmp_path / "a.npz") as whole:
        other = {name: one for name, one in ({**whole} | CHANGED[change]).items() if one is not None}
    np.savez(tmp_path / "b.npz", **other)
    with pytest.raises(UserError, match=r"b\.npz"):
        artifact.read_arrays(tmp_path / "b.npz")
    read, _ = artifact.read_arrays(tmp_path / "a.npz")
    assert {name: one.tolist() for name, one in read.items()} == {name: one.tolist() for name, one in ARRAYS.items()}


@pytest.mark.parametrize("change", [{"v": [0.0, 1.5]}, {"v": [None, 1.0]}, {"n": [1, 3]}, {"s": ["a", "c"]}])
def test_tables(change, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = {"v": [0.0, 1.0], "n": [1, 2], "s": ["a", "b"]}
    artifact.write_table(tmp_path / "a.parquet", pd.DataFrame(content), MARK)
    arrow = pq.read_table(tmp_path / "a.parquet")
    other = pa.table({**content, **change}, schema=arrow.schema.remove_metadata())
    pq.write_table(other.replace_schema_metadata(arrow.schema.metadata), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet"):
        artifact.read_table(tmp_path / "b.parquet")
    pd.testing.assert_frame_equal(artifact.read_table(tmp_path / "a.parquet"), pd.DataFrame(content))


def test_stamps(tmp_path):
    artifact.write_arrays(tmp_path / "a.npz", ARRAYS, MARK)
    artifact.read_arrays(tmp_path / "a.npz", expect=MARK)
    for other in ({"spec": "a2"}, {"inputs": {"data": "b3"}}):
        with pytest.raises(UserError, match="stale"):
            artifact.read_arrays(tmp_path / "a.npz", expect=MARK | other)
    with np.load(tmp_path / "a.npz") as whole:
        forged = {**whole, "__lowvar__": np.array(str(whole["__lowvar__"]).replace("b2", "b3"))}
    np.savez(tmp_path / "b.npz", **forged)
    with pytest.raises(UserError, match="damaged"):
        artifact.read_arrays(tmp_path / "b.npz")


@pytest.mark.parametrize("other", [{"spec": "a2"}, {"inputs": {}}, {"versions": {"lowvar": "0.2.0"}}])
def test_a_checkpoint_of_another_run_is_no_start(other, tmp_path):
    path = tmp_path / "checkpoint.npz"
    artifact.write_arrays(path, ARRAYS, MARK)
    assert artifact.read_checkpoint(path, MARK).keys() == ARRAYS.keys()
    assert artifact.read_checkpoint(path, MARK | other) is None
