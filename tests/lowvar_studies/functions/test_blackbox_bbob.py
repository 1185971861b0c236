"""The BBOB functions of COCO: values, instances, noise, and data that cocopp reads."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import yaml
from scipy import stats

from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar.search.evaluator import Evaluator
from lowvar_studies.functions import catalogue
from lowvar_studies.jobs import commands as jobs
from lowvar_studies.jobs.search import coco
from lowvar_studies.jobs.study import Study

cocoex = pytest.importorskip("cocoex")

EXPERIMENT = {
    "name": "small_bbob",
    "title": "Two functions",
    "family": "search",
    "problems": {
        "f001_2": {"function": "bbob", "dim": 2, "options": {"number": 1}},
        "f001_3": {"function": "bbob", "dim": 3, "options": {"number": 1}},
        "f008_2": {"function": "bbob", "dim": 2, "options": {"number": 8, "instance": 4}},
    },
    "methods": {"fast_ingo": None},
    "search": {"budget": 400, "repetitions": 2},
    "groups": {"easy": ["f001_2", "f001_3"], "hard": ["f008_2"]},
    "draw": ["groups"],
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bbob")
    (folder / "small_bbob.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    study = Study.load(folder / "small_bbob.yaml", "quick", folder / "results")
    for job in study.jobs("run"):
        jobs.run(job)
    return study


def test_values_are_gaps_of_the_suite_on_an_instance_for_each_repetition():
    suite = cocoex.Suite("bbob", "", "dimensions: 3 instance_indices: 2,4")
    points = np.random.default_rng(0).uniform(-6, 6, (4, 3))
    for number in range(1, 25):
        problem = catalogue.build("bbob", None, dim=3, number=number, instance=2)
        assert (problem.domain.kind, problem.backend, problem.optimum) == ("real", None, 0.0)
        for r, instance in ((0, 2), (2, 4)):
            theirs = suite.get_problem_by_function_dimension_instance(number, 3, instance)
            own = problem.repetition(r)
            expected = np.array([theirs(x) for x in points])
            shift = expected - own.values(points)  # the optimum of this instance
            assert np.ptp(shift) < 1e-9 * np.abs(expected).max(), (number, instance)
            assert (own.values(points) > 0).all()
        assert (problem.values(points) == problem.repetition(0).values(points)).all()
        start = problem.start(jax.random.key(0))
        assert start.shape == (3,)
        assert np.abs(start).max() <= 4


@pytest.mark.parametrize("number", [101, 103, 106, 107, 108, 115, 121, 124, 127, 130])
def test_noise_is_that_of_the_suite(number):
    """Inside of the bounds and beyond: Cauchy noise leaves most values at a constant, the others compare in law."""
    suite = cocoex.Suite("bbob-noisy", "", "dimensions: 3 instance_indices: 2")
    theirs = suite.get_problem_by_function_dimension_instance(number, 3, 2)
    problem = catalogue.build("bbob_noisy", None, dim=3, number=number, instance=2)
    shifts = []
    for x in (np.array([1.0, -2, 3]), np.array([-1.0, 0.3, 2]), np.array([6.0, 1, -5.5])):
        seen = np.array([theirs(x) for _ in range(1000)])
        exact = problem.values(x[None])
        mine = problem.noise(np.tile(x, (1000, 1)), np.repeat(exact, 1000), 0)
        if number % 3 == 1:  # Cauchy: 103, 106, ..
            middle = np.median(seen) - np.median(mine)
            shifts.append(middle)
            assert distance(seen - middle, mine) < 0.08
        else:
            fopt = np.median(cocoex_cauchy(suite, number, x) - cauchy_of(number, x))
            assert distance(seen - fopt, mine) < (0.08 if number % 3 == 2 else 0.11)
    if shifts:
        assert np.ptp(shifts) < 1e-6 * max(1, np.abs(shifts).max())


def distance(a, b):
    """Kolmogorov and Smirnov's, of values rounded to six digits."""
    return stats.ks_2samp(np.round(a, 6), np.round(b, 6), method="asymp").statistic


