"""What commands tell XLA, and the compiled programs that they keep for each other."""

import contextlib
import hashlib
import os
from pathlib import Path

from lowvar.core.files import write_bytes
from lowvar.errors import UserError

SECONDS = 0.2  # programs that compile faster are not kept
BYTES = 2**30  # of all programs in a folder: the ones that were not used for longest are removed


class Programs:
    """Programs by key, each in a file that begins with the digest of key and program; another is removed and compiled.

    JAX's own files have no digest, are written in place and are never replaced: a killed process leaves half a program,
    and where zstd compresses them, a flipped bit can make another program of it.
    """

    def __init__(self, folder: str | os.PathLike):
        self._path = Path(folder)

    def get(self, key: str) -> bytes | None:
        """The program, or None."""
        file = self._path / key
        try:
            content = file.read_bytes()
        except OSError:
            return None
        length = hashlib.sha256().digest_size
        if _digest(key, content[length:]) == content[:length]:
            with contextlib.suppress(OSError):
                os.utime(file)  # used now
            return content[length:]
        with contextlib.suppress(OSError):
            file.unlink()
        return None

    def put(self, key: str, value: bytes) -> None:
        """Keeps a program, if it can be written."""
        with contextlib.suppress(OSError, UserError):
            write_bytes(self._path / key, _digest(key, value) + value)
            self._shrink()

    def _shrink(self) -> None:
        """Removes the programs that were not used for longest, until the others have at most ``BYTES``."""
        files = [(entry.stat(), entry.path) for entry in os.scandir(self._path) if not entry.name.startswith(".")]
        held = sum(about.st_size for about, _ in files)
        for about, path in sorted(files, key=lambda one: one[0].st_mtime):
            if held <= BYTES:
                break
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.unlink(path)
            held -= about.st_size


def _digest(key: str, program: bytes) -> bytes:
    """SHA-256 of both: a program under another's key would give other results without a word."""
    return hashlib.sha256(f"{len(key)} {key} ".encode() + program).digest()


def keep() -> None:
    """Keeps programs in the user's cache folder, unless a variable of JAX's names another one or there is no home."""
    import jax

    try:
        from jax._src import compilation_cache
    except ImportError:  # JAX does not promise this module; without it, nothing is kept
        return
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lowvar", "programs")
    if folder.is_absolute() and hasattr(compilation_cache, "get_file_cache"):
        compilation_cache.get_file_cache = lambda path: (Programs(path), path)  # type: ignore[assignment]
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", SECONDS)


def flags() -> str:
    """The flags of ``XLA_FLAGS``, or of the file that it names.

    Raises:
        UserError: it is neither.
    """
    said = os.environ.get("XLA_FLAGS", "").strip()
    if not said or said.startswith("-"):
        return said
    try:
        return " ".join(Path(said).read_text(encoding="utf-8").split())
    except (OSError, ValueError) as error:
        raise UserError(f"XLA_FLAGS={said}: it must be flags, which begin with --, or a file of them") from error
