"""Experiments of searches: what is refused, jobs and hashes."""

import pytest
from small_specs import SEARCH, TAKEN_APART, assert_refused, figures, tables, write

from lowvar.errors import UserError
from lowvar_studies.jobs.load import load_experiment


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "variational"}, "unknown key"),
        ({"problems.e.function": "elipsoid"}, "problems.e.function: unknown function 'elipsoid': did you mean 'ellipsoid'?"),
        ({"problems.e.dim": 0}, "problems.e.dim = 0: it must be greater than or equal to 1"),
        ({"search": {"repetitions": 3}}, "key 'search.budget' is missing"),
        ({"draw": ["gradients"]}, "draw: unknown figure 'gradients'"),
        ({"decomposition": {**TAKEN_APART, "problems": ["d"]}}, "decomposition.problems: unknown problem 'd'"),
        ({"decomposition": {**TAKEN_APART, "problems": ["bits"]}}, "decomposition.problems: 'bits' has a binary domain"),
        ({"problems.e": {"function": "swimmer", "methods": ["fast_ingo"]}, "decomposition": TAKEN_APART},
         "decomposition.problems: 'e' has values from a simulator"),
        ({"problems.e.options": {"dim": 3}}, "problems.e.options: 'dim' is not an option: give it beside 'function'"),
        ({"problems.e.methods": ["ones"]}, "problems.e: method 'ones' searches binary domains, and ellipsoid has a real one"),
        ({"problems.bits.methods": None}, "problems.bits: method 'fast_ingo' searches real domains, and binary_reconstruction has a binary one"),
        ({"search.target": 3e-5}, "target 3e-05: it must be 1e4, .., 1e-10 in steps of 10^0.2"),
        ({"decomposition": {**TAKEN_APART, "schemes": ["rqmc"]}}, "schemes: iid is required"),
        ({"decomposition": {**TAKEN_APART, "schemes": ["iid", "orthogonl"]}}, "did you mean 'orthogonal'?"),
        ({"decomposition": {**TAKEN_APART, "populations": [5]}}, "populations: they must be even, because antithetic points come in pairs"),
    ],
)  # fmt: skip
def test_refused_of_a_search(tmp_path, changes, message):
    assert_refused(tmp_path, changes, message, SEARCH)


def test_a_search_states_its_jobs(tmp_path):
    experiment = load_experiment(write(tmp_path, base=SEARCH), "quick")
    assert experiment.methods["fast_ingo"].solver == "fast_ingo"
    assert ("bits", "ones", "torch") in experiment.runs()
    assert [job for job in experiment.runs() if job[1] == "pycma"] == [("e", "pycma", "jax")]
    budgets = {method: experiment.run("e", method, "jax").search.budget for method in ("fast_ingo", "short", "pycma")}
    assert budgets == {"fast_ingo": 100, "short": 100, "pycma": 200}
    bits = experiment.run("bits", "ones", "jax").search
    assert (bits.budget, bits.repetitions) == (50, 2)
    assert load_experiment(write(tmp_path, base=SEARCH), "smoke").run("e", "fast_ingo", "jax").search.budget == 10
    assert experiment.data("e") is None
    with pytest.raises(UserError, match="does not run 'fast_ingo' on 'bits' in jax"):
        experiment.run("bits", "fast_ingo", "jax")
    with pytest.raises(UserError, match="does not run 'pycma' on 'e' in torch"):
        experiment.run("e", "pycma", "torch")


def test_a_search_without_the_backends_runs_on_its_own(tmp_path):
    experiment = load_experiment(write(tmp_path, {"backends": ["torch"]}, SEARCH), "quick")
    jobs = {("e", "fast_ingo", "torch"), ("e", "short", "torch"), ("e", "pycma", "jax"), ("bits", "ones", "torch")}
    assert set(experiment.runs()) == jobs
    assert experiment.run("e", "pycma", "jax").backend == "jax"
    with pytest.raises(UserError, match="does not run 'fast_ingo' on 'e' in jax"):
        experiment.run("e", "fast_ingo", "jax")
    with pytest.raises(UserError, match="unknown backend 'numpy'"):
        experiment.run("e", "fast_ingo", "numpy")


def test_a_search_is_taken_apart_only_where_it_says(tmp_path):
    plain = load_experiment(write(tmp_path, base=SEARCH), "quick")
    assert (plain.decompositions(), next(iter(figures(plain)))) == ([], "effort")
    assert "decomposition" not in tables(plain)
    apart = load_experiment(write(tmp_path, {"decomposition": TAKEN_APART, "draw": ["gradients"]}, SEARCH), "quick")
    assert (apart.decompositions(), next(iter(figures(apart)))) == (["e"], "gradients")
    assert "decomposition" in tables(apart)
    for experiment, problem in ((plain, "e"), (apart, "bits")):
        with pytest.raises(UserError, match=f"decomposition.problems does not have '{problem}'"):
            experiment.decompose(problem)


def test_the_hash_of_a_search_depends_on_its_job_alone(tmp_path):
    def hashes(changes=None):
        experiment = load_experiment(write(tmp_path, changes, SEARCH), "quick")
        return {job: experiment.run(*job).hash for job in experiment.runs()}

    before = hashes()
    for changes in ({"title": "B"}, {"draw": ["curves"]}, {"decomposition": TAKEN_APART},
                    {"problems.e.methods": ["pycma", "fast_ingo", "short"]}):  # fmt: skip
        assert hashes(changes) == before, changes
    for changes, method in (({"methods.pycma.budget": 150}, "pycma"), ({"methods.ones.options": {"beta": 1}}, "ones")):
        assert {job[1] for job, hash in hashes(changes).items() if hash != before[job]} == {method}
    assert {job[0] for job, hash in hashes({"problems.e.dim": 5}).items() if hash != before[job]} == {"e"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: a\nseed: 1\nseed: 2\n", "duplicate key 'seed'"),
        (
            "name: a\ntitle: a\nfamily: search\nproblems: {p: {function: sphere, dim: 3}}\n"
            "methods: {es: {options: {step_siz: 1.0}}}\nsearch: {budget: 100}\n",
            "methods.es.options: es: unknown option 'step_siz': did you mean 'step_size'",
        ),
        (
            "name: a\ntitle: a\nproblems: {p: {problem: south, sizes: [3]}}\n"
            "methods: {monte_carlo: null}\nestimation: {repetitions: 2}\n",
            "an experiment with the key 'estimation' needs the key family: integral",
        ),
        (
            "name: a\ntitle: a\nfamily: search\nproblems: {p: {function: sphere, dim: 3, methods: []}}\n"
            "methods: {es: null}\nsearch: {budget: 100}\n",
            "problems.p.methods",
        ),
    ],
)
def test_slips_of_a_search_file_are_said_at_once(tmp_path, content, message):
    path = tmp_path / "a.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        load_experiment(path, "quick")
