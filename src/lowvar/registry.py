"""Registries of estimators, searches, integrators, problems and all other objects that specs or calls name.

A registry maps a name to a factory, which is imported on first use. Its names are rows, and the entry points of
installed packages, among them lowvar's own. Users pass a factory as an object, write ``module:function``, or install a
package with an entry point; ``declares`` gives such a factory the attributes that a row has.
"""

import ast
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from lowvar.core.files import sha256
from lowvar.errors import UserError, check_known, require, unknown_name

_TYPES: dict[str, tuple[str, Any]] = {
    "bool": ("true or false", (bool, np.bool_)),
    "int": ("a whole number", Integral),
    "float": ("a number", Real),
    "str": ("a name", str),
}
_folders: list[Path] = []  # searched first for ``module:function``: the folders of experiment files


class Option(NamedTuple):
    """A keyword argument of a factory: its types, empty if they are not simple, and whether it is required."""

    types: tuple[str, ...]
    required: bool


class Declared(NamedTuple):
    """A factory's arguments, whether it takes any others, and the attributes that ``declares`` gives it."""

    options: dict[str, Option]
    takes_any: bool
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """A name's entry in a registry.

    Attributes:
        name: as in specs.
        target: ``module:function``, or the factory.
        row: attributes of a row, see ``Registry``; None for a factory that ``declares`` them.
        distribution: the installed package of an entry point; empty for lowvar itself.
    """

    name: str
    target: str | Callable[..., Any]
    row: Mapping[str, Any] | None = None
    distribution: str = ""

    @property
    def about(self) -> Mapping[str, Any]:
        """The attributes of its row, or those that its factory declares."""
        return _arguments(self).about if self.row is None else self.row

    def factory(self) -> Callable[..., Any]:
        """The factory; only this call imports its module.

        Raises:
            UserError: a package that it needs is not installed, or ``module:function`` names no function.
        """
        about = self.about
        for package in about.get("packages", ()):
            require(self.name, package, about.get("extra", ""), self.distribution or "lowvar")
        with _located(self.origin):
            return _function(self.target) if isinstance(self.target, str) else self.target

    @property
    def origin(self) -> str:
        """The beginning of messages about a factory of another package."""
        return self.distribution and f"{self.name!r} of the installed package {self.distribution}"


def row(target: str | Callable[..., Any], **about: Any) -> Entry:
    """A row of a registry, with attributes known without calling the factory."""
    return Entry("", target, about)


def declares(**about: Any) -> Callable[[Callable], Callable]:
    """Gives a factory the attributes of a registry's row; literals are read from its source, without an import.

    >>> @declares(domains=("binary",))
    ... def flips(backend, domain, population=None): ...
    """

    def mark(factory):
        factory.about = about
        return factory

    return mark


def label(given: Any) -> str:
    """The label of a name, or of a factory given as an object."""
    if isinstance(given, str):
        return given
    given = given.func if isinstance(given, functools.partial) else given
    return getattr(given, "__name__", type(given).__name__)


