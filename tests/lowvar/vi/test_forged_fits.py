"""Forged files of fits: each is refused in one sentence, or is the fit; none runs code that it names."""

import contextlib
import copy
import time
from dataclasses import replace

import numpy as np
import optax
import pytest
from short_fits import DATA, assert_equal, fitted, regression

import lowvar
from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar.vi.estimators.naive import naive
from lowvar.vi.saved import digest

pytestmark = pytest.mark.filterwarnings("ignore:regression. the fit has not converged")
DEEP = [[]]
for _ in range(300):
    DEEP = [DEEP]
JUNK = (None, True, -1, 0, 1.5, 10**18, 10**400, float("nan"), "", "x", "naïve\n", "\x00", "os:getcwd", [], [1], [[1, 2]],
        {}, {"a": 1}, {"guide": "os:getcwd"}, DEEP, "x" * 100_000)  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    fit, path = fitted(estimator="cv"), tmp_path_factory.mktemp("fit") / "fit.npz"
    fit.save(path)
    return (fit, *artifact.read_arrays(path))


def places(content, at=()):
    """The paths of all entries of nested mappings and lists."""
    for key in content if isinstance(content, dict) else range(len(content)):
        yield (*at, key)
        if isinstance(content[key], dict | list):
            yield from places(content[key], (*at, key))


def forged(path, arrays, mark, about):
    """A file with right digests, which only a forger makes."""
    artifact.write_arrays(path, arrays, {**mark, "spec": digest(about), "fit": about})
    return path


def refused_or_same(path, fit, **objects):
    begun, said = time.process_time(), ""
    try:
        loaded = lowvar.load(path, regression, DATA, **objects)
    except UserError as error:
        said = str(error)
    assert time.process_time() - begun < 20
    if said:
        assert "\n" not in said
        assert len(said) < 1000
        return said
    if loaded.run is None:  # as of a fit with an own estimator, which `resume` refuses
        loaded = replace(loaded, run=fit.run)
    assert_equal(loaded, fit)
    return ""


@pytest.mark.parametrize("count", [1, pytest.param(len(JUNK), marks=pytest.mark.long)])
def test_any_entry_of_the_header(saved, tmp_path, count):
    """Each entry in turn is left out, renamed and replaced, with digests that fit."""
    fit, arrays, mark = saved
    same, rng = set(), np.random.default_rng(0)
    for place in places(mark["fit"]):
        if "data" in place[:1] and len(place) > 2:
            continue  # of the hash and the shape of arguments: see the test of other data
        for junk in ("leave out", "rename", *rng.choice(len(JUNK), count, replace=False)):
            about = copy.deepcopy(mark["fit"])
            inner = about
            for key in place[:-1]:
                inner = inner[key]
            if isinstance(junk, str):
                value = inner.pop(place[-1])
                if junk == "rename" and isinstance(inner, dict):
                    inner[f"{place[-1]}s"] = value
            else:
                inner[place[-1]] = JUNK[junk]
            if digest(about) == digest(mark["fit"]):
                continue  # the junk is what the file has
            if not refused_or_same(forged(tmp_path / "a.npz", arrays, mark, about), fit):
                same.add(place[-1])
    # texts and numbers of which the file is the only witness
    assert same <= {"notes", "khat", "name", "seed", "khat_samples", "own_estimator", 0, "step_size"}


@pytest.mark.parametrize("count", [1, pytest.param(5, marks=pytest.mark.long)])
def test_any_array(saved, tmp_path, count):
    """Each array in turn is left out, and replaced by others with digests that fit; by default by one of these."""
    fit, arrays, mark = saved
    names = [name for name in arrays if not name.startswith("kept/")] + ["kept/0/0", "kept/15/3"]
    for place, name in enumerate(names):
        array = arrays[name]
        others = (
            None, array[..., None], array.astype(str), np.zeros(0, array.dtype), np.full(array.shape, np.nan)
        )  # fmt: skip
        for other in others if count == 5 else others[place % 5 :][:count]:
            if other is not None and other.dtype.kind == array.dtype.kind and np.array_equal(other, array):
                continue
            left = {key: one for key, one in arrays.items() if key != name} | ({} if other is None else {name: other})
            path = forged(tmp_path / "a.npz", left, mark, mark["fit"])
            if name.startswith(("reached/", "elbo/elbo", "kept/")) and other is not None and other.shape == array.shape:
                with contextlib.suppress(UserError):  # numbers of which the file is the only witness
                    lowvar.load(path, regression, DATA)
            else:
                assert refused_or_same(path, fit) or name.startswith(("reached/", "middle/")), name
    for extra in ("guide/nu", "elbo/other", "mine", "middle/other"):
        assert refused_or_same(forged(tmp_path / "a.npz", arrays | {extra: np.ones(1)}, mark, mark["fit"]), fit)


def test_settings_that_were_not_written(saved, tmp_path):
    """The digest of the file alone was made anew, by whoever edited it."""
    fit, arrays, mark = saved
    about = copy.deepcopy(mark["fit"])
    about["run"]["seed"] = 1
    artifact.write_arrays(tmp_path / "a.npz", arrays, mark | {"fit": about})
    assert "settings" in refused_or_same(tmp_path / "a.npz", fit)


@pytest.mark.parametrize("where", ["estimator", "guide", "estimator, said to be the caller's"])
def test_no_name_in_a_file_is_imported(saved, tmp_path, monkeypatch, where):
    """``module:function`` is code: only the caller names any."""
    fit, arrays, mark = saved
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\ndef make(*args, **options): ...\n")
    monkeypatch.chdir(tmp_path)
    about = copy.deepcopy(mark["fit"])
    if where == "guide":
        about["guide"] = {"guide": "evil:make"}
    else:
        about["run"]["estimator"] = "evil:make"
        about["run"]["own_estimator"] = "caller" in where
    path = forged(tmp_path / "a.npz", arrays, mark, about)
    if "caller" in where:  # as the file of a fit with an own estimator: it has parameters, and no run
        assert lowvar.load(path, regression, DATA).run is None
    else:
        assert "evil:make" in refused_or_same(path, fit)
    assert not (tmp_path / "ran").exists()


def mine(problem, batches):
    return naive(problem, batches)


def test_objects_that_the_fit_did_not_have(saved, tmp_path):
    fit, arrays, mark = saved
    path = forged(tmp_path / "a.npz", arrays, mark, mark["fit"])
    for name, given in (("estimator", mine), ("optimizer", optax.adam(0.1)), ("step_size", lambda t: 1.0)):
        assert name in refused_or_same(path, fit, **{name: given})
    own = fitted(estimator=mine)
    own.save(tmp_path / "own.npz")
    assert "mine" in refused_or_same(tmp_path / "own.npz", own, estimator=lambda problem, batches: None)
    assert refused_or_same(tmp_path / "own.npz", own, estimator=mine) == ""
