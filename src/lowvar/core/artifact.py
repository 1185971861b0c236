"""Result files stamped with their provenance, and readers that reject stale ones.

Every parquet and npz carries a JSON stamp: the hash of the job's spec, the SHA-256 of its input data, and the
versions of the relevant packages. A reader states which spec and data it expects. A file of an experiment also says its
place among the results: a whole file in the place of another is refused, too. The stamp also has a digest of itself and
the decoded content, which every reader checks: parquet's own checksums miss one flipped bit in a hundred.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.core import npz
from lowvar.core.files import atomic, write_bytes, write_text
from lowvar.errors import UserError, file_error

PACKAGES = ("lowvar", "jax", "jaxlib", "numpy", "numpyro", "optax", "torch")
_SEAL = "<!-- lowvar "  # before the stamp in an svg
_INSTALLED_AS = {"cocoex": "coco-experiment"}  # packages imported under another name


class _Earlier(UserError):
    """A file of an earlier version, without a digest."""


class _Unreadable(UserError):
    """A file that may be whole, and cannot be read now."""

    def __init__(self, path, error: OSError, rebuild: str):
        super().__init__(f"{path}: cannot be read: {error.strerror or error}{_again(rebuild)}")


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
    arrow = arrow.replace_schema_metadata({"lowvar": _text({**mark, "digest": _of_table(arrow, mark)})})
    with atomic(path) as part, part.open("wb") as stream:  # Arrow takes only names in UTF-8
        floats = [field.name for field in arrow.schema if pa.types.is_floating(field.type)]
        rest = [name for name in arrow.column_names if name not in floats]
        # bytes of one place beside each other: a quarter less than numbers beside each other
        layout = {"use_byte_stream_split": floats, "use_dictionary": rest}  # lists of columns, which its types forget
        pq.write_table(arrow, stream, compression="zstd", **layout)  # pyright: ignore


def read_table(path: str | Path, *, expect: Mapping[str, Any] | None = None, rebuild: str = ""):
    """A table written by ``write_table``.

    Args:
        path: the file.
        expect: stamp that the file must carry (``spec``, ``inputs`` and ``place`` are compared, those that it has).
        rebuild: the command that makes the file, for the error message.

    Raises:
        UserError: the file is missing, not a table of lowvar, made from another spec or other data, or another file
            of the same results.
    """
    return _read_table(path, expect, rebuild)[0]


def _read_table(path, expect, rebuild):
    """A table and its stamp."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = _content(path, rebuild)
    try:
        # not `read_table`, which imports Arrow's datasets: 0.3 s of a job
        arrow = pq.ParquetFile(pa.BufferReader(content)).read()
        mark = json.loads((arrow.schema.metadata or {})[b"lowvar"])
        digest, table = mark.pop("digest", None), arrow.to_pandas()
        right = digest == _of_table(arrow, mark)
    except Exception as error:  # Arrow raises a dozen kinds of errors for invalid bytes
        raise UserError(f"{path}: not a table of lowvar, or damaged{_again(rebuild)}") from error
    _check_digest(path, digest, right, rebuild)
    _check_stamp(path, mark, expect, rebuild)
    return table, mark


def _content(path, rebuild) -> bytes:
    _check_exists(path, rebuild)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _Unreadable(path, error, rebuild) from error


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], mark: Mapping[str, Any]) -> None:
    """Writes arrays as npz with the stamp ``mark``; equal content gives equal bytes."""
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    text = np.array(_text({**mark, "digest": _of_arrays(arrays, mark)}))
    with atomic(path) as part, part.open("wb") as stream:
        np.savez(stream, __lowvar__=text, **arrays)  # type: ignore[arg-type]


def read_arrays(path: str | Path, *, expect: Mapping[str, Any] | None = None, rebuild: str = ""):
    """Arrays and stamp written by ``write_arrays``; raises as ``read_table`` does."""
    _check_exists(path, rebuild)
    try:
        arrays = npz.read(path)
        mark = json.loads(str(arrays.pop("__lowvar__")))
        digest = mark.pop("digest", None)
    except OSError as error:
        raise _Unreadable(path, error, rebuild) from error
    except npz.DamagedFile as error:
        raise UserError(f"{path}: damaged, or no npz: {error}{_again(rebuild)}") from error
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not an array file of lowvar, or damaged{_again(rebuild)}") from error
    _check_digest(path, digest, digest == _of_arrays(arrays, mark), rebuild)
    _check_stamp(path, mark, expect, rebuild)
    return arrays, mark


def write_seal(path: Path, mark: Mapping[str, Any]) -> None:
    """Adds the stamp ``mark`` and a digest to an svg, in a comment at its end."""
    content = path.read_bytes()
    seal = _text({**mark, "digest": _of_bytes(content, mark)})
    write_bytes(path, content + f"{_SEAL}{seal} -->\n".encode())


def verified_stamp(path: str | Path, *, expect: Mapping[str, Any] | None = None, rebuild: str = "") -> dict[str, Any]:
    """The stamp of a parquet or a sealed svg whose content is what was written; raises as ``read_table`` does."""
    if Path(path).suffix != ".svg":
        return _read_table(path, expect, rebuild)[1]
    content, _, seal = _content(path, rebuild).partition(_SEAL.encode())
    try:
        mark = json.loads(seal.decode().removesuffix(" -->\n")) if seal else {}
        digest = mark.pop("digest", None)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: damaged, its content is not what was written{_again(rebuild)}") from error
    _check_digest(path, digest, digest == _of_bytes(content, mark), rebuild)
    _check_stamp(path, mark, expect, rebuild)
    return mark


def _of_bytes(content: bytes, mark: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(mark).encode() + content).hexdigest()


