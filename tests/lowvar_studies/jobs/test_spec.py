"""Experiment files: what is accepted, what is refused and how, and what a hash depends on."""

from pathlib import Path
from typing import get_args

import pytest
import yaml
from small_specs import BASE, INTEGRAL, SEARCH, assert_refused, figures, tables, write

from lowvar.errors import UserError
from lowvar_studies.jobs.common_spec import SCALES
from lowvar_studies.jobs.load import FAMILIES, json_schema, load_experiment


def shipped():
    return sorted(path.stem for path in (Path(__file__).parents[3] / "workflow" / "experiments").glob("*.yaml"))


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
        ({"name": "other"}, "name 'other' must equal the file's name, 'small'"),
        ({"solver.step_sizes": [1e-3, 0.0]}, "solver.step_sizes.1 = 0.0: it must be greater than 0"),
        ({"solver.optimizer": "adma"}, "unknown optimizer 'adma': did you mean 'adam'?"),
        ({"methods": {"jiont": None}, "decomposition.leader": "jiont"}, "methods.jiont.estimator: unknown estimator 'jiont': did you mean 'joint'?"),
        ({"decomposition.leader": "min"}, "decomposition.leader: unknown method 'min': did you mean 'mine'?"),
        ({"scales": {"smok": {}}}, "unknown scale 'smok': did you mean 'smoke'?"),
        ({"solver": {"step_sizes": [1.0], "epochs": 1}}, "key 'solver.batch_size' is missing"),
        ({"solver.noise": "antithetic"}, "antithetic"),
        ({"methods": ["naive", "joint"]}, "methods = ['naive', 'joint']: it must be a mapping of names"),
        ({"scales": {"quick": 3}}, "scales.quick = 3: it must be a mapping of keys"),
        ({"methods": {"naive": None, "Naive": {"estimator": "cv"}}, "decomposition.leader": "naive"}, "methods: 'Naive' and 'naive' would share a folder"),
        ({"problems": {"../../evil": BASE["problems"]["bc"]}}, "problems: '../../evil': a name may have only letters"),
        ({"solver.epochs": True}, "solver.epochs = True: it must be a whole number"),
        ({"scales.paper": {"problems": {"bc": {"solver": {"epoch": 1}}}}}, "at scale paper: problems.bc.solver: unknown key 'epoch'"),
        ({"backends": ["jax", "jax"]}, "backends: 'jax' occurs twice: the entries must be different"),
        ({"decomposition.replicates": 3}, "replicates = 3: one run needs at least 4"),
    ],
)  # fmt: skip
def test_refused(tmp_path, changes, message):
    assert_refused(tmp_path, changes, message, BASE)


def test_specs_know_what_there_is():
    """What a schema must state as literals, and what is known of a function before it is built."""
    from lowvar.core import backend as backends
    from lowvar.core.gaussian import GAUSSIAN
    from lowvar.search.gradients import BASELINES
    from lowvar_studies.functions.catalogue import FUNCTIONS, build
    from lowvar_studies.integrals.samplers import SAMPLERS
    from lowvar_studies.jobs.integral.spec import Sampler
    from lowvar_studies.jobs.search.counted import TARGETS
    from lowvar_studies.jobs.search.spec import TARGET, Baseline, Scheme, SearchSettings
    from lowvar_studies.reports.search.figures import curves

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
