"""The pages of ``docs`` that make promises: columns that are there, and code that leaves them."""

import functools
import json
import re
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import yaml
from commands import lowvar
from worked_examples import blocks, walked

from lowvar.integrals import INTEGRAL
from lowvar_studies.jobs import commands
from lowvar_studies.jobs.common_files import STAMP
from lowvar_studies.jobs.common_spec import SCALES
from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.reports import schema


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """``family -> (experiment, folder)`` of its page, run once."""
    with ExitStack() as stack:

        @functools.cache
        def place(family):
            pytest.importorskip({"variational": "optuna", "search": "cma", "integral": "torch"}[family])
            return stack.enter_context(walked(family, tmp_path_factory.mktemp("walk")))

        yield place


@pytest.fixture(params=list(FAMILIES))
def place(request, walk, monkeypatch):
    """The experiment of each page in turn, in the folder of its results."""
    place, folder = walk(request.param)
    monkeypatch.chdir(folder)
    return place


@pytest.mark.long
@pytest.mark.parametrize("place", ["variational"], indirect=True)
def test_example_lies_between_naive_and_cv(place, capsys):
    """The page's last block of code reads the tables: of the part for mu, cv removes most and the example some."""
    exec(blocks("adding-an-estimator.md", "python")[-1], found := {})
    variance = found["variance"]
    assert capsys.readouterr().out
    for source in ("monte_carlo", "interaction", "total"):
        assert variance.loc["cv", source] < variance.loc["damped", source] < variance.loc["naive", source], source
    assert variance.loc["damped", "monte_carlo"] < 0.5 * variance.loc["naive", "monte_carlo"]


@pytest.mark.long
@pytest.mark.parametrize("place", ["search"], indirect=True)
def test_example_of_a_search_costs_some_percent(place, capsys):
    """The page's last block of code reads the tables: all arrive, and the example not much later than its model."""
    exec(blocks("adding-a-search.md", "python")[-1], found := {})
    effort = found["effort"]
    assert capsys.readouterr().out
    assert np.isfinite(effort["ranked"]).all()
    assert ((effort["ranked"] / effort["fast_ingo"]).between(0.9, 1.25)).all()
    assert (found["hardest"].set_index("method").loc["ranked", "reached"] == 6).all()


@pytest.mark.parametrize("place", ["search"], indirect=True)
def test_examples_of_claims_and_of_an_effect(place):
    from lowvar_studies.reports.claims import judge, parse
    from lowvar_studies.reports.gathered import Gathered

    tables = Gathered(place, place.family.tables, made=False)
    verdicts = judge(map(parse, yaml.safe_load(blocks("adding-a-claim.md", "yaml")[0])), tables)
    assert list(verdicts["verdict"]) == ["holds", "holds"]
    exec(blocks("adding-a-claim.md", "python")[0], found := {})
    effect = found["EFFECTS"]["mean_evaluations"](tables, "ellipsoid_30", "ranked")
    assert effect.low < effect.value < effect.high
    wide = tables["ends"].query("problem == 'ellipsoid_30'").groupby("method")["evaluations_to_target"].mean()
    assert effect.value == pytest.approx(wide["ranked"])


@pytest.mark.parametrize("place", ["search"], indirect=True)
def test_example_of_a_figure_draws_what_it_saves(place, monkeypatch):
    """The page's first block is its file, which the last imports from a folder of one's own."""
    import pandas as pd

    source, use = blocks("adding-a-figure.md", "python")
    Path("starts.py").write_text(source)
    monkeypatch.syspath_prepend(".")
    exec(use, found := {})
    assert [path.suffix for path in (found["svg"], found["png"], found["csv"])] == [".svg", ".png", ".csv"]
    assert len(pd.read_csv(found["csv"])) == len(place.table("ends"))


@pytest.mark.parametrize("place", ["integral"], indirect=True)
def test_example_of_an_integrator_pays_where_points_are_few(place, capsys):
    """The page's last block of code reads the tables: the example is the best at ten points, and works with six."""
    exec(blocks("adding-an-integrator.md", "python")[-1], found := {})
    error = found["error"]
    assert capsys.readouterr().out
    assert np.isinf(error["zero_variance"][6])
    assert (error["ridge"] < error["monte_carlo"]).all()
    assert error["ridge"][10] < 0.9 * error["zero_variance"][10]
    assert ((error["ridge"] / error["zero_variance"])[[20, 50]].between(0.9, 1.1)).all()


