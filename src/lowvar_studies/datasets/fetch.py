"""Brings raw files into ``data/raw``, from a mirror or from their publisher, and checks their hashes."""

import os
import shutil
import sys
from pathlib import Path

from lowvar.core.files import atomic, sha256
from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import Dataset, RawFile, get
from lowvar_studies.datasets.download import MIRROR, download


def fetch(
    name: str | Dataset,
    raw: str | os.PathLike = "data/raw",
    mirror: str | os.PathLike | None = None,
    progress: bool | None = None,
    *,
    attempts: int = 3,
    pause: float = 1.0,
) -> list[Path]:
    """Makes sure that a dataset's raw files are in ``raw``, complete and with the right hash.

    An existing file is only checked. Otherwise it is copied from the mirror, if that has it, or downloaded from its
    publisher, to a temporary name that is renamed after the check of its hash.

    Args:
        name: a name of the catalogue, or an entry.
        raw: the folder of raw files.
        mirror: a folder with the same paths as ``raw``; by default ``LOWVAR_DATA_MIRROR``, if set.
        progress: whether to show a bar for each download on stderr; by default if stderr is a terminal.
        attempts: maximum number of attempts for a download with network failures.
        pause: seconds before the second attempt; doubled before each later one.

    Returns:
        The files' paths, in the catalogue's order; none for data from an installed package.

    Raises:
        UserError: unknown name, wrong hash (in ``raw``, in the mirror, or of the download), no network, a request that
            the server refuses, a full disk, or a folder without write permission.

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
        else:
            download(file, path, mirror=mirror, bar=bar, attempts=attempts, pause=pause)
        paths.append(path)
    return paths


def verify(dataset: Dataset, raw: str | os.PathLike) -> dict[str, str]:
    """File name -> SHA-256 of a dataset's raw files, after a check of all of them.

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


def _check(path: Path, file: RawFile) -> None:
    """Rejects a file in ``raw`` with a wrong hash."""
    digest = _hash(path)
    if digest != file.sha256:
        raise UserError(
            f"{path} has sha256 {digest}, it should be {file.sha256}: delete it and run `lowvar fetch` again"
        )


def _hash(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it should be a readable file") from error


def _copy(source: Path, path: Path, file: RawFile) -> None:
    """Copies from the mirror, and checks the copy."""
    try:
        stream = source.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}; it should be a readable file") from error
    with stream, atomic(path) as part:
        with part.open("wb") as target:
            shutil.copyfileobj(stream, target)
        digest = sha256(part)
        if digest != file.sha256:
            raise UserError(
                f"the mirror's {source} has sha256 {digest}, it should be {file.sha256}: replace it there, "
                f"or unset {MIRROR} to download it"
            )
