"""The error class for mistakes that the user can fix, and helpers for its messages."""

import errno
import importlib.util
import math
import re
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from textwrap import shorten
from typing import Any

RECODE = "labels of a Bernoulli are 0 and 1, categories are numbered from 0, counts are whole; recode"
_MANY = 20  # names, above which a message says how to list them


class UserError(ValueError):
    """A mistake that the caller can fix: one message that says what is wrong, where, and what would be right.

    The command line prints the message alone and ends with exit code 2. Any other exception is a fault of the library
    and keeps its traceback.

    >>> import lowvar
    >>> try:
    ...     lowvar.minimize(sum, [0.0, 0.0], sigma0=-1.0)
    ... except lowvar.UserError as error:
    ...     print(error)
    sigma0 ...
    """


class TooFewPoints(UserError):
    """Too few points for this method; another method may need fewer."""


# of places and devices, which the caller can change; others, such as a missing file, may be a fault of the library
_PLACES = {errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG, errno.ELOOP, errno.ENODEV, errno.EROFS}
_REMEDIES = {
    errno.ENOSPC: "free some space, or choose another folder",
    errno.EDQUOT: "free some space, or choose another folder",
    errno.EFBIG: "it is larger than the file system or a limit (ulimit -f) permits",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "remove the folder of this name, or choose another name",
    errno.ENOTEMPTY: "remove the folder of this name, or choose another name",
    errno.EIO: "try again, or choose another folder",
}


def file_error(error: OSError, path: object = None) -> UserError | None:
    """The refusal of a file that the system cannot read, or of ``path``, which it cannot write; None for others."""
    place = error.filename if path is None else path
    if error.errno is None or place is None or (path is None and error.errno not in _PLACES):
        return None
    remedy = _REMEDIES.get(error.errno, "choose a file or folder that you may use")
    return UserError(f"{'' if path is None else 'cannot write '}{shown(place)}: {error.strerror or error}; {remedy}")


def shown(path: object) -> str:
    """A path for a message: the ends of a very long one."""
    name = str(path)
    return name if len(name) < 300 else f"{name[:100]} … {name[-50:]}"


def unknown_name(
    kind: str,
    name: object,
    known: Iterable[str],
    *,
    where: str = "",
    instead: Mapping[str, str] | None = None,
    see: str = "",
) -> UserError:
    """The error for a name that is not in a list, with the one that is meant if one is close, see ``nearest``.

    Args:
        kind: the kind of object, e.g. ``"estimator"``.
        name: the given name.
        known: the valid names.
        where: the file or key that the name came from, if any.
        instead: for names that other libraries have, a substitute in words.
        see: a command or file that lists the valid names, which stands for them where they are many.

    >>> unknown_name("estimator", "jiont", ["naive", "cv", "joint"]).args[0]
    "unknown estimator 'jiont': did you mean 'joint'? (known: cv, joint, naive)"
    >>> unknown_name("estimator", "adaptive_joint", ["joint_adaptive", "mlmc_adaptive"]).args[0].split("? ")[0]
    "unknown estimator 'adaptive_joint': did you mean 'joint_adaptive'"
    """
    known = sorted(known)
    near = nearest(str(name), known)
    hint = f": did you mean {near!r}?" if near else ""
    hint = f": {instead[str(name)]}" if instead and name in instead else hint
    prefix = f"{where}: " if where else ""
    listed = f"{len(known)} known, see: {see}" if see and len(known) > _MANY else f"known: {', '.join(known) or 'none'}"
    return UserError(f"{prefix}unknown {kind} {name!r}{hint} ({listed})")