# lowvar schema --page ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [["--page"], []])
def test_the_reference_is_printed(option):
    printed = lowvar(Path.cwd(), "schema", *option).stdout
    assert "`tables/ends.parquet`" in printed if option else json.loads(printed)["$defs"]


def declared(place):
    """``{template of a path: columns by name}`` of the files that an experiment's family leaves."""
    family = place.experiment.family
    found = {one.path: one.columns for one in (*schema.files(), *schema.files(family))}
    found["claims.parquet"] = found["claims.csv"]
    for one in schema.tables(family):
        found |= dict.fromkeys((f"tables/{one.name}.parquet", f"tables/{one.name}.csv"), one.columns)
    return {path: {column.name: column for column in columns} for path, columns in found.items()}


def pattern(template, deep=False):
    """What a template with ``{names}`` stands for: paths, or dotted keys and (``deep``) those inside them."""
    parts = re.split(r"\{\w+\}", template.removeprefix("*"))
    before = ".*" if template.startswith("*") else ""
    return re.compile(before + "[^/.]+".join(map(re.escape, parts)) + (r"(\..*)?" if deep else ""))


def of_file(path, place):
    """The columns that are declared of a file, by name."""
    path = str(path).removeprefix(f"{place.results}/")
    found = [columns for template, columns in declared(place).items() if pattern(template).fullmatch(path)]
    assert len(found) == 1, f"{path}: declared {len(found)} times"
    return found[0]


def present(columns, there):
    """``{name: dtype}`` of a file that has the columns ``there``: what is declared, less what may be missing."""
    return {one.name: one.dtype for one in columns.values() if one.name in there or not one.perhaps}


def leaves(value, prefix=""):
    """Dotted keys of a JSON value."""
    if not isinstance(value, dict) or not value:
        return [prefix]
    return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{prefix}.{key}" if prefix else key)]


def assert_same_keys(keys, columns, where):
    """Every key is declared, itself or as a part of one that is; everything declared is there, or may be missing."""
    for key in keys:
        assert any(pattern(t, deep=True).fullmatch(key) for t in columns), f"{where}: {key!r} is not declared"
    for template, one in columns.items():
        there = any(pattern(template, deep=True).fullmatch(k) for k in keys)
        assert there or one.perhaps, f"{where}: no {template!r}"


def dtypes_of(columns, key):
    """The dtypes that are declared of an array; none if it is not declared."""
    one = columns.get(key) or next((one for t, one in columns.items() if pattern(t).fullmatch(key)), None)
    return one.dtype.split(" or ") if one else []


def assert_is_stamp(text, where):
    """The stamp as it is declared; one that stands on no data has no inputs."""
    mark, columns = json.loads(text), {one.name: one for one in STAMP.columns}
    if not mark["inputs"]:
        del mark["inputs"], columns["inputs.{problem}"]
    assert_same_keys(leaves(mark), columns, where)


def files(*endings):
    return sorted(path for path in Path().rglob("*") if path.suffix in endings and path.parts[0] in ("data", "results"))


def test_every_declared_file_is_there(place):
    left = [str(path).removeprefix(f"{place.results}/") for path in files(".parquet", ".csv", ".npz", ".json")]
    elsewhere = ("schemes",)  # these problems have one noise scheme
    templates = set(declared(place)) - {one.path for one in schema.files()}
    for template in templates - {f"tables/{name}.{ending}" for name in elsewhere for ending in ("parquet", "csv")}:
        assert any(pattern(template).fullmatch(path) for path in left), template


def test_columns_of_tables(place):
    """Those of parquet and csv files are what is declared, in that order, and so are their dtypes."""
    import pyarrow.parquet as pq

    names = {"double": "float64", "large_string": "string"}
    for path in files(".parquet"):
        arrow = pq.read_schema(path)
        columns = {field.name: names.get(str(field.type), str(field.type)) for field in arrow}
        assert list(columns.items()) == list(present(of_file(path, place), columns).items()), path
        assert_is_stamp(arrow.metadata[b"lowvar"], path)
        assert list(arrow.metadata) == [b"lowvar"]
    tables = [path for path in files(".csv") if path.parent.name != "figures"]
    assert len(tables) == len((*place.tables, "seconds", "claims"))
    for path in tables:
        columns = path.read_text().splitlines()[0].split(",")
        assert columns == list(present(of_file(path, place), columns)), path


