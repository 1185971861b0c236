"""Experiment files: what is accepted, what is refused and how, and what a hash depends on."""

from pathlib import Path
from typing import get_args

import pytest
import yaml

from lowvar.errors import UserError
from lowvar.studies.common_spec import SCALES, validated
from lowvar.studies.declarations import names_of
from lowvar.studies.load import FAMILIES, json_schema, load_experiment
from lowvar.studies.variational.spec import SolverSpec

BASE = {
    "name": "small",
    "title": "A small one",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": None, "mine": {"estimator": "joint", "options": {"table": "rows"}}},
    "solver": {"step_sizes": [1e-3], "batch_size": 5, "epochs": 3},
    "decomposition": {"leader": "mine", "step_size": 1e-3, "epochs": 3},
    "scales": {"smoke": {"solver": {"epochs": 1}}},
}
SEARCH = {
    "name": "small",
    "title": "A small search",
    "family": "search",
    "backends": ["jax", "torch"],
    "problems": {
        "e": {"function": "ellipsoid", "dim": 4, "methods": ["fast_ingo", "short", "pycma"]},
        "bits": {"function": "binary_reconstruction", "dim": 8, "methods": ["ones"], "budget": 50},
    },
    "methods": {
        "fast_ingo": None,
        "ones": {"solver": "ingo_binary", "repetitions": 2},
        "short": {"solver": "ingo", "repetitions": 2},
        "pycma": {"budget": 200},
    },
    "search": {"budget": 100, "repetitions": 3},
    "scales": {"smoke": {"search": {"budget": 10}}},
}
TAKEN_APART = {"problems": ["e"], "populations": [4]}
INTEGRAL = {
    "name": "small",
    "title": "Small integrals",
    "family": "integral",
    "problems": {
        "b": {"problem": "borehole", "sizes": [10, [20, 15]]},
        "s": {
            "problem": "south",
            "options": {"variance": 1.1},
            "sizes": [10],
            "methods": {"monte_carlo": None, "stopped": {"epochs": 5}},
            "repetitions": 2,
        },
        "high": {"within": "b", "tasks": ["high"], "sizes": [12], "methods": ["monte_carlo"]},
    },
    "methods": {
        "monte_carlo": None,
        "stopped": {"integrator": "paper_cv", "options": {"epochs": 9, "record": 1}},
    },
    "estimation": {"repetitions": 3},
    "scales": {"smoke": {"estimation": {"repetitions": 1}}},
}


def tables(experiment):
    return names_of(FAMILIES[experiment.family].tables, experiment)


def figures(experiment):
    """Its figures, and the table that each is drawn from."""
    return {name: one.table for name, one in FAMILIES[experiment.family].figures_of(experiment).items()}


def write(tmp_path, changes=None, base=BASE):
    content = yaml.safe_load(yaml.safe_dump(base))
    for key, value in (changes or {}).items():
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_scales_override(tmp_path):
    path = write(tmp_path)
    assert load_experiment(path, "smoke").solver.epochs == 1
    assert load_experiment(path, "paper").solver.epochs == 3
    assert load_experiment(path, "quick").methods["naive"].estimator == "naive"


