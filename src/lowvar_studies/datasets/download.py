"""Download of one file over HTTP, with retries and limits, and a message for every kind of failure."""

import contextlib
import os
import time
from pathlib import Path

from lowvar.core.files import atomic, sha256
from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import RawFile

MIRROR = "LOWVAR_DATA_MIRROR"
_TIMEOUT = 30.0  # seconds without a byte; and before the rate counts
_RATE = 1000.0  # least bytes a second, on average
_CHUNK = 1 << 16  # bytes read at once


class _Refused(Exception):
    """The server sends another file."""


class _BrokenOff(Exception):
    """The download ended early, or is too slow."""


def download(
    file: RawFile,
    path: Path,
    *,
    mirror: str | os.PathLike | None = None,
    bar: bool = False,
    attempts: int = 3,
    pause: float = 1.0,
) -> None:
    """Downloads ``file`` to ``path`` and checks its hash; writes nothing if that fails.

    Network failures (no connection, a broken, stalled or slow one, a busy server) are retried; a wrong hash, size or
    address is not. The download stops at the size that the catalogue has.

    Args:
        file: the catalogue's entry.
        path: the target.
        mirror: the mirror that was searched before, if any, for the error message.
        bar: whether to draw a progress bar on stderr.
        attempts: maximum number of attempts.
        pause: seconds before the second attempt; doubled before each later one.

    Raises:
        UserError: the download failed; the message has the reason, the address and alternatives.
    """
    import requests
    import urllib3

    with atomic(path) as part:
        for attempt in range(1, attempts + 1):
            try:
                _get(file, part, bar)
                break
            except (requests.RequestException, urllib3.exceptions.HTTPError, _Refused, _BrokenOff) as error:
                if attempt == attempts or not _may_pass(error):
                    raise _failed(file, path, mirror, _reason(error, part, file)) from error
            time.sleep(pause * 2 ** (attempt - 1))
        digest = sha256(part)
        if digest != file.sha256:
            size = part.stat().st_size
            reason = (
                f"the download has {size} bytes with sha256 {digest}, "
                f"it should have {file.bytes} bytes with sha256 {file.sha256}"
            )
            raise _failed(file, path, mirror, reason)


def _get(file: RawFile, part: Path, bar: bool) -> None:
    """One attempt."""
    import requests
    from tqdm.auto import tqdm

    shown = tqdm(total=file.bytes, unit="B", unit_scale=True, desc=file.name, disable=not bar)
    with (
        requests.get(file.url, stream=True, timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"}) as response,
        part.open("wb") as stream,
        shown,
    ):
        response.raise_for_status()
        begun, count = time.monotonic(), 0
        # `read1` returns what has arrived: `iter_content` would wait for a whole chunk
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            stream.write(chunk)
            count += len(chunk)
            shown.update(len(chunk))
            if count > file.bytes:
                raise _Refused(f"the server sends more than the {file.bytes} bytes of the file")
            if time.monotonic() - begun > _TIMEOUT + count / _RATE:
                raise _BrokenOff(f"the download was slower than {_RATE / 1000:g} kB a second")
        with contextlib.suppress(KeyError, ValueError):
            if count < int(response.headers["Content-Length"]):
                raise _BrokenOff("the download broke off")


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    import requests
    import urllib3

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    if isinstance(error, requests.exceptions.SSLError):
        return False
    broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, (*broken, urllib3.exceptions.HTTPError, _BrokenOff))


def _reason(error: Exception, part: Path, file: RawFile) -> str:
    """The reason of a failure, for the message."""
    import requests
    import urllib3

    so_far = f"after {part.stat().st_size} of {file.bytes} bytes"
    if isinstance(error, _Refused):
        return str(error)
    if isinstance(error, _BrokenOff):
        return f"{error} {so_far}"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, urllib3.exceptions.ReadTimeoutError):
        return f"the download stalled {so_far}: nothing came for {_TIMEOUT:.0f} seconds"
    if isinstance(error, urllib3.exceptions.HTTPError):
        return f"the download broke off {so_far}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT:.0f} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refused the request"
    if isinstance(error, requests.ConnectionError):
        said = str(error)
        cut = "reset" in said or "aborted" in said or "BadStatusLine" in said
        return "the server broke off the connection" if cut else "no connection to the server"
    return " ".join(str(error).split())


def _failed(file: RawFile, path: Path, mirror: str | os.PathLike | None, reason: str) -> UserError:
    looked = "" if mirror is None else f" (the mirror {mirror} does not have it)"
    return UserError(
        f"cannot fetch {file.name} from {file.url}: {reason}{looked}; "
        f"set {MIRROR} to a folder that has {file.name}, or put the file at {path}"
    )