def test_columns_of_figures(place):
    """They are those of the figure's table, or named in the page."""
    page = schema.page()
    text = re.search(rf"^### Figures \({place.experiment.family}\)$(.*?)^#", page, re.M | re.S)[1]
    for kind, figure in place.figures.items():
        columns = (place.results / f"figures/{kind}.csv").read_text().splitlines()[0].split(",")
        known = {*of_file(f"tables/{figure.table}.csv", place), *re.findall(r"`(\w+)`", text)}
        assert set(columns) <= known, kind


def test_arrays_and_keys(place):
    """Those of npz and json files are what is declared."""
    prepared = {place.prepared(problem) for problem in place.experiment.problems} - {None}
    assert len(files(".npz")) == len(place.experiment.runs()) + len(place.experiment.samples()) + len(prepared)
    for path in files(".npz"):
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        columns, keys = of_file(path, place), list(arrays)
        for text in {"meta", "about"} & set(arrays):
            keys += leaves({text: json.loads(str(arrays[text]))})
        assert_same_keys(keys, columns, path)
        for name, array in arrays.items():
            kind = "string" if array.dtype.kind == "U" else str(array.dtype)
            assert kind in dtypes_of(columns, name), f"{path}: {name}"
        if "__lowvar__" in arrays:
            assert_is_stamp(str(arrays["__lowvar__"]), path)
    for path in files(".json"):
        assert_same_keys(leaves(json.loads(path.read_text())), of_file(path, place), path)


def test_arrays_of_a_checkpoint(place, monkeypatch):
    from lowvar.core import artifact

    kept = {}
    monkeypatch.setattr(artifact, "write_arrays", lambda path, arrays, mark: kept.setdefault(Path(path).name, arrays))
    monkeypatch.setattr(artifact, "write_table", lambda *_: None)
    monkeypatch.setattr(artifact, "write_provenance", lambda *_, **__: None)
    job = next(place.jobs("run"))
    commands.run(job, out="elsewhere", checkpoint_every=-1.0)
    columns = of_file("runs/{}/{}-{}/checkpoint.npz".format(*job.names.values()), place)
    assert_same_keys(["__lowvar__", *kept["checkpoint.npz"]], columns, "checkpoint.npz")


def test_what_integrators_learn_is_declared(monkeypatch):
    """The arrays that the integrators of the registry leave in ``params.npz``, and no others."""
    pytest.importorskip("torch")
    from lowvar.integrals.base import make
    from lowvar.testing.integrators import SHORT, draws
    from lowvar_studies.reports.integral.files import PARAMS

    columns = {one.name: one for one in PARAMS.columns}
    samples, learnt = draws(repetitions=1, m=12), {"sizes", "__lowvar__"}
    for name in INTEGRAL:
        options = SHORT.get(name, {}) | ({"record": 2} if name == "paper_cv" else {})
        for key, array in make(name, options).integrate(samples, np.array([1])).info.items():
            dtype = "string" if array.dtype.kind == "U" else str(array.dtype)
            assert dtype in dtypes_of(columns, key), f"{name}: {key}"
            learnt.add(key)
    assert learnt == set(columns)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_figure_effect_and_key_has_a_meaning(family):
    """They are printed from captions, docstrings and descriptions; a key of a part of a spec is printed too."""
    text = schema.page()
    for what, names in (("Figures", FAMILIES[family].figures), ("Effects", FAMILIES[family].effects), ("Keys", ())):
        part = re.search(rf"^### {what} \({family}\)$(.*?)(^#|\Z)", text, re.M | re.S)[1]
        rows = dict(re.findall(r"^\| `([^`]+)` \|.*\| (.*?) ?\|$", part, re.M))
        assert set(names) <= set(rows)
        assert all(rows.values()), [name for name, meaning in rows.items() if not meaning]
    assert {"methods.{method}.options", "problems.{problem}.methods"} <= set(rows)
    assert all(f"`{scale}`" in text for scale in SCALES)
