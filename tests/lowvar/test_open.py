"""Factories of a user's own: as objects in the four calls, as ``module:function`` in experiment files."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest

import lowvar
from lowvar import registry
from lowvar.errors import UserError
from lowvar.integrals.monte_carlo import monte_carlo
from lowvar.registry import Registry, declares
from lowvar.search.solvers.fast_ingo import fast_ingo
from lowvar.vi.estimators.naive import naive
from lowvar_studies.jobs.load import load_experiment

DATA = {"x": np.random.default_rng(0).normal(size=40), "y": np.random.default_rng(1).normal(size=40)}


def entry_point(name, value, distribution):
    return SimpleNamespace(name=name, value=value, dist=SimpleNamespace(name=distribution))


def line(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x), subsample_size=None) as i:
        numpyro.sample("y", dist.Normal(slope * x[i], 1), obs=y[i])


def half(problem, batches=None, share: float = 0.5):
    return naive(problem, batches)


def test_fit_takes_an_estimator():
    short = {"num_steps": 40, "batch_size": 10, "khat_samples": 0, "progress": False}
    mine, theirs = lowvar.fit(line, DATA, estimator=half, **short), lowvar.fit(line, DATA, estimator="naive", **short)
    np.testing.assert_array_equal(mine.params["slope_auto_loc"], theirs.params["slope_auto_loc"])
    assert mine.run.method.estimator == "half"
    with pytest.raises(UserError, match=r"'shar'.*'share'"):
        lowvar.fit(line, DATA, estimator=half, shar=0.1, **short)
    found = lowvar.decompose(line, DATA, estimators=["naive", half], batch_size=10, num_steps=40, replicates=8)
    totals = found.table[(found.table["source"] == "total") & (found.table["block"] == "all")].set_index("method")
    assert totals.loc["half", "variance"] == totals.loc["naive", "variance"]


def test_fit_takes_any_optimizer_of_optax():
    short = {"num_steps": 200, "batch_size": 10, "khat_samples": 0, "progress": False, "estimator": "naive"}
    same, adam = (lowvar.fit(line, DATA, optimizer=o, **short) for o in (optax.adam(0.01), "adam"))
    np.testing.assert_allclose(same.params["slope_auto_loc"], adam.params["slope_auto_loc"], rtol=1e-12)


def test_integrate_takes_an_integrator():
    x = np.random.default_rng(0).normal(size=50)

    def plain(correlated: bool = False):
        return monte_carlo(correlated)

    found = lowvar.integrate(x, -x, x**2, method=plain)
    assert (found.method, found.value[0]) == ("plain", np.mean(x**2))
    with pytest.raises(UserError, match="correlated 'no'"):
        lowvar.integrate(x, -x, x**2, method=plain, correlated="no")


def test_minimize_takes_a_search():
    def sphere(x):
        return float((x**2).sum())

    def mine(backend, domain, population: int | None = None):
        return fast_ingo(backend, domain, population)

    settings = {"budget": 400, "noisy": False, "progress": False}
    found = lowvar.minimize(sphere, np.ones(3), 0.5, method=mine, **settings)
    assert found.method == "mine"
    own = lowvar.minimize(sphere, np.ones(3), 0.5, method="fast_ingo", **settings)
    assert found.fun == pytest.approx(own.fun, rel=1e-6)  # ours runs in NumPy

    @declares(domains=("binary",))
    def flips(backend, domain, population=None):
        raise AssertionError

    for name in ("flips", "ingo"):  # what it declares counts, even if it has the name of one of lowvar's
        flips.__name__ = name
        with pytest.raises(UserError, match=f"{name} searches binary domains, not real ones"):
            lowvar.minimize(sphere, np.ones(3), 0.5, method=flips, **settings)


EXPERIMENT = """
name: small
title: mine
problems:
  e: {%s}
methods:
  mine: {%s}
