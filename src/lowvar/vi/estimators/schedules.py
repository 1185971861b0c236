"""Schedules ``eta_t`` of step sizes, which also set the number of particles of the multilevel estimators."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from lowvar.errors import UserError, check_known

KINDS = ("time", "step", "exponential", "piecewise", "cosine")
_SETTINGS = ("kind", "beta", "r", "values", "rounded")


@dataclass(frozen=True)
class Schedule:
    """``eta_t``, which starts at 1 and never increases; ``t`` counts steps.

    Attributes:
        kind: ``"time"``, ``eta_t = 1 / (1 + beta t)``; ``"step"``, ``beta^floor(t / r)``; ``"exponential"``,
            ``exp(-beta t)``; ``"piecewise"``, with ``values``; or ``"cosine"``, 1 until ``(1 - beta) r`` and from there
            half a cosine down to 0 at step ``r``.
        beta: rate of decay, in (0, 1]; for ``"cosine"``, the share of the ``r`` steps over which it falls.
        r: steps between drops, for ``"step"``; number of steps, for ``"cosine"``.
        values: pairs ``(step, eta from there on)``, for ``"piecewise"``.
        rounded: whether numbers of particles are rounded up to one of about twenty, as for smooth schedules.
    """

    kind: str
    beta: Any = None
    r: Any = None
    values: tuple[tuple[int, float], ...] = ()
    rounded: bool = False

    def eta(self, t, xp: Any = math):
        """``eta_t`` at step ``t``: a number, or an array of ``xp``."""
        if self.kind == "time":
            return 1 / (1 + self.beta * t)
        if self.kind == "exponential":
            return xp.exp(-self.beta * t)
        if self.kind == "step":
            return self.beta ** (t // self.r)
        if self.kind == "cosine":
            left = (1 - t / self.r) / self.beta  # of the fall: above 1 before it, below 0 after its end
            left = min(max(left, 0.0), 1.0) if xp is math else xp.clip(left, 0.0, 1.0)
            return (1 - xp.cos(math.pi * left)) / 2
        eta = 1.0
        for start, value in self.values:
            reached = t >= start
            eta = (value if reached else eta) if xp is math else xp.where(reached, value, eta)
        return eta

    def particles(self, t: int, first: int) -> int:
        """``N_t = ceil(eta_{t-1} N_0)`` with ``N_0 = first``.

        A smooth schedule passes through every number of particles, and each number needs its own compiled program.
        They are therefore rounded up to one of about twenty.
        """
        exact = max(1, math.ceil(self.eta(max(t - 1, 0)) * first - 1e-9))
        few = self.kind in ("step", "piecewise") and not self.rounded
        return exact if few else min(first, rounded_up(exact))


def schedule(
    kind: str, beta: float | None = None, r: int | None = None, values: Iterable = (), rounded: bool = False
) -> Schedule:
    """A checked ``Schedule``.

    Raises:
        UserError: the kind is unknown, a setting is missing, out of range or belongs to another kind, or values
            increase.

    References:
        Fujisawa and Sato (2021), Appendix D.

    >>> [schedule("step", beta=0.5, r=2).eta(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    >>> [schedule("step", beta=0.5, r=2).particles(t, 10) for t in range(5)]
    [10, 10, 10, 5, 5]
    >>> [round(schedule("cosine", beta=0.5, r=8).eta(t), 2) for t in range(10)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """
    check_known("schedule", kind, KINDS)
    if not isinstance(values, list | tuple):
        raise UserError(f"schedule {kind!r}: values = {values!r}: give pairs of a step and a value")
    pairs: Any = tuple(tuple(pair) if isinstance(pair, list | tuple) else (pair,) for pair in values)
    present = {"beta": beta is not None, "r": r is not None, "values": bool(pairs)}
    wanted = {"piecewise": ("values",), "step": ("beta", "r"), "cosine": ("beta", "r")}.get(kind, ("beta",))
    for name, there in present.items():
        if there != (name in wanted):
            raise UserError(
                f"schedule {kind!r} takes {' and '.join(wanted)}: {name} {'is not one' if there else 'is missing'}"
            )
    if beta is not None and (isinstance(beta, bool) or not (isinstance(beta, Real) and 0 < beta <= 1)):
        raise UserError(f"schedule {kind!r}: beta = {beta!r}; it must be above 0 and at most 1")
    if r is not None and (isinstance(r, bool) or not (isinstance(r, Integral) and r >= 1)):
        raise UserError(f"schedule {kind!r}: r = {r!r}; it must be a whole number of steps, 1 or more")
    last_step, last = 0, 1.0
    for pair in pairs:
        if len(pair) != 2 or not (isinstance(pair[0], Integral) and pair[0] > last_step):
            raise UserError(f"schedule 'piecewise': {list(pair)}; give pairs of a step and a value, steps ascending")
        if not (isinstance(pair[1], Real) and 0 < pair[1] <= last):
            raise UserError(f"schedule 'piecewise': {pair[1]} from step {pair[0]}; it must not increase, or reach 0")
        last_step, last = pair
    return Schedule(kind, beta, r, pairs, rounded)


def schedule_of(given: Mapping[str, Any], where: str) -> Schedule:
    """A checked ``Schedule`` from its settings by name; ``where`` begins the messages.

    Raises:
        UserError: as for ``schedule``; or no mapping, an unknown setting, or no ``kind``.
    """
    if not isinstance(given, Mapping):
        raise UserError(f'{where} = {given!r}: give its settings, such as {{"kind": "step", "beta": 0.5, "r": 100}}')
    for name in given:
        check_known("setting", name, _SETTINGS, where=where)
    if "kind" not in given:
        raise UserError(f"{where}: kind is missing, one of {', '.join(KINDS)}")
    try:
        return schedule(**given)
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix('schedule ')}") from error


def rounded_up(count: int) -> int:
    """The smallest of 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, ... (ten per decade) that is at least ``count``.

    >>> [rounded_up(n) for n in (1, 7, 11, 90, 101)]
    [1, 8, 13, 100, 126]
    """
    k = 0
    while (size := round(10 ** (k / 10))) < count:
        k += 1
    return size


def rounded_to(count: float) -> int:
    """The nearest of 1, 2, 3, 4, 6, 10, 16, 25, 40, ... (five per decade) on a logarithmic scale; 1 below them.

    >>> [rounded_to(n) for n in (0.2, 7, 11, 26.8)]
    [1, 6, 10, 25]
    """
    return round(10 ** (max(0, round(5 * math.log10(count))) / 5))