def shipped():
    return sorted(path.stem for path in (Path(__file__).parents[2] / "workflow" / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("name", shipped())
def test_shipped_experiments_load_at_every_scale(repository, name):
    for scale in SCALES:
        experiment = load_experiment(repository / "workflow" / "experiments" / f"{name}.yaml", scale)
        assert experiment.name == name
        assert all(experiment.run(*job).hash for job in experiment.runs())
        assert all(experiment.decompose(problem).hash for problem in experiment.decompositions())
        assert all(experiment.sample(problem).hash for problem in experiment.samples())
        assert set(figures(experiment).values()) <= {*tables(experiment), "seconds"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver.epoch": 3}, "unknown key 'solver.epoch': did you mean 'epochs'?"),
        ({"solver": {"step_sizes": [1.0], "batchsize": 5, "epochs": 1}}, "unknown key 'solver.batchsize': did you mean 'batch_size'?"),
        ({"name": "other"}, "name 'other' must equal the file's name, 'small'"),
        ({"titel": "x"}, "unknown key 'titel': did you mean 'title'?"),
        ({"solver.step_sizes": [1e-3, 0.0]}, "solver.step_sizes.1 = 0.0: it must be greater than 0"),
        ({"solver.optimizer": "adma"}, "unknown optimizer 'adma': did you mean 'adam'?"),
        ({"backends": ["trch"]}, "did you mean 'torch'?"),
        ({"methods": {"jiont": None}, "decomposition.leader": "jiont"}, "methods.jiont.estimator: unknown estimator 'jiont': did you mean 'joint'?"),
        ({"problems.bc.dataset": "breast_cancr"}, "problems.bc.dataset: unknown dataset 'breast_cancr': did you mean 'breast_cancer'?"),
        ({"problems.bc.model": "logistic"}, "problems.bc.model: unknown problem 'logistic': did you mean 'logistic_regression'?"),
        ({"problems.bc.scaling": "minmx"}, "did you mean 'minmax'?"),
        ({"decomposition.leader": "min"}, "decomposition.leader: unknown method 'min': did you mean 'mine'?"),
        ({"scales": {"smok": {}}}, "unknown scale 'smok': did you mean 'smoke'?"),
        ({"solver": {"step_sizes": [1.0], "epochs": 1}}, "key 'solver.batch_size' is missing"),
        ({"solver.noise": "antithetic"}, "antithetic"),
        ({"methods": ["naive", "joint"]}, "methods = ['naive', 'joint']: it must be a mapping of names"),
        ({"scales": {"quick": 3}}, "scales.quick = 3: it must be a mapping of keys"),
        ({"problems": {"../../evil": BASE["problems"]["bc"]}}, "problems: '../../evil': a name may have only letters"),
        ({"methods": {"nai/ve": {"estimator": "naive"}}}, "methods: 'nai/ve': a name may have only letters"),
        ({"name": "small\n"}, "name: 'small\\n': a name may have only letters"),
        ({"solver.epochs": True}, "solver.epochs = True: it must be a whole number"),
        ({"solver.epochs": "3"}, "solver.epochs = '3': it must be a whole number"),
        ({"solver.step_sizes": ["0.1"]}, "solver.step_sizes.0 = '0.1': it must be a number"),
        ({"seed": -1}, "seed = -1: it must be greater than or equal to 0"),
        ({"scales.paper": {"solvr": {}}}, "at scale paper: unknown key 'solvr': did you mean 'solver'?"),
        ({"scales.paper": {"problems": {"bc": {"solver": {"epoch": 1}}}}}, "at scale paper: problems.bc.solver: unknown key 'epoch'"),
        ({"scales.smoke": {"methods": {"nave": {"estimator": "nave"}}}}, "at scale smoke: methods.nave.estimator: unknown estimator 'nave'"),
        ({"backends": ["jax", "jax"]}, "backends: 'jax' occurs twice: the entries must be different"),
        ({"solver.step_sizes": [0.1, 1, 0.1]}, "solver.step_sizes: 0.1 occurs twice"),
        ({"decomposition.methods": ["naive", "naive"]}, "decomposition.methods: 'naive' occurs twice"),
        ({"decomposition.replicates": 3}, "replicates = 3: one run needs at least 4"),
        ({"decomposition.rows": 1}, "decomposition.rows = 1: it must be greater than or equal to 2"),
    ],
)  # fmt: skip
def test_refused(tmp_path, changes, message):
    assert_refused(tmp_path, changes, message, BASE)


def assert_refused(tmp_path, changes, message, base):
    path = write(tmp_path, changes, base)
    with pytest.raises(UserError) as error:
        load_experiment(path, "quick")
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "serch"}, "family: unknown family 'serch': did you mean 'search'?"),
        ({"family": "variational"}, "unknown key"),
        ({"solver": {"epochs": 3}}, "unknown key 'solver'"),
        ({"problems.e.function": "elipsoid"}, "problems.e.function: unknown function 'elipsoid': did you mean 'ellipsoid'?"),
        ({"problems.e.methods": ["fast_ing"]}, "problems.e.methods: unknown method 'fast_ing': did you mean 'fast_ingo'?"),
        ({"problems.e.dim": 0}, "problems.e.dim = 0: it must be greater than or equal to 1"),
        ({"methods.ones.solver": "ingo_binry"}, "methods.ones.solver: unknown search 'ingo_binry': did you mean 'ingo_binary'?"),
        ({"search.budgt": 3}, "unknown key 'search.budgt': did you mean 'budget'?"),
        ({"search": {"repetitions": 3}}, "key 'search.budget' is missing"),
        ({"backends": ["torch", "torch"]}, "backends: 'torch' occurs twice"),
        ({"problems.e.methods": ["es", "es"]}, "problems.e.methods: 'es' occurs twice"),
        ({"decomposition": {**TAKEN_APART, "problems": ["e", "e"]}}, "decomposition.problems: 'e' occurs twice"),
        ({"decomposition": {**TAKEN_APART, "populations": [4, 8, 4]}}, "decomposition.populations: 4 occurs twice"),
        ({"decomposition": {**TAKEN_APART, "sigmas": [1, 1.0]}}, "decomposition.sigmas: 1.0 occurs twice"),
        ({"decomposition": {**TAKEN_APART, "schemes": ["iid", "iid"]}}, "decomposition.schemes: 'iid' occurs twice"),
        ({"decomposition": {**TAKEN_APART, "baselines": ["mean", "mean"]}}, "decomposition.baselines: 'mean' occurs twice"),
        ({"problems": {"..": SEARCH["problems"]["e"]}}, "problems: '..': a name may have only letters"),
        ({"methods": {"{x}": {"solver": "es"}}}, "methods: '{x}': a name may have only letters"),
        ({"draw": ["efort"]}, "draw: unknown figure 'efort': did you mean 'effort'?"),
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "intgral"}, "family: unknown family 'intgral': did you mean 'integral'?"),
        ({"backends": ["torch"]}, "unknown key 'backends'"),
        ({"solver": {"epochs": 3}}, "unknown key 'solver'"),
        ({"problems": {"a b": INTEGRAL["problems"]["b"]}}, "problems: 'a b': a name may have only letters"),
        ({"methods": {"": {"integrator": "monte_carlo"}}}, "methods: '': a name may have only letters"),
        ({"estimation": {"chunk": 3}}, "key 'estimation.repetitions' is missing"),
        ({"estimation.chunks": 5}, "unknown key 'estimation.chunks': did you mean 'chunk'?"),
        ({"problems.b.problem": "borhole"}, "problems.b.problem: unknown problem 'borhole': did you mean 'borehole'?"),
        ({"problems.b.sampler": "rqmcc"}, "problems.b.sampler: unknown sampler 'rqmcc': did you mean 'rqmc'?"),
        ({"problems.b.sizes": []}, "problems.b.sizes: []: it must be a list of positive integers"),
        ({"problems.b.sizes": [0]}, "problems.b.sizes: [0]: it must be a list of positive integers"),
        ({"problems.b.sizes": 20}, "problems.b.sizes: 20: it must be a list of positive integers"),
        ({"problems.b.sizes": [20, [20, 20]]}, "a size occurs twice"),
        ({"problems.b.sizes": [[20, 20], [20]]}, "every list must have a number for each task"),
        ({"problems.b.methods": []}, "problems.b.methods: []: it must name at least one method"),
        ({"problems.b.methods": 3}, "problems.b.methods: 3: it must be a list of methods"),
        ({"problems.b.sampler": "published"}, "the published points differ between sizes"),
        ({"problems.high.sizes": [200]}, "problems.high.sizes: 200 points, but b draws"),
        ({"problems.high.tasks": ["high", "high"]}, "problems.high.tasks: 'high' occurs twice"),
        ({"figure_options": {"boxs": {}}}, "figure_options: unknown figure 'boxs'"),
        ({"problems.b.within": "s"}, "problems.b: exactly one of 'problem' and 'within' must be given"),
        ({"problems.b": {"sizes": [3]}}, "problems.b: exactly one of 'problem' and 'within' must be given"),
        ({"problems.high": {"within": "b", "sizes": [3]}}, "problems.high: 'tasks' and 'within' go together"),
        ({"problems.high.options": {"a": 1}}, "problems.high: 'options' comes from the problem named by 'within'"),
        ({"problems.high.within": "c"}, "problems.high.within: unknown problem 'c'"),
        ({"problems.last": {"within": "high", "tasks": ["high"], "sizes": [3]}}, "problems.last.within: unknown problem 'high'"),
        ({"problems.s.methods": ["stoped"]}, "problems.s.methods: unknown method 'stoped': did you mean 'stopped'?"),
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


