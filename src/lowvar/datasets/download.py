"""Download of one file over HTTP, with retries, and a message for every kind of failure."""

import os
import time
from pathlib import Path

from lowvar.datasets.catalogue import RawFile
from lowvar.errors import UserError
from lowvar.files import atomic, sha256

MIRROR = "LOWVAR_DATA_MIRROR"
_TIMEOUT = 30.0  # seconds without a byte


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

    Network failures (no connection, a broken one, a busy server) are retried; a wrong hash or address is not.

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
    import pooch
    import requests

    get_file = pooch.HTTPDownloader(progressbar=bar, timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"})
    with atomic(path) as part:
        for attempt in range(1, attempts + 1):
            try:
                get_file(file.url, str(part), None)
                break
            except requests.RequestException as error:
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


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    if isinstance(error, requests.exceptions.SSLError):
        return False
    return isinstance(error, (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError))


def _reason(error: Exception, part: Path, file: RawFile) -> str:
    """The reason of a failure, for the message."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT:.0f} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate was not accepted"
    if size := part.stat().st_size:
        return f"the download broke off after {size} of {file.bytes} bytes"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refused the request"
    if isinstance(error, requests.ConnectionError):
        return "no connection to the server"
    return str(error)


def _failed(file: RawFile, path: Path, mirror: str | os.PathLike | None, reason: str) -> UserError:
    looked = "" if mirror is None else f" (the mirror {mirror} does not have it)"
    return UserError(
        f"cannot fetch {file.name} from {file.url}: {reason}{looked}; "
        f"set {MIRROR} to a folder that has {file.name}, or put the file at {path}"
    )
