"""Engines of black-box search: cut anywhere, resumed anywhere, counted exactly, the same in both backends."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from lowvar.core import loop
from lowvar.errors import UserError
from lowvar.search.evaluator import from_callable
from lowvar.search.problem import BlackBoxProblem, Domain
from lowvar_studies.jobs.load import load_experiment
from lowvar_studies.jobs.search import engine as search

EXPERIMENT = {
    "name": "small",
    "title": "Small searches",
    "family": "search",
    "backends": ["jax", "torch"],
    "problems": {
        "ellipsoid": {"function": "ellipsoid", "dim": 6, "methods": ["fast_ingo", "ingo", "pycma"]},
        "bits": {"function": "binary_reconstruction", "dim": 12, "methods": ["ingo_binary", "pymoo_ga"]},
    },
    "methods": {
        "fast_ingo": None,
        "ingo": {"budget": 2000},
        "ingo_binary": None,
        "pymoo_ga": {"options": {"population": 20}},
        "pycma": {"repetitions": 2},
    },
    "search": {"budget": 3000, "repetitions": 3},
}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    (folder / "small.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    return load_experiment(folder / "small.yaml", "quick")


def problem_of(f):
    """A batched function with a known optimum, and a start."""
    problem = from_callable(f, Domain("real", 6), batched=True)
    return replace(problem, start=lambda key: np.full(6, 0.5), optimum=0.0)


def engine(experiment, problem, method, backend="jax"):
    return search.build(experiment.run(problem, method, backend))


@pytest.mark.parametrize(
    ("problem", "method"),
    [
        ("ellipsoid", "fast_ingo"),
        ("bits", "pymoo_ga"),
        *(pytest.param("ellipsoid", name, marks=pytest.mark.long) for name in ("ingo", "pycma")),
    ],
)
def test_the_trace_and_the_targets_go_by_the_count(experiment, problem, method):
    made = engine(experiment, problem, method)
    result = loop.complete(made)
    budget = experiment.budget(problem, method)
    last = result.trace[result.trace["iteration"] == result.trace["iteration"].max()]
    assert (result.params["evaluations"] == last["evaluations"].to_numpy()).all()
    assert (result.params["evaluations"] == last["iteration"].to_numpy() * made.evaluations).all()
    assert budget - made.evaluations < made.stops[-1] * made.evaluations <= budget
    assert last["evaluations"].max() <= budget
    met = np.isfinite(result.params["met"])
    assert met.any()
    assert (np.diff(np.where(met, result.params["met"], np.inf)[:, met.all(axis=0)], axis=1) >= 0).all()
    assert (result.trace.groupby("repetition")["best"].apply(lambda b: (np.diff(b) <= 0).all())).all()
    assert (result.trace["failures"] == 0).all()


@pytest.mark.parametrize("method", ["fast_ingo", "pycma"])
def test_what_is_counted_is_what_the_function_was_asked(experiment, method):
    """Generations by the calls of the function itself; one point alone is a measurement, which is not counted."""
    spec, asked = experiment.run("ellipsoid", method, "jax"), []

    def f(points):
        asked.append(len(points))
        return np.where(points[:, 0] > 0.6, np.nan, (points**2).sum(axis=1))

    problem = problem_of(f)
    made = engine(experiment, "ellipsoid", method)
    settings = spec.search.model_copy(update={"early_stop": False})
    if method == "pycma":
        starts = search.DrivenEngine(problem, made._make, settings)
    else:
        starts = search.HostedEngine(problem, made.searches, settings)
    result = loop.complete(starts)
    in_generations = sum(n for n in asked if n > 1)
    assert set(asked) == {1, made.evaluations}
    assert result.params["evaluations"].sum() == in_generations
    assert (result.params["evaluations"] == spec.search.budget // made.evaluations * made.evaluations).all()
    assert result.trace["failures"].max() > 0


def test_a_run_does_not_depend_on_how_it_is_cut(experiment):
    for method, backend in (("fast_ingo", "jax"), ("fast_ingo", "torch")):
        one = engine(experiment, "ellipsoid", method, backend)
        whole = one.params(one.advance(one.init(), 0, 70), {})
        state = one.advance(one.init(), 0, 3)
        state = one.unflatten(one.flatten(one.advance(state, 3, 62)))
        cut = one.params(one.advance(state, 65, 5), {})
        for name, value in whole.items():
            assert np.array_equal(value, cut[name]), (method, backend, name)


def test_it_ends_when_every_repetition_has_met_the_last_target(experiment):
    spec = experiment.run("ellipsoid", "fast_ingo", "jax")
    longer = spec.model_copy(update={"search": spec.search.model_copy(update={"budget": 200_000})})
    result = loop.complete(search.build(longer))
    assert np.isfinite(result.params["met"]).all()
    assert result.trace["evaluations"].max() < 20_000
    first = result.trace[result.trace["iteration"] == 0]
    assert (first["best"] == np.inf).all()
    assert first["sigma"].tolist() == pytest.approx([0.5] * 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "backend"),
    [("fast_ingo", "jax"), ("ingo", "jax"), ("fast_ingo", "torch")],
)
def test_a_search_on_a_host_function_is_the_compiled_one(experiment, method, backend):
    """Given the same noise."""
    compiled = engine(experiment, "ellipsoid", method, backend)
    one = compiled.problem
    host = replace(
        one, backend=None, values=lambda x: compiled.backend.to_numpy(one.values(compiled.backend.asarray(x)))
    )
    hosted = search.HostedEngine(host, compiled.searches, compiled.settings)
    assert (hosted.stops, hosted.evaluations) == (compiled.stops, compiled.evaluations)
    found, expected = (one.params(one.advance(one.init(), 0, 64), {}) for one in (hosted, compiled))
    assert set(found) == set(expected)
    assert np.isfinite(expected["met"]).any()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_repetitions_may_have_functions_of_their_own_and_noise(experiment):
    """Targets are met by values without noise; the noise depends on the evaluations before, not on where a run was cut."""
    made, seen = engine(experiment, "ellipsoid", "fast_ingo"), []

    def on(r):
        def noise(points, values, first):
            seen.append(first)
            return values + 100 + np.random.default_rng(first).standard_normal(len(values))

        return BlackBoxProblem(
            "mine", Domain("real", 6), lambda x: ((x - r) ** 2).sum(axis=1), None, 0.0, lambda key: np.zeros(6),
            noise=noise, repetition=on,
        )  # fmt: skip

    hosted = search.HostedEngine(on(0), made.searches, made.settings)
    state = hosted.advance(hosted.init(), 0, 40)
    again = hosted.unflatten(hosted.flatten(state))
    assert sorted(set(seen)) == [made.evaluations * t for t in range(40)]
    a, b = hosted.params(hosted.advance(state, 40, 3), {}), hosted.params(hosted.advance(again, 40, 3), {})
    for name, value in a.items():
        assert np.array_equal(value, b[name]), name
    assert (a["best"] > 90).all()
    assert (np.isfinite(a["met_best"]).sum(axis=1) > 10).all()
    assert np.round(a["mean"].mean(axis=1)).tolist() == [0, 1, 2]


def test_mistakes_are_named(experiment):
    spec = experiment.run("ellipsoid", "fast_ingo", "jax")

    def of(solver, **options):
        return spec.method.model_copy(update={"solver": solver, "options": options})

    for change, name in (
        ({"search": spec.search.model_copy(update={"budget": 3})}, "budget 3"),
        ({"method": of("fast_ingo", bta=1)}, "'beta'"),
        ({"method": of("sep_cmaes"), "problem": spec.problem.model_copy(update={"dim": 1})}, "sep_cmaes"),
        ({"method": of("ingo_binary")}, "ingo_binary.*binary"),
        ({"method": of("pycma"), "backend": "torch"}, "pycma.*torch"),
        ({"problem": spec.problem.model_copy(update={"dim": None})}, "dimension"),
    ):
        with pytest.raises(UserError, match=name):
            search.build(spec.model_copy(update=change))
