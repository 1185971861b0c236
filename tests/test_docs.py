"""The pages of ``docs`` that make promises: code that runs, and columns that are there."""

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np
import pytest
import yaml

from lowvar import estimators
from lowvar.errors import UserError
from lowvar.registry import Entry
from lowvar.solvers.search import SEARCH
from lowvar.studies import jobs as commands
from lowvar.studies import schema
from lowvar.studies.common_files import STAMP
from lowvar.studies.common_spec import SCALES, merged
from lowvar.studies.drawing import save
from lowvar.studies.load import FAMILIES
from lowvar.testing.estimators import EstimatorContract
from lowvar.testing.integrators import IntegratorContract
from lowvar.testing.searches import SearchContract

DOCS = Path(__file__).parents[1] / "docs"
SCALE = "smoke"

CLAIMS = {
    "variational": """
- id: between
  statement: damped ends below naive
  source: ours
  test: {effect: variance_ratio, problem: breast_cancer, method: damped, others: [naive], block: mu, below: 1}
- id: published
  statement: a number
  source: ours
  test: {effect: variance, problem: breast_cancer, method: naive, published: 1, tolerance: 0.1}
- id: hidden
  statement: what falling keeps of its past is an error that fresh noise does not show
  source: ours
  test: {effect: measured_ratio, problem: whole, method: falling, of: squared_error, moment: end, to: variance, above: 1}
""",
    "search": """
- id: arrives
  statement: ranked arrives
  source: ours
  test: {effect: success_rate, problem: ellipsoid_10, method: ranked, at_least: 1}
- id: pairs
  statement: pairs have less variance
  source: ours
  test: {effect: search_variance_ratio, problem: ellipsoid_10, scheme: antithetic, baseline: mean, population: 4,
         sigma: 0.5, below: 1}
""",
    "integral": """
- id: pays
  statement: the ridge pays at ten points
  source: ours
  test: {effect: error_ratio, problem: borehole, task: high, method: ridge, sizes: 10, others: [zero_variance], of: rmse,
         below: 1}
- id: truth
  statement: the integral is what it is
  source: ours
  test: {effect: truth, problem: growth, task: second, published: 1, plus_minus: 0.1}
""",
}
SPLIT = {"model": "blr", "dataset": "breast_cancer", "scaling": "minmax", "solver": {"batch_size": 100},
         "decomposition": None}  # fmt: skip