def test_specs_know_what_there_is():
    """What a schema must state as literals, and what is known of a function before it is built."""
    from lowvar import backends
    from lowvar.estimators.search.shaping import BASELINES
    from lowvar.noise import GAUSSIAN
    from lowvar.noise.integrals import SAMPLERS
    from lowvar.problems.blackbox.catalogue import FUNCTIONS, build
    from lowvar.studies.integral.spec import Sampler
    from lowvar.studies.search.counted import TARGETS
    from lowvar.studies.search.figures import curves
    from lowvar.studies.search.spec import TARGET, Baseline, Scheme, SearchSettings

    assert (get_args(Scheme), get_args(Baseline)) == (tuple(GAUSSIAN), BASELINES)
    assert get_args(Sampler) == SAMPLERS.own
    assert (TARGETS[0], TARGETS[-1], len(TARGETS)) == (1e4, 1e-10, 71)
    assert curves.TARGET is SearchSettings(budget=1).target is TARGET
    assert TARGETS[-1] == TARGET
    for target in TARGETS:
        assert SearchSettings(budget=1, target=target).target == target
    for name in FUNCTIONS.own:
        row = FUNCTIONS.about(name)
        if row.program:
            problem = build(name, backends.get("jax"), dim=6)
            assert (problem.domain.kind, problem.backend is not None) == (row.domain, True)
    pytest.importorskip("mujoco")
    for name in FUNCTIONS.own:
        row = FUNCTIONS.about(name)
        if row.extra == "rl":
            problem = build(name, backends.get("jax"))
            assert (problem.domain.kind, problem.backend) == (row.domain, None)


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