%s
"""
VARIATIONAL = ("model: logistic_regression, dataset: breast_cancer",
               "estimator: 'own:mine'", "solver: {step_sizes: [0.1], batch_size: 5, epochs: 2}")  # fmt: skip
SEARCHES = ("function: sphere, dim: 3", "solver: 'own:mine'", "family: search\nsearch: {budget: 100}")
INTEGRALS = ("problem: step, sizes: [10]", "integrator: 'own:mine'", "family: integral\nestimation: {repetitions: 2}")
OWN = "def mine(problem=None, batches=None, backend=None, domain=None, share: float = 0.5): ..."


def hashes(folder, parts):
    (folder / "small.yaml").write_text(EXPERIMENT % parts)
    experiment = load_experiment(folder / "small.yaml", "quick")
    return experiment.run(*experiment.runs()[0]).hash


@pytest.mark.parametrize("parts", [VARIATIONAL, SEARCHES, INTEGRALS], ids=["variational", "search", "integral"])
def test_an_edit_of_the_source_changes_the_hash(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_folders", [])
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = hashes(tmp_path, parts)
    assert hashes(tmp_path, parts) == before
    (tmp_path / "own.py").write_text(OWN + "  # edited")
    assert hashes(tmp_path, parts) != before
    of_problem, of_method, rest = parts
    wrong = of_method.replace("mine'", "mine', options: {sharre: 1}")
    for given, name in (
        ((of_problem, wrong, rest), "methods.mine.options.*'sharre'"),
        ((of_problem, of_method.replace("own:", "no_such:"), rest), "methods.mine.*'no_such'"),
    ):
        with pytest.raises(UserError, match=f"small.yaml: {name}"):
            hashes(tmp_path, given)


def test_a_registry_reads_signatures_without_importing(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_folders", [tmp_path])
    (tmp_path / "heavy_one.py").write_text("import no_such_library\ndef made(problem, *, a: int = 1, b=None, c): ...")
    letters = Registry("letter", {}, given=("problem",))
    assert letters.options_of("heavy_one:made") == {"a": (("int",), False), "b": ((), False), "c": ((), True)}
    letters.check_options("heavy_one:made", {"a": 3, "c": jnp.zeros(1)})
    for options, name in (({"c": 1, "a": 1.5}, "a 1.5"), ({}, "'c' is missing"), ({"problem": 1}, "unknown option")):
        with pytest.raises(UserError, match=name):
            letters.check_options("heavy_one:made", options)
    with pytest.raises(UserError, match=r"heavy_one.py: .*ModuleNotFoundError"):
        letters.get("heavy_one:made")
    with pytest.raises(UserError, match="module:function"):
        letters.get("path/to.py:made")
    (tmp_path / "heavy_two.py").write_text("number = 3\n")
    with pytest.raises(UserError, match="mine: 'heavy_two:number': it must be a function"):
        letters.check_options("heavy_two:number", {}, where="mine")


@pytest.mark.parametrize(
    ("names", "both"), [(["theirs"] * 2, "package0 and package1"), (["ours"], "lowvar and package0")]
)
def test_entry_points_of_one_name_are_refused(names, both, monkeypatch):
    points = [entry_point(name, f"package{i}:made", f"package{i}") for i, name in enumerate(names)]
    monkeypatch.setattr(registry, "_entry_points", lambda: SimpleNamespace(select=lambda group: points))
    letters = Registry("letter", {"ours": "string:capwords", "another": "string:Template"}, group="letters")
    assert letters.entry("another").target == "string:Template"
    assert letters.entry("string:capwords").target == "string:capwords"  # its module says which is meant
    with pytest.raises(UserError, match=both):
        letters.get(names[0])
    assert list(letters) == ["ours", "another", *({"theirs"} & {*names})]  # only its use is refused


def test_an_entry_point_of_lowvar_itself_is_its_own(tmp_path, monkeypatch):
    """It is listed and hashed as a row is, and what it declares is known without an import of its packages."""
    (tmp_path / "laboratory.py").write_text(
        "import no_such_library\nfrom lowvar.registry import declares\n"
        "@declares(packages=('no_such_library',), extra='peers', vowel=True)\n"
        "class alpha:\n    def __init__(self, x, size: int = 3): ...\n"
        "@declares(packages=('no_such_library',))\ndef theirs(x): ...\n"
    )
    monkeypatch.setattr(registry, "_folders", [tmp_path])
    installed = {"alpha": "lowvar", "theirs": "their-package"}
    points = [entry_point(name, f"laboratory:{name}", by) for name, by in installed.items()]
    monkeypatch.setattr(registry, "_entry_points", lambda: SimpleNamespace(select=lambda group: points))
    letters = Registry("letter", {"ours": "string:capwords"}, group="letters", about={"vowel": False}, given=("x",))
    assert letters.own == ("ours", "alpha")
    assert list(letters) == ["ours", "alpha", "theirs"]
    assert letters.sources("alpha") == {}
    assert list(letters.sources("theirs")) == ["theirs"]
    assert (letters.about("alpha").vowel, letters.about("ours").vowel) == (True, False)
    assert letters.options_of("alpha") == {"size": (("int",), False)}
    with pytest.raises(UserError, match=r"alpha needs no_such_library: pip install 'lowvar\[peers\]'"):
        letters.get("alpha")


@pytest.mark.parametrize("value", ["broken_one:made", "broken_one.inner:made"])
def test_a_broken_package_is_named_where_it_is_used_and_hides_no_other(value, tmp_path, monkeypatch):
    """It may be of any registry of its group; those that share the group still list what they have."""
    (tmp_path / "broken_one").mkdir()
    (tmp_path / "broken_one" / "__init__.py").write_text("raise RuntimeError('boom')\nmade = 3")
    monkeypatch.setattr(registry, "_folders", [tmp_path])
    monkeypatch.syspath_prepend(tmp_path)
    points = [entry_point("theirs", value, "their-package")]
    monkeypatch.setattr(registry, "_entry_points", lambda: SimpleNamespace(select=lambda group: points))
    letters = Registry("letter", {"ours": "string:capwords"}, group="letters", accepts=lambda arguments: False)
    assert list(letters) == ["ours", "theirs"]
    assert letters.get("ours")("a b") == "A B"
    for use in (lambda: letters.get("theirs"), lambda: letters.check_options("theirs", {}, where="mine.yaml")):
        with pytest.raises(UserError, match=r"'theirs' of the installed package their-package: .*RuntimeError: boom"):
            use()


def test_two_modules_of_one_name_are_refused(tmp_path, monkeypatch):
    """One process would take the first for both."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "twice.py").write_text("def mine(problem, batches=None): ...\n")
    monkeypatch.setattr(registry, "_folders", folders)
    with pytest.raises(UserError, match=r"one.twice.py and .*two.twice.py are called 'twice'"):
        registry._file("twice:mine")
