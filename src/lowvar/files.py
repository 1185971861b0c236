"""Atomic writes: write to a temporary name in the target's folder, then rename."""

import contextlib
import errno
import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lowvar.errors import UserError

_TEMPORARY = ".tmp-"  # a killed process can leave `.name.tmp-XXXX` behind; `sweep` removes those


@contextlib.contextmanager
def atomic(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``path``; a clean exit renames it to ``path``, an error removes it.

    Raises:
        UserError: the disk is full, or the folder cannot be written.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic(folder / "a.txt") as part:
    ...     _ = part.write_text("whole")
    >>> [p.name for p in folder.iterdir()]
    ['a.txt']
    """
    path = Path(path)
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{_TEMPORARY}", suffix=path.suffix)
        os.close(handle)
        part = Path(name)
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        raise _explained(error, path) from error
    finally:
        if part is not None:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()


@contextlib.contextmanager
def all_or_none(*paths: str | os.PathLike) -> Iterator[None]:
    """Removes ``paths`` if the block that writes them fails, so that either all of them exist or none."""
    try:
        yield
    except BaseException:
        for path in paths:
            with contextlib.suppress(OSError):
                Path(path).unlink()
        raise


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    """Writes ``content`` to ``path`` atomically."""
    with atomic(path) as part:
        part.write_bytes(content)


def write_text(path: str | os.PathLike, content: str) -> None:
    """Writes ``content`` to ``path`` atomically, in UTF-8."""
    write_bytes(path, content.encode())


def sweep(folder: str | os.PathLike, name: str) -> None:
    """Removes temporary files of killed writers of ``folder/name``."""
    for left in Path(folder).glob(f".{name}{_TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError):
            left.unlink()


def sha256(path: str | os.PathLike) -> str:
    """The file's SHA-256, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _explained(error: OSError, path: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"no space left to write {path}: free some space, or choose another folder")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT):
        return UserError(f"cannot write {path}: {error.strerror}; choose a folder that you may write to")
    return error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_yaml(path: str | os.PathLike) -> Any:
    """The content of a YAML file, in plain Python types.

    Raises:
        UserError: the file is not YAML, or has a duplicate key.
    """
    import yaml

    try:
        return _yaml_loader()(Path(path).read_text(encoding="utf-8")).get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        said = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise UserError(f"{path}: not YAML: {said}") from error


@functools.cache
def _yaml_loader() -> Any:
    """PyYAML's loader (its fast one, if it has been built) without duplicate keys and with the numbers of YAML 1.2."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Strict(base):
        def construct_mapping(self, node, deep=False):
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    # YAML 1.1, which PyYAML reads, takes 1e-3 for text
    number = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
    Strict.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return Strict
