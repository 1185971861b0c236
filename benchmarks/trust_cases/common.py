"""The common part of all three kinds of cases."""

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def generator(name: str, *numbers: int) -> np.random.Generator:
    """A random generator for ``name``, independent of other cases."""
    return np.random.default_rng([zlib.crc32(name.encode()), *numbers])


@dataclass(frozen=True)
class Settings:
    """The amount of work.

    Attributes:
        repetitions: repetitions of an integral.
        seeds: seeds of a fit and of a search.
        steps: steps of a fit, or None for its default.
        share: fraction of a search's budget.
        draws: particles of the final ELBO of a fit.
    """

    repetitions: int = 100
    seeds: int = 5
    steps: int | None = None
    share: float = 1.0
    draws: int = 4000


FULL = Settings()
QUICK = Settings(repetitions=15, seeds=3, draws=1000)
SMALLEST = Settings(repetitions=2, seeds=1, steps=20, share=0.02, draws=50)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call: a result, a refusal or a crash.

    Attributes:
        result: the result, or None.
        said: notes and warnings, without duplicates.
        refused: the message of a `UserError`, or "".
        crashed: any other error, or "".
    """

    result: Any
    said: tuple[str, ...] = ()
    refused: str = ""
    crashed: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a case.

    Attributes:
        name: name of the case.
        kind: integrals, models or functions.
        what: description of the case.
        verdict: `fine`, `told`, `behind`, `silently wrong` or `crashed`.
        behind: whether the plain alternative does clearly better.
        measured: measurements by column, for the tables.
        remark: the first note, or what went wrong.
        seconds: time of all its calls.
    """

    name: str
    kind: str
    what: str
    verdict: str
    behind: bool
    measured: dict[str, Any]
    remark: str = ""
    seconds: float = 0.0
    records: list[dict] = field(default_factory=list)


def call(function: Callable, *args, **kwargs) -> Outcome:
    """Calls ``function`` and classifies its warnings and errors."""
    from lowvar import UserError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, refused, crashed = function(*args, **kwargs), "", ""
        except UserError as error:
            result, refused, crashed = getattr(error, "result", None), str(error), ""
        except Exception as error:
            result, refused, crashed = None, "", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    said = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    said += list(getattr(result, "notes", ()) or ())
    return Outcome(result, tuple(dict.fromkeys(said)), refused, crashed)
