"""The pages of ``docs`` that make promises: code that runs, and columns that are there."""

import ast
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import typing
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
import pydantic
import pytest
import yaml

from lowvar import commands
from lowvar.runs.spec import SCALES, Experiment

DOCS = Path(__file__).parents[1] / "docs"
CONTRACTS = Path(__file__).parent / "contracts"
SCALE = "smoke"

CLAIMS = """
- id: between
  statement: damped ends below naive
  source: ours
  test:
    kind: below
    quantity: {problem: breast_cancer, method: damped, block: mu}
    others: [{problem: breast_cancer, method: naive, block: mu}]
- id: published
  statement: a number
  source: ours
  test: {kind: value, quantity: {problem: breast_cancer, method: naive}, published: 1.0}
"""


# the worked example -------------------------------------------------------------------------------------------------


def blocks(language):
    """The fenced blocks of the worked example in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / "adding-an-estimator.md").read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """The page's file and its row of the registry, in force."""
    (content, row, _), folder = blocks("python"), tmp_path_factory.mktemp("estimators")
    ((name, module_name),) = ast.literal_eval(f"{{{row}}}").items()
    path = folder / f"{module_name.rpartition('.')[2]}.py"
    path.write_text(content)
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        from lowvar import estimators

        patch.setitem(sys.modules, module_name, module)
        patch.setattr(estimators, "GRADIENT", MappingProxyType({**estimators.GRADIENT, name: module_name}))
        patch.syspath_prepend(str(CONTRACTS))
        yield name


def test_example_is_unbiased(registered):
    """The contract test itself, on fresh iid noise: the exact gradient, 5 SE, gated on power."""
    from test_unbiased import test_mean_is_the_exact_gradient as contract

    from lowvar.noise import independent

    contract(registered, 0, independent())


def test_example_costs_what_it_declares(registered):
    import test_estimators

    test_estimators.test_declared_oracles_are_what_it_computes(registered, 1, test_estimators.reshuffled)
    test_estimators.test_declared_full_passes_and_table(registered)


def test_example_agrees_between_backends(registered):
    from test_estimators import test_backends_agree_on_the_same_noise as contract

    from lowvar.noise import independent

    contract(registered, independent(), "sgd")


@pytest.mark.parametrize(("coefficient", "name"), [(0.0, "naive"), (1.0, "cv")])
def test_example_has_the_ends_that_it_says(registered, coefficient, name):
    from enumerable import epoch_noise, flat, params, problem

    from lowvar.estimators import gradient_estimator
    from lowvar.noise import Noise, reshuffled

    p, gradients = problem(), []
    noise = Noise(*(part[0] for part in epoch_noise(p, reshuffled(p.N, 3), 0)))
    assert inspect.getdoc(gradient_estimator(registered)).count("References:") == 1
    for factory, options in ((registered, {"coefficient": coefficient}), (name, {})):
        estimator = gradient_estimator(factory)(p, None, **options)
        assert estimator.name == factory
        gradient = jax.jit(lambda w, noise, one=estimator: one.estimate(one.init(w), w, noise)[0])
        gradients.append(flat(gradient(params(), noise)))
    np.testing.assert_allclose(*gradients, rtol=1e-12)


