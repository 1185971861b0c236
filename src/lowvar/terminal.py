"""What a command says in its own options, and how it ends: its exit code, and its sentence on Ctrl-C or a mistake."""

import contextlib
import errno
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from types import FrameType

from lowvar.errors import UserError, file_error

_FULL = errno.ENOSPC, errno.EIO, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)
_INTERRUPTED = "lowvar: interrupted; the same command resumes a run from its last checkpoint"


def as_options(text: str, names: Collection[str]) -> str:
    """``text`` of the library with options of a command in place of Python's arguments.

    Args:
        text: a sentence, or several.
        names: of the arguments that the command has as options.

    >>> as_options("set exact_scores=True, or use method='auto' and seed=3; diagonal=True", ["exact_scores", "method"])
    'set --exact-scores, or use --method auto and seed=3; diagonal=True'
    """

    def option(found: re.Match) -> str:
        name, value = found.groups()
        if name not in names:
            return found[0]
        value = value.strip("'")
        return f"--{name.replace('_', '-')}" + ("" if value == "True" else f" {value}")

    return re.sub(r"(?<![\w.-])([a-z]\w*)=(True|\d+|'\w+')(?!\w)", option, text)


def exit_code(
    do: Callable[[], object], *, debug: Callable[[], bool] = lambda: False, names: Callable[[], Collection[str]] = tuple
) -> int:
    """Calls ``do``, and returns the exit code: 0, 2 for a ``UserError``, 130 for Ctrl-C.

    Args:
        do: the command.
        debug: says whether errors are raised.
        names: says the arguments that the command has as options, see ``as_options``.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # its locale may lack a character
        if sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        elif sys.stdout.errors == "surrogateescape":  # no locale, or an unknown one: as in Python's UTF-8 mode
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        with _signals(), _short_warnings(names):
            do()
            sys.stdout.flush()
    except UserError as error:
        if debug():
            raise
        print(f"lowvar: {as_options(str(error), names())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)
        return 130
    except BrokenPipeError:
        _to_nowhere()
    except OSError as error:
        if not debug() and (refusal := file_error(error)) is not None:
            print(f"lowvar: {refusal}", file=sys.stderr)
            return 2
        if error.filename is not None or error.errno not in _FULL or debug():  # not an error of stdout
            raise
        _to_nowhere()
        print(f"lowvar: cannot write the output: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _to_nowhere() -> None:
    """Discards the rest of stdout, so that Python does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _short_warnings(names: Callable[[], Collection[str]]) -> Iterator[None]:
    """Warnings for the user are a line, without the place in our source that Python prints; see ``exit_code``."""
    before = warnings.formatwarning

    def short(message, category, *place):
        if not issubclass(category, UserWarning):
            return before(message, category, *place)
        return f"lowvar: warning: {as_options(str(message), names())}\n"

    warnings.formatwarning = short
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM, Ctrl-C and the end of the terminal end the process at once, without the files that it is writing.

    An exception in their place may be raised in a destructor or a callback of a library, which swallows it or crashes.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        if files := sys.modules.get("lowvar.core.files"):  # else no file is being written
            files.remove_unfinished()
        if number == signal.SIGINT:
            os.write(2, f"{_INTERRUPTED}\n".encode())
        os._exit(128 + number)

    known = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    numbers = [one for one in known if signal.getsignal(one) not in (signal.SIG_IGN, None)]  # as nohup sets it
    before = {number: signal.signal(number, leave) for number in numbers}  # a job in the background ignores Ctrl-C
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