@pytest.mark.parametrize("base", [BASE, SEARCH, INTEGRAL], ids=list(FAMILIES))
def test_the_schema_takes_what_is_written(base):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(yaml.safe_load(yaml.safe_dump(base)), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(base | {"titel": "x"}, json_schema())


def test_not_yaml_and_not_there(tmp_path):
    path = tmp_path / "small.yaml"
    for content in (b"a: [1", b"\xff\xfe\x00"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not YAML"):
            load_experiment(path, "quick")
    with pytest.raises(UserError, match="unknown experiment 'smal': did you mean 'small'"):
        load_experiment(tmp_path / "smal.yaml", "quick")
    with pytest.raises(UserError, match="unknown scale 'qick': did you mean 'quick'"):
        load_experiment(write(tmp_path), "qick")


def test_a_hash_depends_on_its_job_alone(tmp_path):
    before = load_experiment(write(tmp_path), "quick")
    after = load_experiment(write(tmp_path, {"methods.mine.options": {"table": "snapshots"}, "title": "B"}), "quick")
    assert before.run("bc", "naive", "jax").hash == after.run("bc", "naive", "jax").hash
    assert before.run("bc", "mine", "jax").hash != after.run("bc", "mine", "jax").hash
    assert before.decompose("bc").hash != after.decompose("bc").hash
    longer = load_experiment(write(tmp_path, {"decomposition.epochs": 4}), "quick")
    assert before.run("bc", "mine", "jax").hash == longer.run("bc", "mine", "jax").hash
    assert before.decompose("bc").hash != longer.decompose("bc").hash


def test_a_job_must_be_of_the_experiment(tmp_path):
    experiment = load_experiment(write(tmp_path), "quick")
    with pytest.raises(UserError, match="experiment 'small': unknown method 'min': did you mean 'mine'"):
        experiment.run("bc", "min", "jax")
    with pytest.raises(UserError, match="unknown backend 'torch'"):
        experiment.run("bc", "mine", "torch")


def test_a_whole_float_counts(tmp_path):
    solver = load_experiment(write(tmp_path, {"solver.epochs": 1e3}), "quick").solver
    assert solver.epochs == 1000
    assert isinstance(solver.epochs, int)
    with pytest.raises(UserError, match=r"solver\.epochs = 1000\.5"):
        load_experiment(write(tmp_path, {"solver.epochs": 1000.5}), "quick")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_or_truth_value_is_taken_for_a_number(family):
    """Numbers and truth values of specs are strict, wherever they are nested."""

    def lax(schema, where):
        if isinstance(schema, dict):
            if schema.get("type") in ("int", "float", "bool") and not schema.get("strict"):
                yield where
            for key, part in schema.items():
                yield from lax(part, f"{where}.{key}")
        for part in schema if isinstance(schema, list) else ():
            yield from lax(part, where)

    assert not list(lax(FAMILIES[family].experiment.__pydantic_core_schema__, family))


def test_numbers_without_a_point_or_a_sign_are_numbers(tmp_path, monkeypatch):
    """YAML 1.1 takes them for text."""
    from lowvar import registry

    monkeypatch.setattr(registry, "_folders", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    text = yaml.safe_dump(BASE).replace("- 0.001", "- 1e-3\n  - 2E4\n  - .5e1").replace("table: rows", "share: 1e-1")
    (tmp_path / "small.yaml").write_text(text.replace("estimator: joint", "estimator: 'with_share:mine'"))
    (tmp_path / "with_share.py").write_text("def mine(problem, batches=None, share: float = 0.5): ...")
    experiment = load_experiment(tmp_path / "small.yaml", "quick")
    assert experiment.solver.step_sizes == (1e-3, 2e4, 5.0)
    assert experiment.methods["mine"].options == {"share": 0.1}


def test_step_sizes_need_one():
    with pytest.raises(UserError, match="step_sizes"):
        validated(SolverSpec, {"step_sizes": [], "batch_size": 1, "epochs": 1}, where="here")


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