class Registry:
    """Names and their factories.

    Iterating gives all names, those of other packages last; ``own`` are lowvar's.

    Args:
        kind: kind of the objects, e.g. ``"estimator"``, for messages.
        rows: ``name -> module`` (whose function has that name), ``module:function``, a factory, or a ``row`` of those.
        given: arguments of factories that are not options.
        about: further attributes of rows, with their defaults.
        group: group of entry points, lowvar's own and those of other packages, whose names are added.
        accepts: whether an entry point belongs to this registry, by the names of its factory's arguments.

    >>> letters = Registry("letter", {"alpha": "string:capwords", "beta": row("string:Template", vowel=False)})
    >>> letters.get("alpha")("the first letter")
    'The First Letter'
    >>> letters.get("alhpa")
    Traceback (most recent call last):
    ...
    lowvar.errors.UserError: unknown letter 'alhpa': did you mean 'alpha'? (known: alpha, beta)
    """

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, "str | Callable[..., Any] | Entry"],
        *,
        given: Collection[str] = (),
        about: Mapping[str, Any] | None = None,
        group: str | None = None,
        accepts: Callable[[list[str]], bool] | None = None,
    ):
        self.kind, self.given, self.group, self._accepts = kind, tuple(given), group, accepts
        self._about: dict[str, Any] = {"packages": (), "extra": "", **(about or {})}
        self._rows: dict[str, Entry] = {}
        for name, what in rows.items():
            entry = what if isinstance(what, Entry) else row(what)
            short = isinstance(entry.target, str) and ":" not in entry.target
            self._rows[name] = Entry(name, f"{entry.target}:{name}" if short else entry.target, entry.row)

    @property
    def own(self) -> tuple[str, ...]:
        """The names that lowvar itself registers."""
        return tuple(self._own)

    @functools.cached_property
    def _points(self) -> tuple[Entry, ...]:
        """The entry points of the group, which may be shared by several registries."""
        points = _entry_points().select(group=self.group) if self.group else ()
        return tuple(Entry(one.name, one.value, distribution=_distribution(one)) for one in points)

    @functools.cached_property
    def _own(self) -> dict[str, Entry]:
        """The rows, and the entry points of lowvar itself."""
        return self._rows | {entry.name: entry for entry in self._points if not entry.distribution}

    @functools.cached_property
    def _installed(self) -> dict[str, list[Entry]]:
        """The entry points of installed packages by name; a name that several packages register has several."""
        entries: dict[str, list[Entry]] = {}
        for entry in (one for one in self._points if one.distribution and self._takes(one)):
            if entry.name not in self._own or entry.target != self._own[entry.name].target:
                entries.setdefault(entry.name, []).append(entry)
        return entries

    def _the_installed(self, name: str) -> Entry:
        """The entry of an installed package; refused if another, or lowvar, registers the name for another factory."""
        entries = self._installed[name]
        entry, other = entries[-1], self._own.get(name, entries[0])
        if other.target != entry.target:
            one, theirs = (other.distribution, "one") if other.distribution else ("lowvar", entry.distribution)
            both = f"{one} and {entry.distribution} both register it"
            raise UserError(f"{self.kind} {name!r}: {both}; uninstall {theirs}, or rename its entry point")
        return entry

    def _takes(self, entry: Entry) -> bool:
        """Whether an entry point belongs to this registry; a broken one does, and its use says why."""
        try:
            return self._accepts is None or self._accepts(list(_arguments(entry).options))
        except UserError:
            return True

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._own, *self._installed)))

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._installed

    def entry(self, given: str | Callable[..., Any], *, where: str = "", also: Iterable[str] = ()) -> Entry:
        """The entry of ``given``.

        Args:
            given: a name, ``module:function``, or a factory.
            where: the file and key that it comes from.
            also: further names that the caller accepts, for suggestions.

        Raises:
            UserError: the name or function does not exist, or two packages register the name.
        """
        if not isinstance(given, str):
            if not callable(given):
                raise UserError(
                    f"{where or self.kind}: give a name, such as {self.own[0]!r}, 'module:function' or a function, "
                    f"not {type(given).__name__}"
                )
            return Entry(label(given), given)
        if ":" not in given:
            if given in self._own and all(given != point.name for point in self._points if point.distribution):
                return self._own[given]  # without a look into other packages
            if given not in self:
                raise unknown_name(self.kind, given, {*self, *also}, where=where)
            return self._the_installed(given) if given in self._installed else self._own[given]
        with _located(where):
            _file(given)
        return Entry(given, given)

    def get(self, given: str | Callable[..., Any]) -> Callable[..., Any]:
        """The factory named by ``given``, or ``given`` itself if it is one; raises as ``entry``, ``Entry.factory``."""
        return self.entry(given).factory()

    def about(self, given: str | Callable[..., Any]) -> SimpleNamespace:
        """Attributes of a factory, known without calling it: those of its row, or those that it declares."""
        entry = self.entry(given)
        declared = entry.about
        for key in declared:
            check_known("declaration", key, self._about, where=entry.name)
        return SimpleNamespace(**{**self._about, **declared})

    def options_of(self, given: str | Callable[..., Any]) -> dict[str, Option]:
        """The options of a factory by name, read from its source: reading a spec does not import PyTorch."""
        return {name: one for name, one in _arguments(self.entry(given)).options.items() if name not in self.given}

    def check_options(self, given: str | Callable[..., Any], options: Mapping[str, Any], *, where: str = "",
                      also: Iterable[str] = (), instead: Mapping[str, str] | None = None) -> None:  # fmt: skip
        """Checks a factory's ``options``; other arguments as for ``entry`` and ``unknown_name``.

        Raises:
            UserError: an option is unknown, missing or of the wrong type.
        """
        with _located(where):
            arguments, takes_any, _ = _arguments(self.entry(given))
        own = {name: one for name, one in arguments.items() if name not in self.given}
        who = f"{where}: {label(given)}" if where else label(given)
        for name, value in options.items():
            if name in own:
                _check_type(f"{who}: {name}", value, own[name].types)
            elif not takes_any or name in self.given:
                raise unknown_name("option", name, {*own, *also}, where=who, instead=instead)
        for name, option in own.items():
            if option.required and name not in options:
                others = self.given and set(self.given).isdisjoint(arguments)
                first = f"; before its options, a factory takes {' and '.join(self.given[:2])}" if others else ""
                raise UserError(f"{who}: option {name!r} is missing{first}")

    def sources(self, name: str) -> dict[str, str]:
        """The hash of the file that defines a name's factory, if it is not lowvar's own: ``{name: hash}``."""
        foreign = name not in self._own and (":" in name or name in self._installed)
        return {name: sha256(_file(str(self.entry(name).target)))[:16]} if foreign else {}