# what the pages' experiments lack of the files that their families can leave
ALSO = {
    "variational": {
        "problems": {"breast_cancer": {"methods": {"naive": None, "cv": None, "damped": None}},
                     "whole": {**SPLIT, "split": {"test": 0.2},
                               "methods": dict.fromkeys(("falling", "slow", "slower", "searched"))},
                     "half": {**SPLIT, "split": {"test": 0.2, "train": 0.5}, "methods": {"falling": None}}},
        "methods": {"falling": {"estimator": "mlmc",
                                "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 5}, "particles": 2,
                                           "diagnostics": {"draws": 4, "reference": 16}}},
                    "slow": {"estimator": "naive", "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 6}}},
                    "slower": {"estimator": "naive", "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 8}}},
                    "searched": {"estimator": "naive", "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 9}},
                                 "tune": {"step_size": {"low": 1.0e-4, "high": 1.0e-3}, "r": {"low": 7, "high": 9}}}},
        "tuning": {"trials": 1, "epochs": 1, "repetitions": 1},
    },
    "search": {
        "decomposition": {"problems": ["ellipsoid_10"], "sigmas": [0.5], "populations": [4], "replicates": 50,
                          "schemes": ["iid", "antithetic"], "baselines": ["mean"]},
        "rates": {"first": 10},
        "groups": {"both": ["ellipsoid_10", "ellipsoid_30"]},
        "draw": ["effort", "curves", "profiles", "groups", "scaling", "rates", "gradients", "seconds"],
    },
    "integral": {
        "problems": {"borehole": {"methods": ["monte_carlo", "zero_variance", "ridge"]},
                     "growth": {"problem": "growth", "sizes": [[6, 5], [12, 10]], 
                                "methods": ["monte_carlo", "ridge", "paper_cv"]},
                     "last": {"within": "growth", "tasks": ["second"], "sizes": [10], "methods": ["ridge"]}},
        "methods": {"paper_cv": {"options": {"epochs": 4, "tuning_epochs": 0, "batch": 5, "rate": 0.01, "record": 2}}},
        "illustrate": {"fits": {"growth": ["ridge", "paper_cv"]}, "stein_kernels": True,
                       "epochs": {"growth": ["paper_cv"]}, "power_scores": "growth", "predictive": "growth"},
        "draw": ["errors", "boxes", "split", "fits", "stein_kernels", "epochs", "power_scores", "predictive",
                 "seconds"],
    },
}  # fmt: skip


# the worked examples ------------------------------------------------------------------------------------------------


def blocks(page, language):
    """The fenced blocks of a worked example in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def loaded(page, folder, patch, registry):
    """The name of a page's factory, registered, with its module in ``folder``."""
    content = blocks(page, "python")[0]
    name = re.findall(r"^def (\w+)\(", content, re.M)[0]
    (folder / f"{name}.py").write_text(content)
    patch.syspath_prepend(str(folder))
    factory = getattr(importlib.import_module(name), name)
    patch.setitem(registry._own, name, Entry(name, factory))
    return name


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """The estimators' page: its file, under the name of its factory."""
    with pytest.MonkeyPatch.context() as patch:
        yield loaded("adding-an-estimator.md", tmp_path_factory.mktemp("estimators"), patch, estimators.GRADIENT)


@pytest.fixture(scope="module")
def registered_search(tmp_path_factory):
    """The searches' page: the same."""
    with pytest.MonkeyPatch.context() as patch:
        yield loaded("adding-a-search.md", tmp_path_factory.mktemp("searches"), patch, SEARCH)


def growth():
    """A problem in the catalogue of this module alone: two targets, a derived quantity, facts for every picture."""
    from lowvar.problems.integrals.normal import independent_normals
    from lowvar.problems.integrals.problem import Truth

    times = np.arange(4.0)

    def solve(points, at):
        return np.exp(0.1 * points[:, None, :1] * np.asarray(at)[:, None]) * np.array([1.0, 2.0])

    return independent_normals(
        "growth",
        ("first", "second"),
        (0, 1),
        ((np.zeros(1), np.ones(1)), (np.zeros(1), np.full(1, 2.0))),
        lambda t, points: np.cos(points[:, 0]) if t == 0 else points[:, 0] ** 2 / 4,
        lambda effort: Truth(np.array([np.exp(-0.5), 1.0]), np.zeros(2), "in closed form"),
        derived={"both": lambda values: values.sum(1)},
        derived_truth={"both": (np.exp(-0.5) + 1.0, 0.0, "in closed form")},
        about={"ladder": np.array([0.0, 1.0]), "series": ("hare", "lynx"), "times": times, "solve": solve,
               "observations": solve(np.ones((1, 1)), times)[0], "task_times": np.array([1.0, 1.5])},
    )  # fmt: skip


@pytest.fixture(scope="module")
def registered_integral(tmp_path_factory):
    """The integrators' page: the same."""
    pytest.importorskip("torch")
    from lowvar.problems.integrals.catalogue import PROBLEMS

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("integrators")
        name = loaded("adding-an-integrator.md", folder, patch, estimators.INTEGRAL)
        patch.setitem(PROBLEMS._own, "growth", Entry("growth", growth))
        yield name


def test_example_keeps_the_contract(registered):
    """The exact gradient over all batches and all of the noise, declared costs, and both backends on the same noise."""
    from lowvar.noise import reshuffled

    contract = EstimatorContract()
    contract.test_mean_is_the_exact_gradient(registered)
    contract.test_declared_oracles_are_what_it_computes(registered, 1, reshuffled)
    contract.test_declared_full_passes_and_table(registered)
    contract.test_backends_agree_on_the_same_noise(registered)


@pytest.mark.parametrize(("coefficient", "name"), [(0.0, "naive"), (1.0, "cv")])
def test_example_has_the_ends_that_it_says(registered, coefficient, name):
    from lowvar.estimators import GRADIENT
    from lowvar.noise import Noise, reshuffled
    from lowvar.testing.enumerable import epoch_noise, flat, params, problem

    p, gradients = problem(), []
    noise = Noise(*(part[0] for part in epoch_noise(p, reshuffled(p.N, 3), 0)))
    assert inspect.getdoc(GRADIENT.get(registered)).count("References:") == 1
    for factory, options in ((registered, {"coefficient": coefficient}), (name, {})):
        estimator = GRADIENT.get(factory)(p, None, **options)
        assert estimator.name == factory
        gradient = jax.jit(lambda w, noise, one=estimator: one.estimate(one.init(w), w, noise)[0])
        gradients.append(flat(gradient(params(), noise)))
    np.testing.assert_allclose(*gradients, rtol=1e-12)


def promises(contract):
    """The tests of a contract that take a name alone."""
    return [name for name, test in vars(contract).items()
            if name.startswith("test_") and list(inspect.signature(test).parameters) == ["self", "name"]]  # fmt: skip


@pytest.mark.parametrize("promise", promises(SearchContract))
def test_example_of_a_search_keeps_the_contract(registered_search, promise):
    getattr(SearchContract(), promise)(registered_search)


def test_example_of_a_search_sees_ranks_alone(registered_search):
    from lowvar.testing.searches import arrays, asked, values

    before, noise, points, tell = asked(registered_search)
    found = values(registered_search)(points)
    for one, other in zip(arrays(tell(before, noise, points, found)),
                          arrays(tell(before, noise, points, jax.numpy.log(found))), strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other)
    after = tell(before, noise, points, 0 * found)
    np.testing.assert_array_equal(after[0].mean, before.mean)


@pytest.mark.parametrize("promise", promises(IntegratorContract))
def test_example_of_an_integrator_keeps_the_contract(registered_integral, promise):
    getattr(IntegratorContract(), promise)(registered_integral)


def test_example_of_an_integrator_has_the_ends_that_it_says(registered_integral):
    """A huge penalty leaves the mean of the values, a tiny one the regression of order 1."""
    from lowvar.estimators.integral.options import make
    from lowvar.testing.integrators import draws, seeds

    samples = draws(m=30)
    for penalty, name, options in ((1e12, "monte_carlo", {}), (1e-12, "zero_variance", {"order": 1})):
        found, end = (
            make(one, given).integrate(samples, seeds(samples)).value
            for one, given in ((registered_integral, {"penalties": [penalty]}), (name, options))
        )
        np.testing.assert_allclose(found, end, rtol=1e-9)
    with pytest.raises(UserError, match="penalties"):
        make(registered_integral, {"penalties": [0.0]})


# real experiments: those of the worked examples ----------------------------------------------------------------------


def walk(folder, page, also=MappingProxyType({})):
    """A page's experiment, run whole in a folder by the functions behind the commands."""
    from lowvar.datasets.prepare import prepare

    content = merged(yaml.safe_load(blocks(page, "yaml")[0]), also)
    (folder / f"{content['name']}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "claims.yaml").write_text(CLAIMS[content.get("family", "variational")])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delitem(save._METADATA, "png")  # figures have tests of their own
        place = commands.Study.load(f"{content['name']}.yaml", SCALE)
        for problem in place.experiment.problems:
            if data := place.experiment.data(problem):
                prepare(data.dataset, data.scaling, out=place.prepared(problem))
        for job in place.jobs():
            getattr(commands, job.kind)(job)
        commands.tables(place)
        commands.tables(place, seconds=True)
        for kind in place.figures:
            commands.figure(place, kind)
        commands.claims(place, "claims.yaml")
    return place, folder


@pytest.fixture(scope="module")
def variational(registered, tmp_path_factory):
    pytest.importorskip("optuna")
    return walk(tmp_path_factory.mktemp("walk"), "adding-an-estimator.md", ALSO["variational"])


@pytest.fixture(scope="module")
def search(registered_search, tmp_path_factory):
    pytest.importorskip("cma")
    return walk(tmp_path_factory.mktemp("walk"), "adding-a-search.md", ALSO["search"])


@pytest.fixture(scope="module")
def integral(registered_integral, tmp_path_factory):
    return walk(tmp_path_factory.mktemp("walk"), "adding-an-integrator.md", ALSO["integral"])


@pytest.fixture(params=list(FAMILIES))
def place(request, monkeypatch):
    """The experiment of each page in turn, in the folder of its results."""
    place, folder = request.getfixturevalue(request.param)
    monkeypatch.chdir(folder)
    return place


@pytest.mark.parametrize("place", ["variational"], indirect=True)
def test_example_lies_between_naive_and_cv(place, capsys):
    """The page's last block of code reads the tables: of the part for mu, cv removes most and the example some."""
    found = {}
    exec(blocks("adding-an-estimator.md", "python")[-1], found)
    variance = found["variance"]
    assert capsys.readouterr().out
    assert place.experiment.methods["damped"].options == {"coefficient": 0.5}
    for source in ("monte_carlo", "interaction", "total"):
        assert variance.loc["cv", source] < variance.loc["damped", source] < variance.loc["naive", source], source
    assert variance.loc["damped", "monte_carlo"] < 0.5 * variance.loc["naive", "monte_carlo"]


@pytest.mark.parametrize("place", ["search"], indirect=True)
def test_example_of_a_search_costs_some_percent(place, capsys):
    """The page's last block of code reads the tables: all arrive, and the example not much later than its model."""
    found = {}
    exec(blocks("adding-a-search.md", "python")[-1], found)
    effort = found["effort"]
    assert capsys.readouterr().out
    assert np.isfinite(effort["ranked"]).all()
    assert ((effort["ranked"] / effort["fast_ingo"]).between(0.9, 1.25)).all()
    assert (found["hardest"].set_index("method").loc["ranked", "reached"] == 6).all()


@pytest.mark.parametrize("place", ["integral"], indirect=True)
def test_example_of_an_integrator_pays_where_points_are_few(place, capsys):
    """The page's last block of code reads the tables: the example is the best at ten points, and works with six."""
    found = {}
    exec(blocks("adding-an-integrator.md", "python")[-1], found)
    error = found["error"]
    assert capsys.readouterr().out
    assert list(error.index) == [6, 10, 20, 50]
    assert np.isinf(error["zero_variance"][6])
    assert (error["ridge"] < error["monte_carlo"]).all()
    assert error["ridge"][10] < 0.9 * error["zero_variance"][10]
    assert ((error["ridge"] / error["zero_variance"])[[20, 50]].between(0.9, 1.1)).all()


# results-schema.md ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "option"), [("results-schema.md", ["--page"]), ("experiment.schema.json", [])])
def test_pages_are_the_printed_ones(page, option):
    command = ["schema", *option]
    printed = subprocess.run([sys.executable, "-m", "lowvar.cli", *command], capture_output=True, text=True, check=True)
    assert (DOCS / page).read_text() == printed.stdout, f"write it anew: lowvar {' '.join(command)} > docs/{page}"


def declared(place):
    """``{template of a path: columns by name}`` of the files that an experiment's family leaves."""
    family = place.experiment.family
    found = {one.path: one.columns for one in (*schema.files(), *schema.files(family))}
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
    page = (DOCS / "results-schema.md").read_text()
    text = re.search(rf"^### Figures \({place.experiment.family}\)$(.*?)^#", page, re.M | re.S)[1]
    for kind, figure in place.figures.items():
        assert (place.results / f"figures/{kind}.svg").is_file()
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
    from lowvar.runs import artifact

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
    from lowvar.estimators.integral.options import make
    from lowvar.studies.integral.files import PARAMS
    from lowvar.testing.integrators import SHORT, draws

    columns = {one.name: one for one in PARAMS.columns}
    samples, learnt = draws(repetitions=1, m=12), {"sizes", "__lowvar__"}
    for name in estimators.INTEGRAL:
        options = SHORT.get(name, {}) | ({"record": 2} if name == "paper_cv" else {})
        for key, array in make(name, options).integrate(samples, np.array([1])).info.items():
            dtype = "string" if array.dtype.kind == "U" else str(array.dtype)
            assert dtype in dtypes_of(columns, key), f"{name}: {key}"
            learnt.add(key)
    assert learnt == set(columns)


def test_columns_for_a_model_of_ones_own():
    from types import SimpleNamespace

    from lowvar.analysis.decomposition import samples, table
    from lowvar.studies.variational.variances import COMPONENTS

    problem = SimpleNamespace(dim=1, sites={}, blocks={"mu": 1, "log_sigma": 1})
    found = table(samples(problem, {"naive": np.ones((4, 3, 2))}), 5)
    assert list(found) == [one.name for one in COMPONENTS]


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


def test_the_pages_on_the_design_name_what_there_is():
    from lowvar.noise import GAUSSIAN
    from lowvar.noise.integrals import SAMPLERS
    from lowvar.problems.integrals.catalogue import PROBLEMS

    text = "".join((DOCS / page).read_text() for page in ("architecture.md", "design-notes.md"))
    there = {*estimators.GRADIENT, *estimators.INTEGRAL, *GAUSSIAN, *SAMPLERS, *PROBLEMS, *SEARCH}
    for name in there - {"damped_cv", "ranked_ingo", "ridge", "growth"}:  # the worked examples
        assert f"`{name}`" in text, name
