"""The page of all files, figures, effects and keys, generated from the declarations."""

import inspect
import json
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any

from lowvar_studies.jobs.common_files import FILES
from lowvar_studies.jobs.common_spec import ExperimentSpec
from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.reports.declarations import Column, Family, File, Table
from lowvar_studies.reports.effect import SHARED

TEXT = "schema.md"  # conventions, with marks that the declarations replace


def files(family: str = "") -> tuple[File, ...]:
    """The files that a family's jobs write, or by default those that all families share."""
    return FAMILIES[family].files if family else FILES


def tables(family: str) -> tuple[Table, ...]:
    """The tables of a family that are written to files."""
    return tuple(one for one in FAMILIES[family].tables if one.kept)


def page() -> str:
    """The text of the page."""
    text = resources.files("lowvar_studies.reports").joinpath(TEXT).read_text(encoding="utf-8")
    return re.sub(r"^<!-- (\w+) ?(\w*) -->$", lambda mark: _declared(*mark.groups()), text, flags=re.M)


def _declared(what, family):
    if what == "files":
        return "\n\n".join(_section(f"`{one.path}`", one, family) for one in files(family))
    if what == "tables":
        return "\n\n".join(_section(_files_of(one), one, family) for one in tables(family))
    if what == "keys":
        return _keys(FAMILIES[family].experiment if family else ExperimentSpec)
    return _figures(FAMILIES[family]) if what == "figures" else _effects(FAMILIES[family].effects if family else SHARED)


def _files_of(table: Table) -> str:
    return f"`tables/{table.name}.parquet`, `tables/{table.name}.csv`"


def _section(title: str, one: File | Table, family: str) -> str:
    heading = f"### {title} ({family})" if family else f"### {title}"
    source = "Made by `lowvar table --seconds`. " if isinstance(one, Table) and one.timed else ""
    about = textwrap.fill(source + one.about, 120, break_long_words=False, break_on_hyphens=False)
    return f"{heading}\n\n{about}\n\n{_rows(one.columns)}"


def _rows(columns: tuple[Column, ...]) -> str:
    rows = ((f"`{c.name}`", f"{c.dtype}, perhaps" if c.perhaps else c.dtype, c.unit, c.meaning) for c in columns)
    return _markdown(("name", "dtype", "unit", "meaning"), rows)


def _markdown(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    cells = ([" " + cell.replace("|", "\\|") if cell else "" for cell in line] for line in lines)
    return "\n".join("|" + " |".join(line) + " |" for line in cells)


def _figures(family: Family) -> str:
    rows = ((f"`{one.name}`", f"`{one.table}`", one.caption) for one in family.figures.values())
    return _markdown(("figure", "table", "caption"), rows)


def _effects(effects: Mapping[str, Any]) -> str:
    rows = ((f"`{name}`", _arguments(one), _text(one)) for name, one in effects.items())
    return _markdown(("effect", "arguments", "value"), rows)


def _text(function: Any) -> str:
    """A docstring, in one line of Markdown."""
    return " ".join((inspect.getdoc(function) or "").replace("``", "`").split())


def _arguments(effect: Any) -> str:
    """The arguments that a claim gives to an effect, with choices and defaults."""
    out = []
    for name, one in list(inspect.signature(effect).parameters.items())[1:]:
        kinds = (one.annotation, *typing.get_args(one.annotation))
        literal = next((kind for kind in kinds if typing.get_origin(kind) is typing.Literal), None)
        about = [", ".join(f"`{choice}`" for choice in typing.get_args(literal))] if literal else []
        if one.default is not one.empty:
            about.append(f"default `{one.default}`" if one.default not in (None, ()) else "optional")
        out.append(f"`{name}` ({'; '.join(about)})" if about else f"`{name}`")
    return ", ".join(out)


def _keys(model: Any) -> str:
    """The keys of an experiment's model, without those of all families."""
    schema, shared = model.model_json_schema(), ExperimentSpec.model_fields if model is not ExperimentSpec else ()
    schema["properties"] = {name: one for name, one in schema["properties"].items() if name not in shared}
    return _markdown(("key", "type", "default", "meaning"), _keys_of(schema, schema.get("$defs", {}), ""))


def _keys_of(model: Mapping[str, Any], known: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each key of a model's JSON schema, with dots between levels and names in braces."""
    for name, one in model["properties"].items():
        kinds = one.get("anyOf", [one])
        places = [(kind.get("additionalProperties"), f".{{{name.removesuffix('s')}}}") for kind in kinds]
        places += [(kind, "") for kind in kinds]
        default = "" if name in model.get("required", ()) else _value(one.get("default", {}))
        if inner := [(of["$ref"], each) for of, each in places if isinstance(of, Mapping) and "$ref" in of]:
            reference, each = inner[0]
            if "description" in one:
                yield f"`{prefix}{name}`", "mapping", default, one["description"]
            yield from _keys_of(known[reference.rpartition("/")[2]], known, f"{prefix}{name}{each}.")
            continue
        yield f"`{prefix}{name}`", " or ".join(map(_type, kinds)), default, one.get("description", "")


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)


_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "mapping"}
_LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def _type(one: Mapping[str, Any]) -> str:
    """The type of a key: its choices, or its name and limits."""
    if choices := one.get("enum") or [one["const"]] if "const" in one or "enum" in one else []:
        return ", ".join(f"`{choice}`" for choice in choices)
    items = one.get("items", {})
    of = f" of {_type(items)}" if "enum" in items else ""
    limits = [f"{word} {one[limit]:g}" for limit, word in _LIMITS.items() if limit in one]
    within = f" ({', '.join(limits)})" if limits else ""
    return f"{_TYPES.get(one.get('type', ''), one.get('type', ''))}{of}{within}"