def look_in(folder: str | Path) -> None:
    """Looks for ``module:function`` in ``folder``, before the working directory and the installed packages."""
    if (folder := Path(folder).resolve()) not in _folders:
        _folders.append(folder)


@functools.cache
def _entry_points() -> Any:
    return importlib.metadata.entry_points()


@functools.cache
def _ours() -> frozenset[str]:
    """The packages of lowvar's own distribution, which are never looked for in the working directory."""
    try:
        points: Any = importlib.metadata.distribution("lowvar").entry_points
    except importlib.metadata.PackageNotFoundError:  # the source is not installed
        points = ()
    return frozenset({__name__.partition(".")[0], *(point.module.partition(".")[0] for point in points)})


def _distribution(point: Any) -> str:
    """The package of an entry point; empty for lowvar itself."""
    name = point.dist.name if point.dist else ""
    return "" if name == "lowvar" else name


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Begins the messages of user errors with ``where``, if it is not empty."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from error


def _check_type(what, value, types):
    if not types or (value is None and "None" in types):
        return
    kinds = [_TYPES[one] for one in types if one in _TYPES]
    truth = isinstance(value, _TYPES["bool"][1])
    if not any(isinstance(value, kind) for _, kind in kinds) or (truth and "bool" not in types):
        raise UserError(f"{what} {value!r}: it must be {' or '.join(words for words, _ in kinds)}")


def _arguments(entry: Entry) -> Declared:
    """The arguments of a factory."""
    if any(importlib.util.find_spec(package) is None for package in (entry.row or {}).get("packages", ())):
        return Declared({}, True, {})  # its options can be checked only where its packages are installed
    with _located(entry.origin):
        return _read(entry.target, _file(entry.target)) if isinstance(entry.target, str) else _inspected(entry.target)


