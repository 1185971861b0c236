"""Dataclasses from the values of a JSON file. Keys and types are checked, and nothing is converted."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NoReturn

from lowvar.errors import UserError, nearest

_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_SHOWN = 60  # characters of a wrong value


def read(kind: Any, value: Any, where: str, key: str = "") -> Any:
    """``value`` as ``kind``.

    Args:
        kind: a dataclass; ``int``, ``float``, ``str`` or ``bool``; ``Literal``, ``X | None``, ``tuple[X, ...]``,
            ``tuple[X, Y]``, ``dict[K, X]`` or ``Any``; or one of these ``Annotated`` with functions of the value, each
            of which returns a sentence if it is wrong, else ``""``.
        value: the value from the file.
        where: the file, which begins messages.
        key: the path of the value in the file.

    Raises:
        UserError: a key is missing or unknown, or a value has another type or fails a check; or the dataclass's own
            ``__post_init__`` raises one.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)

    def wrong(right: str) -> NoReturn:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} …"
        raise UserError(f"{where}: {key} = {shown}: it must be {right}")

    if kind is Any:
        return value
    if origin is Annotated:
        result = read(args[0], value, where, key)
        for check in args[1:]:
            if right := check(result):
                wrong(right)
        return result
    if origin in (typing.Union, types.UnionType):
        return None if value is None else read(args[0], value, where, key)
    if origin is Literal:
        return value if isinstance(value, str) and value in args else wrong(f"one of {', '.join(args)}")
    if origin is tuple:
        many = args[-1] is Ellipsis
        if not isinstance(value, list) or not (many or len(value) == len(args)):
            wrong("a list" if many else f"a list of {len(args)}")
        kinds: Iterable[Any] = [args[0]] * len(value) if many else args
        return tuple(
            read(one, item, where, f"{key}.{i}") for i, (one, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is dict:
        if not isinstance(value, dict):
            wrong("a mapping of keys")
        return {read(args[0], name, where, f"{key}, key"): read(args[1], item, where, f"{key}.{name}"[:_SHOWN])
                for name, item in value.items()}  # fmt: skip
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, where, key) if isinstance(value, dict) else wrong("a mapping of keys")
    number = isinstance(value, int) if kind is int else isinstance(value, int | float)
    fits = number and not isinstance(value, bool) if kind in (int, float) else isinstance(value, kind)
    return value if fits else wrong(_WORDS[kind])


def _object(kind: Any, value: dict[str, Any], where: str, key: str) -> Any:
    fields = {one.name: one for one in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind, include_extras=True)
    path = f"{key}." if key else ""
    for name in value:
        if name not in fields:
            near = nearest(str(name), fields)
            hint = f": did you mean {near!r}?" if near else ""
            raise UserError(f"{where}: unknown key {path + str(name)[:_SHOWN]!r}{hint} (known: {', '.join(fields)})")
    for name, one in fields.items():
        if name not in value and one.default is dataclasses.MISSING:
            raise UserError(f"{where}: key {path + name!r} is missing")
    try:
        return kind(**{name: read(hints[name], item, where, path + name) for name, item in value.items()})
    except UserError as error:
        said = str(error)
        raise error if said.startswith(where) else UserError(f"{where}: {said}") from error


def within(low: float, high: float) -> Callable[[float], str]:
    """A check that a number lies between two others."""
    return lambda value: "" if low <= value <= high else f"between {low} and {high}"


def at_most(length: int) -> Callable[[str], str]:
    """A check of a text's length."""
    return lambda value: "" if len(value) <= length else f"at most {length} characters long"
