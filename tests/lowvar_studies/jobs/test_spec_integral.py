"""Experiments of integrals: what is refused, jobs and hashes."""

import pytest
from small_specs import INTEGRAL, assert_refused, figures, tables, write

from lowvar.errors import UserError
from lowvar_studies.jobs.load import load_experiment


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backends": ["torch"]}, "unknown key 'backends'"),
        ({"estimation": {"chunk": 3}}, "key 'estimation.repetitions' is missing"),
        ({"problems.b.sizes": []}, "problems.b.sizes: []: it must be a list of positive integers"),
        ({"problems.b.sizes": [0]}, "problems.b.sizes: [0]: it must be a list of positive integers"),
        ({"problems.b.sizes": [20, [20, 20]]}, "a size occurs twice"),
        ({"problems.b.sizes": [[20, 20], [20]]}, "every list must have a number for each task"),
        ({"problems.b.methods": []}, "problems.b.methods: []: it must name at least one method"),
        ({"problems.b.sampler": "published"}, "the published points differ between sizes"),
        ({"problems.high.sizes": [200]}, "problems.high.sizes: 200 points, but b draws"),
        ({"problems.b.within": "s"}, "problems.b: exactly one of 'problem' and 'within' must be given"),
        ({"problems.b": {"sizes": [3]}}, "problems.b: exactly one of 'problem' and 'within' must be given"),
        ({"problems.high": {"within": "b", "sizes": [3]}}, "problems.high: 'tasks' and 'within' go together"),
        ({"problems.high.options": {"a": 1}}, "problems.high: 'options' comes from the problem named by 'within'"),
        ({"problems.high.within": "c"}, "problems.high.within: unknown problem 'c'"),
        ({"problems.last": {"within": "high", "tasks": ["high"], "sizes": [3]}}, "problems.last.within: unknown problem 'high'"),
        ({"problems.s.methods": {"stopped": {"epoch": 5}}},
         "problems.s.methods.stopped: paper_cv: unknown option 'epoch': did you mean 'epochs'?"),
        ({"methods.stopped.integrator": "paper_cvs"}, "methods.stopped: unknown integrator 'paper_cvs': did you mean 'paper_cv'?"),
        ({"methods.stopped.options": {"rat": 0.1}}, "methods.stopped.options: paper_cv: unknown option 'rat': did you mean 'rate'?"),
        ({"draw": ["eror"]}, "draw: unknown figure 'eror': did you mean 'errors'?"),
        ({"draw": ["fits"]}, "draw: unknown figure 'fits'"),
        ({"draw": []}, "draw = []"),
        ({"draw": ["boxes", "boxes"]}, "draw: 'boxes' occurs twice"),
        ({"problems.s.methods": ["monte_carlo", "monte_carlo"]}, "problems.s.methods: 'monte_carlo' occurs twice"),
        ({"illustrate": {"fit": {}}}, "unknown key 'illustrate.fit': did you mean 'fits'?"),
        ({"illustrate": {"fits": {"c": ["monte_carlo"]}}}, "illustrate.fits: unknown problem 'c'"),
        ({"illustrate": {"fits": {"s": ["stoped"]}}}, "illustrate.fits.s: unknown method 'stoped': did you mean 'stopped'?"),
        ({"illustrate": {"power_scores": "c"}}, "illustrate.power_scores: unknown problem 'c'"),
    ],
)  # fmt: skip
def test_refused_of_integrals(tmp_path, changes, message):
    assert_refused(tmp_path, changes, message, INTEGRAL)


