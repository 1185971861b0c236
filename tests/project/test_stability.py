"""docs/stability.md: every public name, argument, command, column, key and listed name of the record is still there.

The record is `public.txt` beside this file. More may be there; what a release adds is recorded by
``python tests/project/test_stability.py``, and the diff is what its changelog says.
"""

import argparse
import dataclasses
import inspect
import json
from pathlib import Path

import pytest

import lowvar
import lowvar.search.optuna
import lowvar.testing

RECORD = Path(__file__).with_name("public.txt")
RESULTS = {"Calibration", "Decomposition", "Fit", "Generation", "IntegralResult", "SearchResult"}  # calls make them


def _default(argument):
    needed = argument.default is argument.empty and argument.kind not in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL)
    return "required" if needed else "" if argument.default is argument.empty else repr(argument.default)


def arguments(name, function):
    """A line for each argument: its place or that it is a keyword, and its default."""
    for place, one in enumerate(inspect.signature(function).parameters.values()):
        kind = {one.KEYWORD_ONLY: "keyword", one.VAR_KEYWORD: "**", one.VAR_POSITIONAL: "*"}.get(one.kind, place)
        yield f"{name} {one.name} {kind}{'/' * (one.kind == one.POSITIONAL_ONLY)} {_default(one)}"


def calls():
    """Names of the library with their arguments, fields and methods."""
    for name in lowvar.__all__:
        one = getattr(lowvar, name)
        yield f"lowvar.{name}"
        if inspect.isfunction(one) or (inspect.isclass(one) and name not in RESULTS | {"UserError"}):
            yield from arguments(f"lowvar.{name}", one)
        if inspect.isclass(one) and name != "UserError":
            fields = dataclasses.fields(one) if dataclasses.is_dataclass(one) else ()
            for member in {*dir(one), *(field.name for field in fields), *getattr(one, "_fields", ())}:
                if not member.startswith("_") and not hasattr(tuple, member):
                    yield f"lowvar.{name}.{member}"
                    if inspect.isfunction(method := getattr(one, member, None)):
                        yield from arguments(f"lowvar.{name}.{member}", method)
    for module in (lowvar.testing, lowvar.search.optuna):
        for name in module.__all__:
            yield f"{module.__name__}.{name}"
            yield from arguments(f"{module.__name__}.{name}", getattr(module, name))


def commands():
    """Commands with their options, and what they list."""
    from lowvar.cli import _parser

    (subs,) = (one for one in _parser([])._actions if isinstance(one, argparse._SubParsersAction))
    for command, parser in subs.choices.items():
        for action in parser._actions:
            yield from (f"$ lowvar {command} {word}" for word in action.option_strings or [action.dest])
    for kind, (names, _) in subs.choices["list"].get_default("do").args[0].items():
        yield from (f"{kind} {name}" for name in names())


def columns():
    """Columns of results, with their types."""
    from lowvar_studies.jobs.load import FAMILIES
    from lowvar_studies.reports import schema

    for family in ("", *FAMILIES):
        files = {one.path: one for one in schema.files(family)}
        files |= {f"tables/{one.name}": one for one in (schema.tables(family) if family else ())}
        for path, file in files.items():
            yield from (f"{family or 'all'} {path} {one.name} {one.dtype}" for one in file.columns)


def keys():
    """Keys of experiment files, with their defaults."""
    from lowvar_studies.jobs.load import json_schema

    schema = json_schema()
    parts = {one["properties"]["family"]["const"]: one for one in schema["anyOf"]} | schema["$defs"]
    for part, one in parts.items():
        for key, value in one.get("properties", {}).items():
            needed = key in one.get("required", ())
            yield f"key {part} {key} {'required' if needed else json.dumps(value.get('default', 'no default'))}"


def surface():
    return sorted({*calls(), *commands(), *columns(), *keys()})


@pytest.fixture(scope="module")
def recorded():
    return set(RECORD.read_text().splitlines())


def test_all_of_the_record_is_there(recorded):
    assert len(recorded) > 500
    assert sorted(recorded - set(surface())) == []


def test_new_arguments_have_defaults(recorded):
    """Else a call that is valid now would be refused."""
    functions = {line.split()[0] for line in recorded if line.startswith("lowvar.")}
    new = [line for line in calls() if line not in recorded and line.endswith(" required")]
    assert not [line for line in new if line.split()[0] in functions]


def test_the_record_holds_what_the_page_promises(recorded):
    for line in ("lowvar.fit data 1 None", "lowvar.Fit.sample num_samples 1 1000", "estimators joint_svrg",
                 "$ lowvar decompose --estimators", "lowvar.minimize x0 1 None"):  # fmt: skip
        assert line in recorded
    assert not [line for line in recorded if " at 0x" in line]


if __name__ == "__main__":
    RECORD.write_text("\n".join(surface()) + "\n")
