"""Atomic writes: write to a temporary name in the target's folder, then rename."""

import contextlib
import contextvars
import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lowvar.errors import UserError, file_error, shown

_unfinished: dict[Path, int] = {}  # files that are being written, each open and locked
_together: contextvars.ContextVar[list[tuple[Path, Path]] | None] = contextvars.ContextVar("together", default=None)
_TEMPORARY = ".tmp-"  # a killed process leaves `.name.tmp-XXXX` behind, which the next writer of `name` removes
_STALE = 86400  # seconds after which such a file is a killed process's, where the file system has no locks


@contextlib.contextmanager
def atomic(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary path in the folder of ``path``; a clean exit renames it to ``path``, an error removes it.

    First removes the temporary files of killed writers of ``path``.

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
    part, together = None, _together.get()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        part = _temporary(path)
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        part.chmod(0o666 & ~_umask())
        if together is None:
            part.replace(path)
            _sync(path.parent)
        else:
            together.append((part, path))
            part = None
    except OSError as error:
        raise file_error(error, path) or error from error
    finally:
        if part is not None:
            _forget(part)


def check_folder(path: str | os.PathLike) -> None:
    """Refuses a file in a folder that does not exist: a caller from Python may have misspelt it.

    Commands and the workflow make the folders of their results.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(path).parent
    if not folder.is_dir():
        raise UserError(f"cannot write {shown(path)}: the folder {shown(folder)} does not exist")


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Lets the files that ``atomic`` writes in the block appear together at its end; an error leaves the former ones.

    They are renamed one after another: a process killed between two renames leaves some new and some former files.

    Raises:
        UserError: a file cannot take its place.
    """
    files: list[tuple[Path, Path]] = []
    token = _together.set(files)
    try:
        yield
        _rename(files)
        for folder in {path.parent for _, path in files}:
            _sync(folder)
    finally:
        _together.reset(token)
        for part, _ in files:
            _forget(part)


def _rename(files: list[tuple[Path, Path]]) -> None:
    """Renames all temporary files to their names; rolls back on an error."""
    with contextlib.ExitStack() as aside, contextlib.ExitStack() as undo:
        for part, path in files:
            try:
                former = _linked(path) if os.path.lexists(path) else None
                if former is not None:
                    aside.callback(_forget, former)
                part.replace(path)
            except OSError as error:
                raise file_error(error, path) or error from error
            undo.callback(path.unlink if former is None else partial(former.replace, path))
        undo.pop_all()


def _linked(path: Path) -> Path:
    """Another name of a file, in its folder; a copy where files cannot have two names."""
    other = _temporary(path)
    try:
        other.unlink()
        os.link(path, other)
    except OSError:
        try:
            shutil.copy2(path, other, follow_symlinks=False)
        except OSError:
            _forget(other)
            raise
    return other


def _temporary(path: Path) -> Path:
    """A new file in the folder of ``path``, locked as long as this process lives or writes it."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{_TEMPORARY}", suffix=path.suffix)
        part = Path(name)
        if _lock(handle) is not False and os.fstat(handle).st_nlink:  # else another writer is sweeping it
            _unfinished[part] = handle
            return part
        os.close(handle)
        part.unlink(missing_ok=True)


def _lock(handle: int) -> bool | None:
    """Locks an open file; False if another process holds it, None where the file system has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _forget(part: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    if (handle := _unfinished.pop(part, None)) is not None:
        os.close(handle)


def remove_unfinished() -> None:
    """Removes the unfinished files of this process, before it leaves at once."""
    for part in list(_unfinished):
        with contextlib.suppress(OSError):
            part.unlink()


def sweep(folder: str | os.PathLike, name: str) -> None:
    """Removes temporary files of killed writers of ``folder/name``, and none that a living process writes."""
    with contextlib.suppress(OSError):  # a file that cannot be removed stays, and writing goes on
        for left in [one.path for one in os.scandir(folder) if one.name.startswith(f".{name}{_TEMPORARY}")]:
            with contextlib.suppress(FileNotFoundError):
                handle = os.open(left, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
                try:
                    free = _lock(handle)
                    if free or (free is None and time.time() - os.fstat(handle).st_mtime > _STALE):
                        os.unlink(left)
                finally:
                    os.close(handle)


@contextlib.contextmanager
def folder_lock(*folders: str | os.PathLike) -> Iterator[None]:
    """Lets one process at a time run the block for any of the folders; others wait until it has ended or was killed.

    Where the file system has no locks, nothing is checked.

    Raises:
        UserError: a folder cannot be made.
    """
    with contextlib.ExitStack() as stack:
        for _, folder in sorted({os.path.realpath(one): one for one in folders}.items()):  # all in the same order
            stack.enter_context(_locked(folder))
        yield


@contextlib.contextmanager
def _locked(folder: str | os.PathLike) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise file_error(error, folder) or error from error
    try:
        with contextlib.suppress(OSError):  # no locks here
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                warnings.warn(f"{folder}: waiting for another process, which works in this folder", stacklevel=5)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    """Writes ``content`` to ``path`` atomically."""
    with atomic(path) as part:
        part.write_bytes(content)


def write_text(path: str | os.PathLike, content: str) -> None:
    """Writes ``content`` to ``path`` atomically, in UTF-8."""
    write_bytes(path, content.encode())


def sha256(path: str | os.PathLike) -> str:
    """The file's SHA-256, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    """Makes a rename in ``folder`` last through a power cut, where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