def cocoex_cauchy(suite, number, x):
    """Values of the suite's function with Cauchy noise that has the base function of ``number``."""
    theirs = suite.get_problem_by_function_dimension_instance(_cauchy(number), 3, 2)
    return np.array([theirs(x) for _ in range(25)])


def cauchy_of(number, x):
    problem = catalogue.build("bbob_noisy", None, dim=3, number=_cauchy(number), instance=2)
    return problem.noise(np.tile(x, (25, 1)), np.repeat(problem.values(x[None]), 25), 0)


def _cauchy(number):
    return number + (103 - number) % 3


def test_noise_depends_on_the_evaluations_before_and_not_on_the_measurements():
    problem = catalogue.build("bbob_noisy", None, dim=3, number=107)
    one, two = Evaluator(problem), Evaluator(problem)
    x = np.zeros((4, 3))
    first = one(x)
    assert np.unique(first).size == 4
    two.measure(x)
    assert (two(x) == first).all()
    assert not np.isin(one(x), first).any()
    assert one.nearest == one.measure(x[:1])[0] != one.best


@pytest.mark.parametrize(
    ("name", "options", "place"),
    [
        ("bbob", {"number": 25}, "1 to 24"),
        ("bbob", {"number": "1"}, "number '1'"),
        ("bbob", {"number": 1, "dim": 1}, "dim 1"),
        ("bbob", {"number": 1, "instance": 0}, "instance 0"),
        ("bbob_noisy", {"number": 117}, "f117"),  # its values are never without noise
    ],
)
def test_mistakes_are_named(name, options, place):
    with pytest.raises(UserError, match=place):
        catalogue.build(name, None, **{"dim": 3, **options})


def test_groups_pool_their_problems(study):
    jobs.tables(study)
    groups = study.table("groups")
    assert list(dict.fromkeys(groups["problem"])) == ["all", "easy", "hard"]
    each = study.table("profiles").query("of == 'best'")
    pooled = groups.query("of == 'best' and problem == 'easy'").sort_values("evaluations_per_dim")
    grid = pooled["evaluations_per_dim"].to_numpy()
    shares = [
        rows.sort_values("evaluations_per_dim").set_index("evaluations_per_dim")["share"].reindex(grid, method="ffill")
        for name, rows in each.groupby("problem")
        if name in ("f001_2", "f001_3")
    ]
    np.testing.assert_allclose(pooled["share"], np.mean([part.to_numpy() for part in shares], axis=0), atol=1e-12)


def test_cocopp_reads_the_data(study, tmp_path):
    """The evaluations to a target are those of the run; cocopp looks for its archives on the web, which this refuses."""
    pytest.importorskip("cocopp")
    (folder,) = coco.export(study, tmp_path / "exdata")
    code = f"""
import urllib.request
def refused(*args, **options): raise OSError("no network")
urllib.request.urlopen = refused
import warnings; warnings.simplefilter("ignore")
from cocopp import pproc
for one in pproc.DataSetList([{str(folder)!r}]):
    print("data", one.funcId, one.dim, one.algId, *one.instancenumbers, *one.detEvals([1.0])[0], *one.maxevals)
"""
    home = {"HOME": str(tmp_path), "MPLCONFIGDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **home})
    seen = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("data ")]
    expected = []
    for name, number, dim, first in (("f001_2", 1, 2, 1), ("f001_3", 1, 3, 1), ("f008_2", 8, 2, 4)):
        arrays = study.job("run", name, "fast_ingo", "jax").read("params.npz", artifact.read_arrays)[0]
        at = np.isclose(arrays["targets"], 1.0)
        met = np.where(np.isfinite(arrays["met_best"][:, at]), arrays["met_best"][:, at], np.nan).ravel()
        expected.append([str(number), str(dim), "fast_ingo", str(first), str(first + 1),
                         *map(str, met), *map(str, arrays["evaluations"].astype(float))])  # fmt: skip
    assert sorted(seen) == sorted(expected), ran.stderr[-2000:]