def require(who: str, package: str, extra: str = "", distribution: str = "lowvar") -> None:
    """Raises ``UserError`` unless ``package``, which ``who`` needs, is installed.

    Args:
        who: the call, command or method.
        package: the name under which the package is imported.
        extra: the extra of ``distribution`` that installs it; empty if the package is installed under its own name.
        distribution: the distribution that ``who`` is of.

    >>> require("figures", "no_such_library", "plot")
    Traceback (most recent call last):
    ...
    lowvar.errors.UserError: figures needs no_such_library: pip install 'lowvar[plot]'
    """
    if importlib.util.find_spec(package) is None:
        source = f"'{distribution}[{extra}]'" if extra else package
        raise UserError(f"{who} needs {package}: pip install {source}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one stands for: one with few other letters, or the only one that begins so.

    A letter in four may be missing, added or another, or swapped with the next one; one may in a short name. Capitals,
    punctuation and the order of words do not count.

    >>> known = ["curves", "effort", "joint_adaptive"]
    >>> [nearest(name, known) for name in ("cuvres", "Adaptive-Joint", "eff", "errors")]
    ['curves', 'joint_adaptive', 'effort', None]
    """
    given, found, completions = _by_word(name), [], []
    for one in known:
        names = _by_word(one)
        longer = max(len(given[0]), len(names[0]))
        most = max(longer // 4, longer > 1)
        edits = [_edits(*pair, most) for pair in zip(given, names, strict=True)]
        if min(edits) <= most:
            found.append((min(edits), edits[0], one))
        if len(given[0]) > 2 and names[0].startswith(given[0]):
            completions.append(one)
    return min(found)[2] if found else completions[0] if len(completions) == 1 else None


def _by_word(name: str) -> tuple[str, str]:
    """The words of a name in small letters, in their order and in that of the alphabet."""
    words = [word for word in re.split(r"[\W_]+", name.lower()) if word]
    return "_".join(words), "_".join(sorted(words))


def _edits(a: str, b: str, most: int) -> int:
    """How many letters one inserts, drops, replaces or swaps with the next one to turn ``a`` into ``b``.

    Where lengths alone say that it is more than ``most``, it is ``most + 1``.
    """
    if abs(len(a) - len(b)) > most:
        return most + 1
    before, last = [], list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], before[j - 2] + 1)
        before, last = last, row
    return last[-1]


def check_known(kind: str, name: object, known: Collection[str], *, where: str = "", see: str = "") -> None:
    """Raises ``unknown_name`` unless the name is in the list; arguments as there."""
    if name not in known:
        raise unknown_name(kind, name, known, where=where, see=see)


def chosen_names(kind: str, given: Any, known: Collection[str], *, where: str) -> list[str]:
    """One name or several of a list, in the given order; all of the list for None.

    Args:
        kind: the kind of object, e.g. ``"site"``.
        given: a name, names, or None.
        known: the valid names.
        where: the argument that the names came from.

    Raises:
        UserError: an unknown name, none, or something else than names.

    >>> chosen_names("site", "b", ["a", "b"], where="var_names")
    ['b']
    """
    if given is None:
        return list(known)
    several = isinstance(given, Iterable) and not isinstance(given, (str, Mapping))
    names: list[Any] = list(given) if several else [given]
    if not names or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where} {given!r}: give one name or several, of {', '.join(known) or 'none'}")
    for name in names:
        check_known(kind, name, known, where=where)
    return names


def kind_of(value: object) -> str:
    """The name of a value's type with its article.

    >>> kind_of(1), kind_of("1")
    ('an int', 'a str')
    """
    name = type(value).__name__.removesuffix("Impl")  # jax.Array is an ArrayImpl
    return f"{'an' if name[:1].lower() in set('aeio') or name == 'ndarray' else 'a'} {name}"


def whole(name: str, value: object, least: int, *, or_float: bool = False) -> int:
    """``value`` as an int; raises UserError unless it is a whole number, ``least`` or more.

    With ``or_float``, ``1e4`` counts as one.
    """
    if or_float and isinstance(value, Real) and not isinstance(value, Integral) and float(value).is_integer():  # type: ignore[arg-type]
        value = int(value)  # type: ignore[call-overload]
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        if _is_jax_key(value):
            raise UserError(f"{name}: a JAX key: give a whole number, such as {name}={least}")
        raise UserError(f"{name} {' '.join(repr(value).split())}: it must be a whole number, {least} or more")
    return int(value)


def _is_jax_key(value: Any) -> bool:
    """Whether it is of ``jax.random.key``, or has the form of those of ``PRNGKey``; JAX is not imported."""
    if not type(value).__module__.startswith("jax") or not hasattr(value, "dtype"):
        return False
    return str(value.dtype).startswith("key<") or (str(value.dtype) == "uint32" and value.shape in ((2,), (4,)))


def positive(name: str, value: object, *, or_zero: bool = False) -> float:
    """``value`` as a float; raises UserError unless it is a finite number above 0, or ``or_zero``."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and (0 < value < math.inf or (or_zero and value == 0))):  # pyright: ignore[reportOperatorIssue]
        raise UserError(f"{name} {value!r}: it must be a {'number, 0 or more' if or_zero else 'positive number'}")
    return float(value)  # type: ignore[arg-type]


def one_line(error: BaseException, width: int = 200) -> str:
    """An error's type and message in one line of some 200 characters, without JAX's account of the place."""
    said = str(error).split("The error occurred while tracing")[0]
    return f"{type(error).__name__}: {shorten(said, width, placeholder=' …')}"
