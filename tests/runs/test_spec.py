"""Experiment files: what is accepted, what is refused and how, and what a hash depends on."""

from pathlib import Path
from typing import get_args

import pytest
import yaml

from lowvar.errors import UserError
from lowvar.runs.spec import FAMILIES, SCALES, SolverSpec, json_schema, load_experiment, validated

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
        assert experiment.headline in experiment.figures
        assert set(experiment.figures.values()) <= {*experiment.tables, "seconds"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver.epoch": 3}, "unknown key 'solver.epoch': did you mean 'epochs'?"),
        ({"solver": {"step_sizes": [1.0], "batchsize": 5, "epochs": 1}}, "unknown key 'solver.batchsize': did you mean 'batch_size'?"),
        ({"name": "other"}, "name 'other' is not the file's: write 'small'"),
        ({"titel": "x"}, "unknown key 'titel': did you mean 'title'?"),
        ({"solver.step_sizes": [1e-3, 0.0]}, "solver.step_sizes.1 = 0.0: input should be greater than 0"),
        ({"solver.step_sizes": [-1.0]}, "solver.step_sizes.0 = -1.0: input should be greater than 0"),
        ({"solver.optimizer": "adma"}, "unknown optimizer 'adma': did you mean 'adam'?"),
        ({"backends": ["trch"]}, "did you mean 'torch'?"),
        ({"methods": {"jiont": None}, "decomposition.leader": "jiont"}, "methods.jiont.estimator: unknown estimator 'jiont': did you mean 'joint'?"),
        ({"problems.bc.dataset": "breast_cancr"}, "problems.bc.dataset: unknown dataset 'breast_cancr': did you mean 'breast_cancer'?"),
        ({"problems.bc.model": "logistic"}, "problems.bc.model: unknown problem 'logistic': did you mean 'logistic_regression'?"),
        ({"problems.bc.scaling": "minmx"}, "did you mean 'minmax'?"),
        ({"decomposition.leader": "min"}, "decomposition.leader: unknown method 'min': did you mean 'mine'?"),
        ({"scales": {"smok": {}}}, "unknown scale 'smok': did you mean 'smoke'?"),
        ({"solver": {"step_sizes": [1.0], "epochs": 1}}, "key 'solver.batch_size' is missing"),
        ({"solver.eps": "antithetic"}, "antithetic"),
        ({"methods": ["naive", "joint"]}, "methods = ['naive', 'joint']: it must be a mapping of names"),
        ({"methods": "naive"}, "methods = 'naive': it must be a mapping of names"),
        ({"scales": ["quick"]}, "scales = ['quick']: it must be a mapping of names"),
        ({"scales": {"quick": 3}}, "scales.quick = 3: it must be a mapping of keys"),
        ({"decomposition.rows": 1}, "decomposition.rows = 1: input should be greater than or equal to 2"),
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
        ({"problems.e.dim": 0}, "problems.e.dim = 0: input should be greater than or equal to 1"),
        ({"problems.e.dims": 4}, "unknown key 'problems.e.dims': did you mean 'dim'?"),
        ({"methods.ones.solver": "ingo_binry"}, "methods.ones.solver: unknown solver 'ingo_binry': did you mean 'ingo_binary'?"),
        ({"methods.fast_ing": None}, "methods.fast_ing.solver: unknown solver 'fast_ing': did you mean 'fast_ingo'?"),
        ({"methods.ones": {"estimator": "naive"}}, "unknown key 'methods.ones.estimator'"),
        ({"search.budgt": 3}, "unknown key 'search.budgt': did you mean 'budget'?"),
        ({"search": {"repetitions": 3}}, "key 'search.budget' is missing"),
        ({"search.target": 0.0}, "search.target = 0.0: input should be greater than 0"),
        ({"draw": ["efort"]}, "draw: unknown figure 'efort': did you mean 'effort'?"),
        ({"draw": ["shares"]}, "draw: unknown figure 'shares'"),
        ({"draw": ["gradients"]}, "draw: unknown figure 'gradients'"),
        ({"decomposition": {**TAKEN_APART, "problems": ["d"]}}, "decomposition.problems: unknown problem 'd'"),
        ({"decomposition": {**TAKEN_APART, "problems": ["bits"]}}, "decomposition.problems: 'bits' has a binary domain"),
        ({"problems.e": {"function": "swimmer", "methods": ["fast_ingo"]}, "decomposition": TAKEN_APART},
         "decomposition.problems: 'e' has values from a simulator"),
        ({"problems.e.options": {"dim": 3}}, "problems.e.options: 'dim' is no option: state it beside 'function'"),
        ({"problems.e.options": {"name": "f"}}, "problems.e.options: 'name' is no option: a problem is named by its key"),
        ({"problems.e.options": {"backend": "jax"}}, "problems.e.options: 'backend' is no option: state it in 'backends'"),
        ({"problems.e.methods": ["ones"]}, "problems.e: method 'ones' searches binary domains, and ellipsoid has a real one"),
        ({"problems.bits.methods": None}, "problems.bits: method 'fast_ingo' searches real domains, and binary_reconstruction has a binary one"),
        ({"search.target": 3e-5}, "target 3e-05: it must be 1e4, .., 1e-10 in steps of 10^0.2"),
        ({"decomposition": {**TAKEN_APART, "schemes": ["rqmc"]}}, "schemes: iid must be among them"),
        ({"decomposition": {**TAKEN_APART, "schemes": ["iid", "orthogonl"]}}, "did you mean 'orthogonal'?"),
        ({"decomposition": {**TAKEN_APART, "populations": [5]}}, "populations: antithetic points come in pairs"),
        ({"decomposition": {**TAKEN_APART, "replicates": 10}}, "decomposition.replicates = 10: input should be greater"),
        ({"decomposition": {**TAKEN_APART, "sigmas": [0.5, -1.0]}}, "decomposition.sigmas.1 = -1.0: input should be greater than 0"),
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


def test_specs_know_what_there_is():
    """What a schema must state as literals, and what is known of a function before it is built."""
    from lowvar import backends
    from lowvar.estimators.search.shaping import BASELINES
    from lowvar.noise import GAUSSIAN
    from lowvar.problems.blackbox.catalogue import FUNCTIONS, build
    from lowvar.runs.search import TARGETS
    from lowvar.runs.spec.search import Baseline, Scheme, SearchSettings

    assert (get_args(Scheme), get_args(Baseline)) == (tuple(GAUSSIAN), BASELINES)
    assert (TARGETS[0], TARGETS[-1], len(TARGETS)) == (1e4, 1e-10, 71)
    for target in TARGETS:
        assert SearchSettings(budget=1, target=target).target == target
    for name, row in FUNCTIONS.items():
        if row.program:
            problem = build(name, backends.get("jax"), dim=6)
            assert (problem.domain.kind, problem.backend is not None) == (row.kind, True)
    pytest.importorskip("mujoco")
    for name, row in FUNCTIONS.items():
        if not row.program:
            problem = build(name, backends.get("jax"))
            assert (problem.domain.kind, problem.backend) == (row.kind, None)


def test_a_search_is_taken_apart_only_where_it_says(tmp_path):
    plain = load_experiment(write(tmp_path, base=SEARCH), "quick")
    assert (plain.decompositions(), plain.headline) == ([], "effort")
    assert "decomposition" not in plain.tables
    apart = load_experiment(write(tmp_path, {"decomposition": TAKEN_APART, "draw": ["gradients"]}, SEARCH), "quick")
    assert (apart.decompositions(), apart.headline) == (["e"], "gradients")
    assert "decomposition" in apart.tables
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


@pytest.mark.parametrize("base", [BASE, SEARCH], ids=list(FAMILIES))
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


def test_step_sizes_need_one():
    with pytest.raises(UserError, match="step_sizes"):
        validated(SolverSpec, {"step_sizes": [], "batch_size": 1, "epochs": 1}, where="here")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name: a\nseed: 1\nseed: 2\n", "key 'seed' stands twice"),
        (
            "name: a\ntitle: a\nfamily: search\nproblems: {p: {function: sphere, dim: 3}}\n"
            "methods: {es: {options: {step_siz: 1.0}}}\nsearch: {budget: 100}\n",
            "methods.es.options: es: unknown option 'step_siz': did you mean 'step_size'",
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
