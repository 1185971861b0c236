"""The page of all files and columns, docs/results-schema.md, generated from the declarations."""

import re
import textwrap
from importlib import resources

from lowvar.studies.base import Column, File, Table
from lowvar.studies.files import FILES
from lowvar.studies.load import FAMILIES

TEXT = "schema.md"  # conventions, with marks that the declarations replace


def files(family: str = "") -> tuple[File, ...]:
    """The files that a family's jobs write, or by default those that all families share."""
    return FAMILIES[family].files if family else FILES


def tables(family: str) -> tuple[Table, ...]:
    """The tables of a family that are written to files."""
    return tuple(one for one in FAMILIES[family].tables if one.kept)


def page() -> str:
    """The text of docs/results-schema.md."""
    text = resources.files("lowvar.studies").joinpath(TEXT).read_text(encoding="utf-8")
    return re.sub(r"^<!-- (\w+) ?(\w*) -->$", lambda mark: _declared(*mark.groups()), text, flags=re.M)


def _declared(what, family):
    if what == "files":
        return "\n\n".join(_section(f"`{one.path}`", one, family) for one in files(family))
    return "\n\n".join(_section(_files_of(one), one, family) for one in tables(family))


def _files_of(table: Table) -> str:
    return f"`tables/{table.name}.parquet`, `tables/{table.name}.csv`"


def _section(title: str, one: File | Table, family: str) -> str:
    heading = f"### {title} ({family})" if family else f"### {title}"
    source = "Made by `lowvar table --seconds`. " if isinstance(one, Table) and one.timed else ""
    about = textwrap.fill(source + one.about, 120, break_long_words=False, break_on_hyphens=False)
    return f"{heading}\n\n{about}\n\n{_rows(one.columns)}"


def _rows(columns: tuple[Column, ...]) -> str:
    lines = ["| name | dtype | unit | meaning |", "| --- | --- | --- | --- |"]
    for one in columns:
        dtype = f"{one.dtype}, perhaps" if one.perhaps else one.dtype
        unit, meaning = f" {one.unit}".rstrip(), one.meaning.replace("|", "\\|")
        lines.append(f"| `{one.name}` | {dtype} |{unit} | {meaning} |")
    return "\n".join(lines)
