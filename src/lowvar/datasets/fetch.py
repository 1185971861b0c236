"""Bring raw files into ``data/raw``, from a mirror or from their publisher, and check every byte."""

import os
import shutil
import sys
from pathlib import Path

from lowvar.datasets.catalogue import Dataset, RawFile, get
from lowvar.datasets.download import MIRROR, download
from lowvar.errors import UserError
from lowvar.files import atomic, sha256


def fetch(
    name: str | Dataset,
    raw: str | os.PathLike = "data/raw",
    mirror: str | os.PathLike | None = None,
    progress: bool | None = None,
    *,
    attempts: int = 3,
    pause: float = 1.0,
) -> list[Path]:
    """Make sure that a dataset's raw files are in ``raw``, whole and with the right hash.

    A file that is there is only checked. Else it is copied from the mirror if that has it, else downloaded
    from its publisher, to a temporary name that is renamed once the hash is right.

    Args:
        name: a name of the catalogue, or an entry.
        raw: the folder of raw files.
        mirror: a folder with the same paths as ``raw``; by default what ``LOWVAR_DATA_MIRROR`` names, if set.
        progress: a bar per download on stderr; by default where stderr is a terminal.
        attempts: how often to try a download that the network breaks off.
        pause: seconds before the second attempt; doubled before each later one.

    Returns:
        The files' paths, in the catalogue's order; none for data that an installed package brings.

    Raises:
        UserError: unknown name, wrong hash (in ``raw``, in the mirror, or of the download), no network, the
            server's refusal, a file without an address that is in no mirror, a full disk or a folder that cannot be
            written.

    >>> fetch("breast_cancer")
    []
    """
    mirror = mirror or os.environ.get(MIRROR) or None
    bar = sys.stderr.isatty() if progress is None else progress
    paths = []
    for file in get(name).files:
        path = Path(raw) / file.name
        if os.path.exists(path):
            _check(path, file)
        elif mirror is not None and os.path.exists(Path(mirror) / file.name):
            _copy(Path(mirror) / file.name, path, file)
        elif not file.url:
            raise _no_address(file, path, mirror)
        else:
            download(file, path, mirror=mirror, bar=bar, attempts=attempts, pause=pause)
        paths.append(path)
    return paths


def verify(dataset: Dataset, raw: str | os.PathLike) -> dict[str, str]:
    """File name -> sha256 of a dataset's raw files, all of them there and right.

    Raises:
        UserError: a file is missing, unreadable, or has another hash.
    """
    for file in dataset.files:
        path = Path(raw) / file.name
        if not os.path.exists(path):
            option = "" if Path(raw) == Path("data/raw") else f" --raw {raw}"
            raise UserError(f"{path} is missing: run `lowvar fetch {dataset.name}{option}`")
        _check(path, file)
    return {file.name: file.sha256 for file in dataset.files}


def _no_address(file: RawFile, path: Path, mirror: str | os.PathLike | None) -> UserError:
    looked = "" if mirror is None else f" (the mirror {mirror} does not have it)"
    return UserError(
        f"{file.name} has no address of its own and can only come from a mirror{looked}: "
        f"set {MIRROR} to a folder that has {file.name}, or put the file at {path}"
    )


def _check(path: Path, file: RawFile) -> None:
    """Refuse a file that is in ``raw`` but is not what it should be."""
    found = _hash(path)
    if found != file.sha256:
        raise UserError(
            f"{path} has sha256 {found}, it should be {file.sha256}: delete it, and `lowvar fetch` brings it anew"
        )


def _hash(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it should be a readable file") from error


def _copy(source: Path, path: Path, file: RawFile) -> None:
    """Copy from the mirror; the copy is what is checked."""
    try:
        stream = source.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}; it should be a readable file") from error
    with stream, atomic(path) as part:
        with part.open("wb") as target:
            shutil.copyfileobj(stream, target)
        found = sha256(part)
        if found != file.sha256:
            raise UserError(
                f"the mirror's {source} has sha256 {found}, it should be {file.sha256}: replace it there, "
                f"or unset {MIRROR} to download it"
            )
