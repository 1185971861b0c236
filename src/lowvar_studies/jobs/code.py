"""The code that a job's result depends on, as hashes of modules: a kept page whose code has changed is stale.

Comments, docstrings and empty lines do not count.
"""

import ast
import hashlib
import importlib.util
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGES = ("lowvar", "lowvar_studies")
_OF_FAMILIES = {
    "variational": {"vi", "variational", "models"},
    "search": {"search", "searches", "functions"},
    "integral": {"integral", "integrals", "integrators"},
}
_WITHOUT_NUMBERS = re.compile(
    r"lowvar\.(cli|terminal|errors|registry|user|vi\.plots|core\.(drawing|files|npz|artifact))"
    r"|lowvar_studies\.(commands|yaml_files|datasets\.fetch)"
    r"|lowvar_studies\.jobs\.(commands|code|load|study|local|common_files|common_spec)"
    r"|lowvar_studies\.reports\.(claims|text|keep|pages|remake|front|published|findings|schema|declarations|gathered)"
    r"|lowvar_studies\.reports\.drawing(\..*)?"
    r"|lowvar_studies\.reports\.\w+\.(files|family|effects|figures(\..*)?)"
)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def loaded(family: str) -> dict[str, str]:
    """The modules of lowvar that this process has imported and that numbers of a family can depend on, with hashes.

    Modules that only read settings, write files, draw or judge are left out, as are those of another family:
    ``lowvar.vi`` for a search, say, is imported for the command line alone.

    Args:
        family: ``variational``, ``search`` or ``integral``.
    """
    other = set().union(*_OF_FAMILIES.values()) - _OF_FAMILIES[family]
    names = [name for name in sorted(sys.modules) if name.partition(".")[0] in _PACKAGES and "." in name]
    return _hashes(name for name in names if _part(name) not in other and not _WITHOUT_NUMBERS.fullmatch(name))


def of_data(data: Iterable[Any]) -> dict[str, str]:
    """The modules that make prepared data, as experiments name these, with hashes: jobs only load the files."""
    scalings = {one.scaling for one in data}
    names = [f"lowvar_studies.datasets.{name}" for name in ("bundled", "catalogue", "prepare", "readers", "tennis")]
    return _hashes([*names, *(["lowvar_studies.datasets.lenet"] if "lenet" in scalings else [])] if scalings else [])


def _hashes(names: Iterable[str]) -> dict[str, str]:
    return {name: digest for name in names if (digest := _hash(name))}


def _part(module: str) -> str:
    """The part of a package that a module is in: ``vi`` of ``lowvar.vi.torch.functions``.

    >>> _part("lowvar_studies.jobs.search.spec"), _part("lowvar_studies.functions.policy")
    ('search', 'functions')
    """
    _, part, *rest = module.split(".")
    return rest[0] if part in ("jobs", "reports") and rest else part


def changed(recorded: Mapping[str, str]) -> list[str]:
    """The recorded modules whose code is another now, or that are gone."""
    return [name for name, digest in recorded.items() if _hash(name) != digest]


@cache
def _hash(module: str) -> str | None:
    """The hash of a module's code; None for one that is not there, or is empty."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    if found is None or not found.origin or not found.origin.endswith(".py"):
        return None
    text = _bare(Path(found.origin).read_text(encoding="utf-8"))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else None


def _bare(source: str) -> str:
    """Source without docstrings, comments and empty lines: unlike a parsed form, equal on all versions of Python."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    documented = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, _DOCUMENTED) and ast.get_docstring(node)
    ]
    content = [line.encode() for line in lines]  # positions are in bytes
    for one in sorted((node.body[0] for node in documented), key=lambda node: node.lineno, reverse=True):
        first, last = one.lineno - 1, (one.end_lineno or one.lineno) - 1
        rest = content[last][one.end_col_offset :]
        content[first : last + 1] = [content[first][: one.col_offset] + rest]
    return "\n".join(line.rstrip() for line in b"\n".join(content).decode().splitlines() if line.strip())
