"""Experiment files: what is accepted, what is refused and how, and what a hash depends on."""

import pytest
import yaml

from lowvar.errors import UserError
from lowvar.runs.spec import SCALES, SolverSpec, load_experiment, validated

BASE = {
    "name": "small",
    "title": "A small one",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": None, "mine": {"estimator": "joint", "options": {"table": "rows"}}},
    "solver": {"step_sizes": [1e-3], "batch_size": 5, "epochs": 3},
    "decomposition": {"leader": "mine", "step_size": 1e-3, "epochs": 3},
    "scales": {"smoke": {"solver": {"epochs": 1}}},
}


def write(tmp_path, changes=None):
    content = yaml.safe_load(yaml.safe_dump(BASE))
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


@pytest.mark.parametrize("name", ["quickstart", "joint"])
def test_shipped_experiments_load_at_every_scale(repository, name):
    for scale in SCALES:
        experiment = load_experiment(repository / "workflow" / "experiments" / f"{name}.yaml", scale)
        assert experiment.name == name
        for problem in experiment.problems:
            assert experiment.decompose(problem).hash


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
    path = write(tmp_path, changes)
    with pytest.raises(UserError) as error:
        load_experiment(path, "quick")
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


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