def read_stamp(path: str | Path) -> dict[str, Any]:
    """The ``spec`` and ``inputs`` in the stamp of a parquet, npz or ``provenance.json`` file.

    Raises:
        UserError: the file has no stamp.
    """
    path = Path(path)
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            with path.open("rb") as stream:
                mark = json.loads((pq.read_schema(stream).metadata or {})[b"lowvar"])
        elif path.suffix == ".npz":
            mark = json.loads(str(npz.read(path)["__lowvar__"]))
        else:
            mark = json.loads(path.read_text(encoding="utf-8"))["stamp"]
        return {key: mark[key] for key in ("spec", "inputs")}
    except Exception as error:  # Arrow raises a dozen kinds of errors for invalid bytes
        raise UserError(f"{path}: it has no stamp of lowvar, or is damaged") from error


def read_checkpoint(path: Path, mark: Mapping[str, Any] | None) -> dict[str, np.ndarray] | None:
    """The arrays of a checkpoint written by ``write_arrays`` with the stamp ``mark``.

    None if there is no such file; if it has another spec, other data or other versions, and is removed; or if it is
    damaged: it is then renamed to ``{name}.damaged``, and a warning names it.

    Raises:
        UserError: it cannot be read now, and may be whole.
    """
    if not path.is_file():
        return None
    try:
        arrays, stored = read_arrays(path)
    except _Unreadable as error:
        raise UserError(f"{error}; if it stays so, remove it to start anew") from error
    except _Earlier:
        path.unlink()
        return None
    except UserError as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        warnings.warn(f"{error}; it is kept as {aside.name}, and the run starts again", UserWarning, stacklevel=2)
        return None
    if stored != mark:
        path.unlink()
        return None
    return arrays


def _text(mark: Mapping[str, Any]) -> str:
    return json.dumps(mark, sort_keys=True)


def _of_arrays(arrays: Mapping[str, np.ndarray], mark: Mapping[str, Any]) -> str:
    """The digest of arrays and their stamp: SHA-256 of names, types, shapes and values."""
    digest = hashlib.sha256(_text(mark).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _of_table(arrow, mark: Mapping[str, Any]) -> str:
    """The digest of a table and its stamp: SHA-256 of names, types and values, however they are encoded."""
    import pyarrow as pa

    digest = hashlib.sha256(_text(mark).encode())
    for field in arrow.schema:
        column, plain = arrow[field.name], field.type
        number = pa.types.is_floating(plain) or pa.types.is_integer(plain)
        digest.update(repr((field.name, str(plain) if number else "values", len(column))).encode())
        if number:
            digest.update(column.is_null().to_numpy().tobytes())
            digest.update(np.ascontiguousarray(column.fill_null(0).to_numpy()).tobytes())
        else:
            digest.update(repr(column.to_pylist()).encode())
    return digest.hexdigest()


def write_provenance(path: str | Path, mark: Mapping[str, Any], spec: Mapping[str, Any], **more) -> None:
    """Writes what differs between equal runs: date, host, command line, and ``more``, such as commit and device."""
    import datetime
    import platform
    import sys

    record = {
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


def commit(source: Path = Path(__file__).parents[3]) -> str | None:
    """The last commit of a checkout, by default this code's, that changed more than ``docs``; None outside a checkout.

    It ends in ``-dirty`` if tracked files outside ``docs`` have changed since, so pages can be kept one by one, or if
    ``src`` or ``workflow`` has files that are not tracked.
    """
    import subprocess

    if not (source / ".git").exists():
        return None
    found, outside = [], [".", ":(exclude)docs"]
    for words, where in (
        (["log", "-1", "--abbrev=10", "--format=%h"], outside),
        (["status", "--porcelain", "--untracked-files=no"], outside),
        (["status", "--porcelain"], ["src", "workflow"]),
    ):
        asked = ["git", "-C", str(source), *words, "--", *where]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
        except OSError:  # git is not installed
            return None
        found.append(done.stdout.strip())
    return found[0] + "-dirty" * any(found[1:]) if found[0] else None


def _again(rebuild):
    return f"; make it with: {rebuild}" if rebuild else ""


def _check_exists(path, rebuild):
    try:
        there = Path(path).is_file()
    except OSError as error:  # a folder that may not be searched, a name that is too long
        raise file_error(error) or error from error
    if not there:
        raise UserError(f"{path}: {'a folder' if Path(path).is_dir() else 'no such file'}{_again(rebuild)}")


def _check_digest(path, digest, right, rebuild):
    if digest is None:
        raise _Earlier(f"{path}: without the digest that later versions of lowvar write and check{_again(rebuild)}")
    if not right:
        raise UserError(f"{path}: damaged, its content is not what was written{_again(rebuild)}")


def _check_stamp(path, mark, expect, rebuild):
    if expect is None:
        return
    for key, what in (("spec", "another spec"), ("inputs", "other input data")):
        if key in expect and mark.get(key) != expect[key]:
            raise UserError(
                f"{path}: stale, it was made from {what} ({mark.get(key)}, now {expect[key]}){_again(rebuild)}"
            )
    if "place" in expect and mark.get("place") != expect["place"]:
        if "place" not in mark:
            raise _Earlier(f"{path}: without the place that later versions of lowvar write and check{_again(rebuild)}")
        raise UserError(f"{path}: it is {mark['place']}, in the place of {expect['place']}{_again(rebuild)}")
    made = (mark.get("versions") or {}).get("lowvar")
    if made is not None and made != (here := importlib.metadata.version("lowvar")):
        text = f"results of lowvar {made} are read by lowvar {here}: snakemake --forceall makes all anew"
        warnings.warn(text, UserWarning, stacklevel=4)
