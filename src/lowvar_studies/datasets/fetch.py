"""Brings raw files into ``data/raw``, from a mirror or from their publisher, and checks their hashes."""

import os
import shutil
import sys
import time
from pathlib import Path

from lowvar.core.files import atomic, sha256
from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import Dataset, RawFile, get

MIRROR = "LOWVAR_DATA_MIRROR"
_TIMEOUT = 30.0  # seconds without a byte; and before the rate counts
_RATE = 1000.0  # least bytes a second, on average
_CHUNK = 1 << 16  # bytes read at once


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
    publisher, to a temporary name that is renamed after the check of its hash. Network failures (no connection, a
    broken, stalled or slow one, a busy server) are tried again; a wrong hash, size or address is not.

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
        elif mirror is not None and os.path.exists(source := Path(mirror) / file.name):
            _copy(source, path, file)
        else:
            try:
                _download(file, path, bar, attempts, pause)
            except _Failed as error:
                looked = "" if mirror is None else f" (the mirror {mirror} does not have it)"
                raise UserError(
                    f"cannot fetch {file.name} from {file.url}: {error}{looked}; "
                    f"set {MIRROR} to a folder that has {file.name}, or put the file at {path}"
                ) from error
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
    try:
        digest = sha256(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; it should be a readable file") from error
    if digest != file.sha256:
        raise UserError(
            f"{path} has sha256 {digest}, it should be {file.sha256}: delete it and run `lowvar fetch` again"
        )


def _copy(source: Path, path: Path, file: RawFile) -> None:
    """Copies from the mirror, and checks the copy."""
    try:
        stream = source.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {source}: {error.strerror}; it should be a readable file") from error
    with stream, atomic(path) as part:
        with part.open("wb") as target:
            shutil.copyfileobj(stream, target)
        if (digest := sha256(part)) != file.sha256:
            raise UserError(
                f"the mirror's {source} has sha256 {digest}, it should be {file.sha256}: replace it there, "
                f"or unset {MIRROR} to download it"
            )


class _Failed(Exception):
    """A download that failed; ``again`` says whether the same request may succeed later."""

    def __init__(self, reason: str, again: bool = False):
        super().__init__(reason)
        self.again = again


def _download(file: RawFile, path: Path, bar: bool, attempts: int, pause: float) -> None:
    """Downloads to ``path`` and checks the hash; writes nothing if that fails."""
    with atomic(path) as part:
        for attempt in range(attempts):
            try:
                _get(file, part, bar)
                break
            except _Failed as error:
                if not error.again or attempt + 1 == attempts:
                    raise
            time.sleep(pause * 2**attempt)
        if (digest := sha256(part)) != file.sha256:
            raise _Failed(
                f"the download has {part.stat().st_size} bytes with sha256 {digest}, "
                f"it should have {file.bytes} bytes with sha256 {file.sha256}"
            )


def _get(file: RawFile, part: Path, bar: bool) -> None:
    """One attempt, which stops at the size that the catalogue has."""
    import requests
    import urllib3
    from tqdm.auto import tqdm

    count, start = 0, time.monotonic()

    def broken(reason):
        return _Failed(f"{reason} after {count} of {file.bytes} bytes", again=True)

    try:
        with (
            requests.get(file.url, stream=True, timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"}) as response,
            part.open("wb") as stream,
            tqdm(total=file.bytes, unit="B", unit_scale=True, desc=file.name, disable=not bar) as shown,
        ):
            status = response.status_code
            if status >= 400:
                raise _Failed(f"the server answered {status} {response.reason}", status in (408, 429) or status >= 500)
            # `read1` returns what has arrived: `iter_content` would wait for a whole chunk
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                stream.write(chunk)
                count += len(chunk)
                shown.update(len(chunk))
                if count > file.bytes:
                    raise _Failed(f"the server sends more than the {file.bytes} bytes of the file")
                if time.monotonic() - start > _TIMEOUT + count / _RATE:
                    raise broken(f"the download was slower than {_RATE / 1000:g} kB a second")
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and count < int(length):
                raise broken("the download broke off")
    except (requests.Timeout, urllib3.exceptions.ReadTimeoutError) as error:
        raise broken(f"nothing came for {_TIMEOUT:.0f} seconds") from error
    except requests.exceptions.SSLError as error:
        raise _Failed("the server's certificate was not accepted") from error
    except requests.ConnectionError as error:
        raise _Failed("no connection to the server, or it broke off", again=True) from error
    except urllib3.exceptions.HTTPError as error:
        raise broken("the download broke off") from error
    except requests.RequestException as error:
        raise _Failed(" ".join(str(error).split())) from error
