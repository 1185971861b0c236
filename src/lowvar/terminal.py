"""How a command ends: its exit code, and the one sentence that it says on Ctrl-C, a mistake or a full disk."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from lowvar.errors import UserError

_AGAIN = 2.0  # seconds


def exit_code(do: Callable[[], object], *, debug: bool = False) -> int:
    """Calls ``do``, and returns the exit code: 0, 2 for a ``UserError``, 130 for Ctrl-C.

    Args:
        do: the command.
        debug: whether a ``UserError`` is raised.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # its locale may lack a character
        if sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        elif sys.stdout.errors == "surrogateescape":  # no locale, or an unknown one: as in Python's UTF-8 mode
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        with _signals():
            do()
            sys.stdout.flush()
    except UserError as error:
        if debug:
            raise
        print(f"lowvar: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lowvar: interrupted; the same command resumes a run from its last checkpoint", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _to_nowhere()
    except OSError as error:
        if error.filename is not None or error.errno is None or debug:  # not an error of stdout
            raise
        _to_nowhere()
        print(f"lowvar: cannot write the output: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _to_nowhere() -> None:
    """What is left for stdout goes nowhere, so that Python does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and Ctrl-C end the block, and half-written files are removed.

    A destructor or a callback of a library can swallow Ctrl-C's exception; so it is raised again until it arrives.
    """
    timer = getattr(signal, "setitimer", None)  # not on Windows

    def interrupt(number: int, frame: FrameType | None) -> None:
        if timer:
            timer(signal.ITIMER_REAL, _AGAIN)
        raise KeyboardInterrupt

    handlers = {signal.SIGTERM: lambda *_: sys.exit(143), signal.SIGINT: interrupt}
    if timer:
        handlers[signal.SIGALRM] = interrupt
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        if timer:
            timer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