@functools.cache
def _read(target: str, file: Path) -> Declared:
    """As ``_arguments``, from the source if it has a plain ``def`` of the function."""
    function = target.partition(":")[2]
    try:
        body = ast.parse(file.read_text(encoding="utf-8"), file.name).body if file.suffix == ".py" else []
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{target}: {file}: cannot be parsed as Python: {error}") from error
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == function]
    body = [node for one in classes for node in one.body] if len(classes) == 1 else body
    name = "__init__" if classes else function
    plain = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    decorators = [one for node in classes + plain for one in node.decorator_list]
    about = _declared(decorators)
    if len(plain) != 1 or about is None:
        return _inspected(_function(target))
    arguments, options = plain[0].args, {}
    named = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(named) - len(arguments.defaults)) + arguments.defaults
    named, defaults = (named[1:], defaults[1:]) if classes else (named, defaults)  # without self
    for arg, default in (*zip(named, defaults, strict=True),
                         *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):  # fmt: skip
        try:
            kind = type(ast.literal_eval(default)).__name__ if default is not None else ""
        except ValueError:
            kind = ""
        options[arg.arg] = Option(_simple(ast.unparse(arg.annotation) if arg.annotation else kind), default is None)
    return Declared(options, arguments.kwarg is not None, about)


def _declared(decorators: list[ast.expr]) -> dict[str, Any] | None:
    """The attributes of ``@declares(...)``; None if they are not literals, or there are other decorators."""
    about: dict[str, Any] = {}
    for one in decorators:
        if not isinstance(one, ast.Call) or getattr(one.func, "id", "") != "declares":
            return None
        try:
            about |= {str(key.arg): ast.literal_eval(key.value) for key in one.keywords}
        except (TypeError, ValueError):
            return None
    return about


def _inspected(factory) -> Declared:
    about = getattr(factory, "about", {})
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return Declared({}, True, about)
    options = {}
    for name, one in parameters.items():
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            required = one.default is one.empty
            text = "" if required else type(one.default).__name__
            if one.annotation is not one.empty:
                text = inspect.formatannotation(one.annotation).strip("'")
            options[name] = Option(_simple(text), required)
    return Declared(options, any(one.kind is one.VAR_KEYWORD for one in parameters.values()), about)


def _simple(annotation: str) -> tuple[str, ...]:
    """The types of an annotation, if specs can be checked against all of them."""
    types = tuple(one.strip() for one in annotation.split("|"))
    return types if set(types) <= {*_TYPES, "None"} and set(types) != {"None"} and set(types) != {"NoneType"} else ()


def _file(target: str) -> Path:
    """The file of the module in ``module:function``."""
    module, _, function = target.partition(":")
    parts = module.split(".")
    if module.endswith(".py") or not all(part.isidentifier() for part in (*parts, *function.split("."))):
        raise UserError(f"{target!r}: write module:function, as in mine:factory for a function in mine.py")
    if parts[0] not in _ours():
        candidates = [
            next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file()), None)
            for base in (folder.joinpath(*parts) for folder in dict.fromkeys((*_folders, Path.cwd())))
        ]
        files = [file for file in candidates if file]
        if len(files) > 1:  # Python would import the first under both names
            raise UserError(f"{target!r}: both {files[0]} and {files[1]} are called {module!r}; rename one of them")
        if files:
            return files[0]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    except (Exception, SystemExit) as error:  # looking for a module imports the packages around it
        raise UserError(f"{target!r}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    if spec is None or not spec.origin:
        places = ", ".join(map(str, dict.fromkeys((*_folders, Path.cwd()))))
        raise UserError(f"{target!r}: there is no module {module!r} in {places}, and none is installed")
    return Path(spec.origin)


def _function(target: str) -> Callable[..., Any]:
    """The function of ``module:function``."""
    name, _, function = target.partition(":")
    file = _file(target)
    if name.partition(".")[0] in _ours():
        return functools.reduce(getattr, function.split("."), importlib.import_module(name))
    folder = file.parent if file.name != "__init__.py" else file.parent.parent
    folder = folder.parents[name.count(".") - 1] if "." in name else folder
    if any(folder == place for place in (*_folders, Path.cwd())) and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UserError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from error
    if module.__file__ and Path(module.__file__).resolve() != file.resolve():
        raise UserError(f"{file}: {module.__file__} has the same module name, {name!r}: rename yours")
    try:
        factory = functools.reduce(getattr, function.split("."), module)
    except AttributeError:
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown_name("function", function, names, where=str(file)) from None
    if not callable(factory):
        raise UserError(f"{target!r}: it must be a function, not of type {type(factory).__name__}")
    return factory
