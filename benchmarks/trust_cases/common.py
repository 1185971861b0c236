"""What all three kinds of cases share."""

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def generator(name: str, *numbers: int) -> np.random.Generator:
    """Random numbers that belong to a name, whatever else is run."""
    return np.random.default_rng([zlib.crc32(name.encode()), *numbers])


@dataclass(frozen=True)
class Settings:
    """How much is run.

    Attributes:
        repetitions: of an integral.
        seeds: of a fit and of a search.
        steps: of a fit, or None for its default.
        share: of a search's budget.
        draws: for the ELBO at the end of a fit.
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
    """What a call did: gave a result, refused, or crashed.

    Attributes:
        result: what it returned, or None.
        said: notes and warnings, without repetitions.
        refused: the sentence of a `UserError`, or "".
        crashed: any other error, or "".
    """

    result: Any
    said: tuple[str, ...] = ()
    refused: str = ""
    crashed: str = ""


@dataclass(frozen=True)
class Verdict:
    """Of a case.

    Attributes:
        name: of the case.
        kind: integrals, models or functions.
        what: the case is.
        verdict: `fine`, `told`, `behind`, `silently wrong` or `crashed`.
        behind: whether the plain alternative does clearly better.
        measured: by column, for the tables.
        remark: the first sentence that was said, or what went wrong.
        seconds: that all its calls took.
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
    """Calls with warnings and errors caught, and told apart."""
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
