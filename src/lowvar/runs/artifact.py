"""Result files stamped with their provenance, and readers that reject stale ones.

Every parquet and npz carries a JSON stamp: the hash of the job's spec, the SHA-256 of its input data, and the
versions of the relevant packages. A reader states which spec and data it expects.
"""

import contextlib
import importlib.metadata
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.files import atomic, write_text

PACKAGES = ("lowvar", "jax", "jaxlib", "numpy", "numpyro", "optax", "torch")
_INSTALLED_AS = {"cocoex": "coco-experiment"}  # packages imported under another name


def stamp(spec_hash: str, inputs: Mapping[str, str], packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """The stamp that an artifact carries.

    Args:
        spec_hash: hash of the job's spec.
        inputs: SHA-256 of each input, by a name that does not depend on its location.
        packages: packages whose versions are recorded, by the name under which they are imported or installed.
    """
    versions = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(_INSTALLED_AS.get(name, name))
    return {"spec": spec_hash, "inputs": dict(inputs), "versions": versions}


def write_table(path: str | Path, table, mark: Mapping[str, Any]) -> None:
    """Writes a pandas table as parquet with the stamp ``mark``; equal content gives equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata({"lowvar": json.dumps(mark, sort_keys=True)})
    with atomic(path) as part:
        pq.write_table(arrow, part, compression="zstd")


def read_table(path: str | Path, *, expect: Mapping[str, Any] | None = None, rebuild: str = ""):
    """A table written by ``write_table``.

    Args:
        path: the file.
        expect: stamp that the file must carry (``spec`` and ``inputs`` are compared).
        rebuild: the command that makes the file, for the error message.

    Raises:
        UserError: the file is missing, not a table of lowvar, or made from another spec or other data.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_exists(path, rebuild)
    try:
        arrow = pq.read_table(path)
        mark = json.loads((arrow.schema.metadata or {})[b"lowvar"])
    except (KeyError, json.JSONDecodeError, pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a table of lowvar, or cut off{_again(rebuild)}") from error
    _check_stamp(path, mark, expect, rebuild)
    return arrow.to_pandas()


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], mark: Mapping[str, Any]) -> None:
    """Writes arrays as npz with the stamp ``mark``; equal content gives equal bytes."""
    with atomic(path) as part, part.open("wb") as stream:
        np.savez(stream, __lowvar__=np.array(json.dumps(mark, sort_keys=True)), **arrays)  # type: ignore[arg-type]


def read_arrays(path: str | Path, *, expect: Mapping[str, Any] | None = None, rebuild: str = ""):
    """Arrays and stamp written by ``write_arrays``; raises as ``read_table`` does."""
    _check_exists(path, rebuild)
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        mark = json.loads(str(arrays.pop("__lowvar__")))
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not an array file of lowvar, or cut off{_again(rebuild)}") from error
    _check_stamp(path, mark, expect, rebuild)
    return arrays, mark


def check_arrays(path: str | Path, *, expect: Mapping[str, Any], rebuild: str = "") -> None:
    """Makes the checks of ``read_arrays`` without reading the arrays, so that damage inside them is not detected."""
    _check_exists(path, rebuild)
    try:
        with np.load(path, allow_pickle=False) as stored:
            mark = json.loads(str(stored["__lowvar__"]))
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not an array file of lowvar, or cut off{_again(rebuild)}") from error
    _check_stamp(path, mark, expect, rebuild)


def write_provenance(path: str | Path, mark: Mapping[str, Any], spec: Mapping[str, Any], **more) -> None:
    """Writes what differs between equal runs: date, host, device, command line."""
    import datetime
    import platform
    import sys

    record = {
        "commit": _commit(),
        "stamp": mark,
        "spec": spec,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "command": ["lowvar", *sys.argv[1:]],
        **more,
    }
    write_text(path, json.dumps(record, indent=2, sort_keys=True) + "\n")


def _commit():
    """The commit of the checkout that this code runs from, if any."""
    import subprocess

    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    asked = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return None
    return done.stdout.strip() or None


def _again(rebuild):
    return f"; make it with: {rebuild}" if rebuild else ""


def _check_exists(path, rebuild):
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file{_again(rebuild)}")


def _check_stamp(path, mark, expect, rebuild):
    if expect is None:
        return
    for key, what in (("spec", "another spec"), ("inputs", "other input data")):
        if key in expect and mark.get(key) != expect[key]:
            raise UserError(
                f"{path}: stale, it was made from {what} ({mark.get(key)}, now {expect[key]}){_again(rebuild)}"
            )