def test_integrals_state_their_jobs(tmp_path):
    experiment = load_experiment(write(tmp_path, base=INTEGRAL), "quick")
    assert experiment.methods["monte_carlo"].integrator == "monte_carlo"
    on = {"b": ("monte_carlo", "stopped"), "s": ("monte_carlo", "stopped"), "high": ("monte_carlo",)}
    assert set(experiment.runs()) == {(problem, method, "torch") for problem in on for method in on[problem]}
    assert (experiment.samples(), experiment.drawn_from("high"), experiment.decompositions()) == (["b", "s"], "b", [])
    assert [experiment.run(problem, "stopped", "torch").method.options for problem in ("b", "s")] == [
        {"epochs": 9, "record": 1},
        {"epochs": 5, "record": 1},
    ]
    assert (experiment.sample("b").sizes, experiment.sample("s").sizes) == ((20, 15), 10)
    assert [experiment.repetitions(problem) for problem in ("b", "s", "high")] == [3, 2, 3]
    assert load_experiment(write(tmp_path, base=INTEGRAL), "smoke").repetitions("high") == 1
    with pytest.raises(UserError, match="does not run 'stopped' on 'high'"):
        experiment.run("high", "stopped", "torch")
    with pytest.raises(UserError, match="unknown backend 'jax'"):
        experiment.run("b", "stopped", "jax")
    with pytest.raises(UserError, match="'high' uses the points of 'b': draw those"):
        experiment.sample("high")
    with pytest.raises(UserError, match="the errors of integrals are decomposed by: lowvar table"):
        experiment.decompose("b")


def test_integrals_stand_on_the_data_of_their_problem(tmp_path):
    hares = {"problem": "lotka_volterra", "sizes": [9], "methods": ["monte_carlo"]}
    two = {"within": "hares", "tasks": ["a"], "sizes": [9], "methods": ["monte_carlo"]}
    simulated = hares | {"options": {"observations": "simulated"}}
    changes = {"problems.hares": hares, "problems.two": two, "problems.simulated": simulated}
    experiment = load_experiment(write(tmp_path, changes, INTEGRAL), "quick")
    found = experiment.data("hares")
    assert (found.dataset, found.scaling) == ("hudson_bay", "none")
    assert experiment.data("two") == found
    assert experiment.data("simulated") is experiment.data("high") is None


def test_integrals_have_tables_and_figures_for_what_they_illustrate(tmp_path):
    plain = load_experiment(write(tmp_path, base=INTEGRAL), "quick")
    assert tables(plain) == ("truth", "errors", "sums", "estimates", "decomposition")
    assert (next(iter(figures(plain))), figures(plain)["split"]) == ("errors", "decomposition")
    changes = {"illustrate": {"stein_kernels": True, "epochs": {"s": ["stopped"]}}, "draw": ["stein_kernels", "epochs"]}
    drawn = load_experiment(write(tmp_path, changes, INTEGRAL), "quick")
    assert set(tables(drawn)) - set(tables(plain)) == {"kernels", "epochs"}
    assert figures(drawn) == {"stein_kernels": "kernels", "epochs": "epochs"}


def test_the_hash_of_an_integral_depends_on_its_job_alone(tmp_path):
    def hashes(changes=None):
        experiment = load_experiment(write(tmp_path, changes, INTEGRAL), "quick")
        runs = {job: experiment.run(*job).hash for job in experiment.runs()}
        return runs | {problem: experiment.sample(problem).hash for problem in experiment.samples()}

    def differ(changes):
        after = hashes(changes)
        return {job for job in before if after[job] != before[job]}

    before = hashes()
    for changes in ({"title": "B"}, {"draw": ["split"]}, {"illustrate": {"stein_kernels": True}}):
        assert not differ(changes), changes
    assert differ({"methods.stopped.options": {"epochs": 8}}) == {("b", "stopped", "torch"), ("s", "stopped", "torch")}
    assert differ({"problems.s.methods": ["monte_carlo", "stopped"]}) == {("s", "stopped", "torch")}
    of_b = {("b", "monte_carlo", "torch"), ("b", "stopped", "torch")}
    assert differ({"problems.b.sizes": [5, 10, [20, 15]]}) == of_b  # no points more than there are
    assert differ({"problems.b.sizes": [10, [20, 16]]}) == of_b | {"b"}
    assert differ({"problems.b.truth_effort": 2}) == {"b"}
    assert differ({"estimation.chunk": 2}) == set(before) - {"b", "s"}
    assert differ({"seed": 1}) == set(before)