# a real experiment: the one of the worked example --------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(registered, tmp_path_factory):
    """The page's experiment, run whole in a folder of its own by the functions behind the commands."""
    from lowvar.datasets.prepare import prepare

    folder = tmp_path_factory.mktemp("walk")
    (content,) = blocks("yaml")
    name = yaml.safe_load(content)["name"]
    (folder / f"{name}.yaml").write_text(content)
    (folder / "claims.yaml").write_text(CLAIMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        place = commands.Place.load(f"{name}.yaml", SCALE)
        for problem, spec in place.experiment.problems.items():
            prepare(spec.dataset, spec.scaling, out=place.prepared(problem))
            for method in place.experiment.methods:
                for backend in place.experiment.backends:
                    commands.run(place, problem, method, backend)
            commands.decompose(place, problem)
        commands.tables(place)
        commands.tables(place, seconds=True)
        for kind in ("shares", "along", "convergence", "steps", "seconds"):
            commands.figure(place, kind)
        commands.claims(place, "claims.yaml")
        yield place


def test_example_lies_between_naive_and_cv(place, capsys):
    """The page's last block of code reads the tables: of the part for mu, cv removes most and the example some."""
    found = {}
    exec(blocks("python")[-1], found)
    variance = found["variance"]
    assert capsys.readouterr().out
    assert place.experiment.methods["damped"].options == {"coefficient": 0.5}
    for source in ("monte_carlo", "interaction", "total"):
        assert variance.loc["cv", source] < variance.loc["damped", source] < variance.loc["naive", source], source
    assert variance.loc["damped", "monte_carlo"] < 0.5 * variance.loc["naive", "monte_carlo"]


# results-schema.md ---------------------------------------------------------------------------------------------------


def sections():
    """``{template of a path: {key: dtype}}``: the tables of results-schema.md under headings that name files."""
    found, here, alike, inside = {}, [], [], False
    for line in (DOCS / "results-schema.md").read_text().splitlines():
        inside = bool(re.match(r"\| (column|key|array or key) \|", line)) or (inside and line.startswith("|"))
        if line.startswith("#"):
            here = re.findall(r"`([^`]+)`", line) or [line.lstrip("# ")]
            found |= {template: {} for template in here}
        elif match := re.search(r"Columns: as `([^`]+)`(?:, without (.*)\.)?", line):
            left_out = re.findall(r"`([^`]+)`", match[2] or "")
            alike.append((here, match[1], left_out))
        elif inside and (match := re.match(r"\| `([^`]+)` \| ([^|]*) \|", line)):
            for template in here:
                found[template][match[1]] = match[2].strip()
    for templates, base, left_out in alike:
        assert set(left_out) <= set(found[base]), f"{templates}: leaves out what is not there"
        kept = {name: dtype for name, dtype in found[base].items() if name not in left_out}
        for template in templates:
            found[template] = kept | found[template]
    return found


def pattern(template, deep=False):
    """What a template with ``{names}`` stands for: paths, or dotted keys and (``deep``) those inside them."""
    parts = re.split(r"\{\w+\}", template)
    return re.compile("[^/.]+".join(map(re.escape, parts)) + (r"(\..*)?" if deep else ""))


def of_file(schema, path):
    """What the page says of a file: ``{key: dtype}``."""
    path = str(path).removeprefix(f"results/{SCALE}/damped/")
    exact = [keys for template, keys in schema.items() if template == path]
    found = exact or [keys for template, keys in schema.items() if pattern(template).fullmatch(path)]
    assert len(found) == 1, f"{path}: results-schema.md has {len(found)} sections for it"
    return found[0]


def leaves(value, prefix=""):
    """Dotted keys of a JSON value."""
    if not isinstance(value, dict) or not value:
        return [prefix]
    return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{prefix}.{key}" if prefix else key)]


def assert_same_keys(keys, templates, where):
    """Every key is described, itself or as a part of one that is; everything described is there."""
    for key in keys:
        assert any(pattern(t, deep=True).fullmatch(key) for t in templates), f"{where}: {key!r} is not in the page"
    for template in templates:
        assert any(pattern(template, deep=True).fullmatch(k) for k in keys), f"{where}: no {template!r}"


def files(*endings):
    return sorted(path for path in Path().rglob("*") if path.suffix in endings and path.parts[0] in ("data", "results"))


def test_every_file_has_a_section(place):
    schema = sections()
    found = files(".parquet", ".csv", ".npz", ".json", ".svg", ".png")
    assert len(found) > 30
    assert set(found) == {path for path in Path().rglob("*") if path.is_file() and len(path.parts) > 1}
    for path in found:
        of_file(schema, path)


def test_columns_of_parquet_files(place):
    import pyarrow.parquet as pq

    schema = sections()
    names = {"double": "float64", "large_string": "string"}
    for path in files(".parquet"):
        arrow = pq.read_schema(path)
        columns = {field.name: names.get(str(field.type), str(field.type)) for field in arrow}
        assert list(columns.items()) == list(of_file(schema, path).items()), path
        mark = json.loads(arrow.metadata[b"lowvar"])
        assert_same_keys(leaves(mark), schema["The stamp"], path)
        assert list(arrow.metadata) == [b"lowvar"]


def test_columns_of_csv_files(place):
    schema = sections()
    assert len(files(".csv")) == 12
    for path in files(".csv"):
        assert path.read_text().splitlines()[0].split(",") == list(of_file(schema, path)), path


def test_arrays_of_npz_files(place):
    schema = sections()
    assert len(files(".npz")) == 4
    for path in files(".npz"):
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        described = of_file(schema, path)
        keys = list(arrays)
        if "meta" in arrays:
            keys += leaves({"meta": json.loads(str(arrays["meta"]))})
        assert_same_keys(keys, described, path)
        for name, array in arrays.items():
            assert described[name] == ("string" if array.dtype.kind == "U" else str(array.dtype)), f"{path}: {name}"
        if "__lowvar__" in arrays:
            assert_same_keys(leaves(json.loads(str(arrays["__lowvar__"]))), schema["The stamp"], path)


def test_keys_of_json_files(place):
    schema = sections()
    for path in files(".json"):
        assert_same_keys(leaves(json.loads(path.read_text())), of_file(schema, path), path)


def test_arrays_of_a_checkpoint(place, monkeypatch):
    from lowvar.runs import artifact

    kept = {}
    monkeypatch.setattr(artifact, "write_arrays", lambda path, arrays, mark: kept.setdefault(Path(path).name, arrays))
    monkeypatch.setattr(artifact, "write_table", lambda *_: None)
    monkeypatch.setattr(artifact, "write_provenance", lambda *_, **__: None)
    commands.run(place, "breast_cancer", "naive", "jax", out="elsewhere", checkpoint_every=-1.0)
    described = of_file(sections(), "runs/breast_cancer/naive-jax/checkpoint.npz")
    assert_same_keys(["__lowvar__", *kept["checkpoint.npz"]], described, "checkpoint.npz")


def test_columns_for_a_model_of_ones_own(place):
    from types import SimpleNamespace

    from lowvar.analysis.decomposition import table

    found = table(SimpleNamespace(dim=1, sites={}), {"naive": np.ones((4, 3, 2))}, 5)
    assert list(found) == list(of_file(sections(), "results/decomposition/model.parquet"))


def test_shipped_schema_is_the_printed_one():
    printed = subprocess.run([sys.executable, "-m", "lowvar.cli", "schema"], capture_output=True, text=True, check=True)
    assert (DOCS / "experiment.schema.json").read_text() == printed.stdout, (
        "write it anew: lowvar schema > docs/experiment.schema.json"
    )


def keys_of(model, prefix=""):
    """Dotted keys that a pydantic model takes, with their defaults."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *typing.get_args(field.annotation))
        inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, pydantic.BaseModel)), None)
        if inner is None:
            yield f"{prefix}{name}", field.default
        else:
            each = f"{{{name.removesuffix('s')}}}." if typing.get_origin(field.annotation) is dict else ""
            yield from keys_of(inner, f"{prefix}{name}.{each}")


def test_keys_of_experiments():
    """The page has the keys that an experiment can have, and their defaults."""
    text = (DOCS / "results-schema.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \|[^|]*\|([^|]*)\|", text.partition("# Experiment files")[2], re.M)
    described, real = {key: default.strip("` ") for key, default in rows}, dict(keys_of(Experiment))
    assert set(described) == {*real, "scales.{scale}"}
    for key, default in real.items():
        if isinstance(default, (str, int, type(None))):
            assert described[key] == ("null" if default is None else str(default)), key
    assert all(f"`{scale}`" in text for scale in SCALES)
