"""Experiment files: what is accepted and refused, the jobs that they state, and what the hash of a job depends on."""

import json
from pathlib import Path
from typing import get_args

import pytest
import yaml

from lowvar.errors import UserError
from lowvar_studies.jobs.common_spec import SCALES
from lowvar_studies.jobs.load import FAMILIES, json_schema, load_experiment
from lowvar_studies.reports.declarations import names_of

SHIPPED = Path(__file__).parents[3] / "workflow/experiments"
BASE = yaml.safe_load("""
name: small
title: A small one
problems: {bc: {model: logistic_regression, dataset: breast_cancer}}
methods: {naive: null, mine: {estimator: joint, options: {table: rows}}}
solver: {step_sizes: [0.001], batch_size: 5, epochs: 3}
decomposition: {leader: mine, step_size: 0.001, epochs: 3}
scales: {smoke: {solver: {epochs: 1}}}
""")
SEARCH = yaml.safe_load("""
name: small
title: A small search
family: search
backends: [jax, torch]
problems:
  e: {function: ellipsoid, dim: 4, methods: [fast_ingo, short, pycma]}
  bits: {function: binary_reconstruction, dim: 8, methods: [ones], budget: 50}
methods:
  fast_ingo: null
  ones: {solver: ingo_binary, repetitions: 2}
  short: {solver: ingo, repetitions: 2}
  pycma: {budget: 200}
search: {budget: 100, repetitions: 3}
scales: {smoke: {search: {budget: 10}}}
""")
APART = {"problems": ["e"], "populations": [4]}
INTEGRAL = yaml.safe_load("""
name: small
title: Small integrals
family: integral
problems:
  b: {problem: borehole, sizes: [10, [20, 15]]}
  s: {problem: south, options: {variance: 1.1}, sizes: [10], methods: {monte_carlo: null, stopped: {epochs: 5}},
      repetitions: 2}
  high: {within: b, tasks: [high], sizes: [12], methods: [monte_carlo]}
methods:
  monte_carlo: null
  stopped: {integrator: paper_cv, options: {epochs: 9, record: 1}}
estimation: {repetitions: 3}
scales: {smoke: {estimation: {repetitions: 1}}}
""")


def write(folder, changes=None, base=BASE):
    """The file with some keys (``a.b``) replaced."""
    content = yaml.safe_load(yaml.safe_dump(base))
    for key, value in (changes or {}).items():
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    (folder / "small.yaml").write_text(yaml.safe_dump(content))
    return folder / "small.yaml"


@pytest.fixture
def loaded(tmp_path):
    """``(changes, base, scale) -> experiment``."""
    return lambda changes=None, base=BASE, scale="quick": load_experiment(write(tmp_path, changes, base), scale)


def tables(experiment):
    return names_of(FAMILIES[experiment.family].tables, experiment)


def figures(experiment):
    """Its figures, and the table that each is drawn from."""
    return {name: one.table for name, one in FAMILIES[experiment.family].figures_of(experiment).items()}


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_shipped_experiments_load_at_every_scale(name):
    for scale in SCALES:
        experiment = load_experiment(SHIPPED / f"{name}.yaml", scale)
        assert experiment.name == name
        assert all(experiment.run(*job).hash for job in experiment.runs())
        assert all(experiment.decompose(problem).hash for problem in experiment.decompositions())
        assert all(experiment.sample(problem).hash for problem in experiment.samples())
        assert set(figures(experiment).values()) <= {*tables(experiment), "seconds"}


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "changes", "place"),
    [
        (BASE, {"solver.epoch": 3}, "'solver.epoch': did you mean 'epochs'"),
        (BASE, {"name": "other"}, "name 'other'"),
        (BASE, {"solver.step_sizes": [1e-3, 0.0]}, "solver.step_sizes.1 = 0.0"),
        (BASE, {"solver.optimizer": "adma"}, "'adam'"),
        (BASE, {"methods": {"jiont": None}, "decomposition.leader": "jiont"}, "methods.jiont.estimator"),
        (BASE, {"decomposition.leader": "min"}, "decomposition.leader: unknown method 'min'"),
        (BASE, {"scales": {"smok": {}}}, "'smok'"),
        (BASE, {"solver": {"step_sizes": [1.0], "epochs": 1}}, "'solver.batch_size'"),
        (BASE, {"solver.noise": "antithetic"}, "antithetic"),
        (BASE, {"methods": ["naive", "joint"]}, "methods = ['naive', 'joint']"),
        (BASE, {"methods": {"naive": None, "Naive": {"estimator": "cv"}}, "decomposition.leader": "naive"}, "'Naive'"),
        (BASE, {"problems": {"../../evil": BASE["problems"]["bc"]}}, "'../../evil'"),
        (BASE, {"solver.epochs": True}, "solver.epochs = True"),
        (BASE, {"solver.epochs": 1000.5}, "solver.epochs = 1000.5"),
        (BASE, {"scales.paper": {"problems": {"bc": {"solver": {"epoch": 1}}}}}, "at scale paper: problems.bc.solver"),
        (BASE, {"backends": ["jax", "jax"]}, "backends: 'jax'"),
        (BASE, {"decomposition.replicates": 3}, "replicates = 3"),
        (BASE, {"problems.bc.guide": "full_rnk"}, "problems.bc.guide"),
        (
            BASE,
            {"problems.bc.guide": {"guide": "full_rank", "rank": 3}},
            "problems.bc.guide: full_rank: unknown option",
        ),
        (BASE, {"problems.bc.guide": {"rank": 3}}, "problems.bc.guide"),
        (SEARCH, {"family": "variational"}, "unknown key"),
        (SEARCH, {"problems.e.function": "elipsoid"}, "problems.e.function"),
        (SEARCH, {"problems.e.dim": 0}, "problems.e.dim = 0"),
        (SEARCH, {"methods.short.options": {"bta": 1.0}}, "methods.short.options"),
        (SEARCH, {"problems.e.options": {"dim": 3}}, "problems.e.options: 'dim'"),
        (SEARCH, {"problems.e.methods": ["ones"]}, "problems.e: method 'ones'"),
        (SEARCH, {"problems.bits.methods": None}, "problems.bits: method 'fast_ingo'"),
        (SEARCH, {"problems.e.methods": []}, "problems.e.methods"),
        (SEARCH, {"search.target": 3e-5}, "target 3e-05"),
        (SEARCH, {"draw": ["gradients"]}, "draw: unknown figure 'gradients'"),
        (SEARCH, {"decomposition": {**APART, "problems": ["bits"]}}, "decomposition.problems: 'bits'"),
        (SEARCH, {"problems.e": {"function": "swimmer", "methods": ["fast_ingo"]}, "decomposition": APART}, "'e' has"),
        (SEARCH, {"decomposition": {**APART, "schemes": ["rqmc"]}}, "schemes: iid"),
        (SEARCH, {"decomposition": {**APART, "populations": [5]}}, "populations"),
        (INTEGRAL, {"backends": ["torch"]}, "'backends'"),
        (INTEGRAL, {"problems.b.sizes": [0]}, "problems.b.sizes"),
        (INTEGRAL, {"problems.b.sizes": [20, [20, 20]]}, "a size occurs twice"),
        (INTEGRAL, {"problems.b.sizes": [[20, 20], [20]]}, "a number for each task"),
        (INTEGRAL, {"problems.b.sampler": "published"}, "the published points differ"),
        (INTEGRAL, {"problems.high.sizes": [200]}, "problems.high.sizes: 200 points"),
        (INTEGRAL, {"problems.b.within": "s"}, "problems.b: exactly one of"),
        (INTEGRAL, {"problems.high": {"within": "b", "sizes": [3]}}, "problems.high: 'tasks' and 'within'"),
        (INTEGRAL, {"problems.high.options": {"a": 1}}, "problems.high: 'options'"),
        (INTEGRAL, {"problems.high.within": "c"}, "problems.high.within: unknown problem 'c'"),
        (INTEGRAL, {"problems.s.methods": {"stopped": {"epoch": 5}}}, "problems.s.methods.stopped: paper_cv"),
        (INTEGRAL, {"methods.stopped.integrator": "paper_cvs"}, "methods.stopped"),
        (INTEGRAL, {"illustrate": {"fits": {"s": ["stoped"]}}}, "illustrate.fits.s"),
        (INTEGRAL, {"illustrate": {"power_scores": "c"}}, "illustrate.power_scores"),
    ],
)
def test_refused(tmp_path, base, changes, place):
    """In one sentence that names the file and the place in it."""
    path = write(tmp_path, changes, base)
    with pytest.raises(UserError) as error:
        load_experiment(path, "quick")
    assert place in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_not_yaml_and_not_there(tmp_path):
    path = tmp_path / "small.yaml"
    for content in (b"a: [1", b"\xff\xfe\x00", b"name: a\nseed: 1\nseed: 2\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not YAML"):
            load_experiment(path, "quick")
    with pytest.raises(UserError, match="'small'"):
        load_experiment(tmp_path / "smal.yaml", "quick")
    with pytest.raises(UserError, match="'quick'"):
        load_experiment(write(tmp_path), "qick")


@pytest.mark.parametrize("base", [BASE, SEARCH, INTEGRAL], ids=list(FAMILIES))
def test_the_schema_takes_what_is_written(base):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(yaml.safe_load(yaml.safe_dump(base)), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(base | {"titel": "x"}, json_schema())


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
    """YAML 1.1 takes them for text; a whole float counts."""
    from lowvar import registry

    monkeypatch.setattr(registry, "_folders", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    text = yaml.safe_dump(BASE).replace("- 0.001", "- 1e-3\n  - 2E4\n  - .5e1").replace("table: rows", "share: 1e-1")
    text = text.replace("epochs: 3", "epochs: 1e3").replace("estimator: joint", "estimator: 'with_share:mine'")
    (tmp_path / "small.yaml").write_text(text)
    (tmp_path / "with_share.py").write_text("def mine(problem, batches=None, share: float = 0.5): ...")
    experiment = load_experiment(tmp_path / "small.yaml", "quick")
    assert experiment.solver.step_sizes == (1e-3, 2e4, 5.0)
    assert (experiment.solver.epochs, type(experiment.solver.epochs)) == (1000, int)
    assert experiment.methods["mine"].options == {"share": 0.1}


def test_specs_know_what_there_is():
    """What a schema must state as literals, and what is known of a function before it is built."""
    from lowvar.core import backend as backends
    from lowvar.core.gaussian import GAUSSIAN
    from lowvar.search.gradients import BASELINES
    from lowvar_studies.functions.catalogue import FUNCTIONS, build
    from lowvar_studies.integrals.samplers import SAMPLERS
    from lowvar_studies.jobs.integral.spec import Sampler
    from lowvar_studies.jobs.search.engine import TARGETS
    from lowvar_studies.jobs.search.spec import Baseline, Scheme, SearchSettings

    assert (get_args(Scheme), get_args(Baseline)) == (tuple(GAUSSIAN), BASELINES)
    assert get_args(Sampler) == tuple(SAMPLERS)
    assert (TARGETS[0], TARGETS[-1], len(TARGETS)) == (1e4, 1e-10, 71)
    assert [SearchSettings(budget=1, target=target).target for target in TARGETS] == list(TARGETS)
    for name in FUNCTIONS.own:
        row = FUNCTIONS.about(name)
        if row.extra == "rl":
            pytest.importorskip("mujoco")
        if row.program or row.extra == "rl":
            problem = build(name, backends.get("jax"), **({"dim": 6} if row.program else {}))
            assert (problem.domain.kind, problem.backend is not None) == (row.domain, row.program)


# --- jobs ----------------------------------------------------------------------------------------------------------


def test_a_search_states_its_jobs(loaded):
    experiment = loaded(base=SEARCH)
    assert experiment.methods["fast_ingo"].solver == "fast_ingo"
    assert ("bits", "ones", "torch") in experiment.runs()
    assert [job for job in experiment.runs() if job[1] == "pycma"] == [("e", "pycma", "jax")]
    budgets = {method: experiment.run("e", method, "jax").search.budget for method in ("fast_ingo", "short", "pycma")}
    assert budgets == {"fast_ingo": 100, "short": 100, "pycma": 200}
    bits = experiment.run("bits", "ones", "jax").search
    assert (bits.budget, bits.repetitions) == (50, 2)
    assert loaded(base=SEARCH, scale="smoke").run("e", "fast_ingo", "jax").search.budget == 10
    torch = loaded({"backends": ["torch"]}, SEARCH)  # pycma runs on its own
    jobs = {("e", "fast_ingo", "torch"), ("e", "short", "torch"), ("e", "pycma", "jax"), ("bits", "ones", "torch")}
    assert set(torch.runs()) == jobs
    for of, job in ((experiment, ("bits", "fast_ingo", "jax")), (experiment, ("e", "pycma", "torch")),
                    (torch, ("e", "fast_ingo", "jax"))):  # fmt: skip
        with pytest.raises(UserError, match=f"'{job[1]}' on '{job[0]}' in {job[2]}"):
            of.run(*job)


def test_a_search_is_taken_apart_only_where_it_says(loaded):
    plain, apart = loaded(base=SEARCH), loaded({"decomposition": APART, "draw": ["gradients"]}, SEARCH)
    assert (plain.decompositions(), next(iter(figures(plain)))) == ([], "effort")
    assert (apart.decompositions(), next(iter(figures(apart)))) == (["e"], "gradients")
    assert set(tables(apart)) - set(tables(plain)) == {"decomposition"}
    for experiment, problem in ((plain, "e"), (apart, "bits")):
        with pytest.raises(UserError, match=f"'{problem}'"):
            experiment.decompose(problem)


def test_integrals_state_their_jobs(loaded):
    experiment = loaded(base=INTEGRAL)
    assert experiment.methods["monte_carlo"].integrator == "monte_carlo"
    on = {"b": ("monte_carlo", "stopped"), "s": ("monte_carlo", "stopped"), "high": ("monte_carlo",)}
    assert set(experiment.runs()) == {(problem, method, "torch") for problem in on for method in on[problem]}
    assert (experiment.samples(), experiment.drawn_from("high"), experiment.decompositions()) == (["b", "s"], "b", [])
    assert [experiment.run(problem, "stopped", "torch").method.options["epochs"] for problem in ("b", "s")] == [9, 5]
    assert (experiment.sample("b").sizes, experiment.sample("s").sizes) == ((20, 15), 10)
    assert [experiment.repetitions(problem) for problem in ("b", "s", "high")] == [3, 2, 3]
    assert loaded(base=INTEGRAL, scale="smoke").repetitions("high") == 1
    for refused, match in (
        (lambda: experiment.run("high", "stopped", "torch"), "'stopped' on 'high'"),
        (lambda: experiment.run("b", "stopped", "jax"), "'jax'"),
        (lambda: experiment.run("b", "stoped", "torch"), "'small'.*'stoped'.*'stopped'"),
        (lambda: experiment.sample("high"), "'high' uses the points of 'b'"),
    ):
        with pytest.raises(UserError, match=match):
            refused()


def test_integrals_stand_on_the_data_of_their_problem(loaded):
    hares = {"problem": "lotka_volterra", "sizes": [9], "methods": ["monte_carlo"]}
    two = {"within": "hares", "tasks": ["a"], "sizes": [9], "methods": ["monte_carlo"]}
    simulated = hares | {"options": {"observations": "simulated"}}
    changes = {"problems.hares": hares, "problems.two": two, "problems.simulated": simulated}
    experiment = loaded(changes, INTEGRAL)
    found = experiment.data("hares")
    assert (found.dataset, found.scaling) == ("hudson_bay", "none")
    assert experiment.data("two") == found
    assert experiment.data("simulated") is experiment.data("high") is None


# --- hashes --------------------------------------------------------------------------------------------------------

PYCMA_LAST = {"problems.e.methods": ["pycma", "fast_ingo", "short"]}
OF_B = {("b", "monte_carlo", "torch"), ("b", "stopped", "torch")}
OF_S = {("s", "monte_carlo", "torch"), ("s", "stopped", "torch")}


def hashes(experiment):
    runs = {job: experiment.run(*job).hash for job in experiment.runs()}
    runs |= {f"sample {problem}": experiment.sample(problem).hash for problem in experiment.samples()}
    return runs | {f"apart {problem}": experiment.decompose(problem).hash for problem in experiment.decompositions()}


@pytest.mark.parametrize(
    ("base", "changes", "changed"),
    [
        (BASE, {"title": "B"}, set()),
        (BASE, {"methods.mine.options": {"table": "snapshots"}}, {("bc", "mine", "jax"), "apart bc"}),
        (BASE, {"decomposition.epochs": 4}, {"apart bc"}),
        (BASE, {"problems.bc.guide": "full_rank"}, {("bc", "naive", "jax"), ("bc", "mine", "jax"), "apart bc"}),
        (SEARCH, {"title": "B", "draw": ["curves"], **PYCMA_LAST}, set()),
        (SEARCH, {"methods.pycma.budget": 150}, {("e", "pycma", "jax")}),
        (SEARCH, {"methods.ones.options": {"beta": 1}}, {("bits", "ones", "jax"), ("bits", "ones", "torch")}),
        (INTEGRAL, {"title": "B", "draw": ["split"], "illustrate": {"stein_kernels": True}}, set()),
        (INTEGRAL, {"methods.stopped.options": {"epochs": 8}}, {("b", "stopped", "torch"), ("s", "stopped", "torch")}),
        (INTEGRAL, {"problems.s.methods": ["monte_carlo", "stopped"]}, {("s", "stopped", "torch")}),
        (INTEGRAL, {"problems.b.sizes": [5, 10, [20, 15]]}, OF_B),  # no points more than there are
        (INTEGRAL, {"problems.b.sizes": [10, [20, 16]]}, OF_B | {"sample b"}),
        (INTEGRAL, {"problems.b.truth_effort": 2}, {"sample b"}),
        (INTEGRAL, {"estimation.chunk": 2}, OF_B | OF_S | {("high", "monte_carlo", "torch")}),
    ],
)
def test_a_hash_depends_on_its_job_alone(loaded, base, changes, changed):
    before, after = hashes(loaded(base=base)), hashes(loaded(changes, base))
    assert {job for job in before if after[job] != before[job]} == changed


@pytest.mark.parametrize("base", [BASE, SEARCH, INTEGRAL], ids=list(FAMILIES))
def test_a_seed_is_in_every_hash(loaded, base):
    before, after = hashes(loaded(base=base)), hashes(loaded({"seed": 1}, base))
    assert not set(before.values()) & set(after.values())


def test_keys_of_later_features_are_in_specs_that_use_them_alone():
    """So results that were made before are not stale."""
    experiment = load_experiment(SHIPPED / "quickstart.yaml", "quick")
    specs = [experiment, *(experiment.run(*job) for job in experiment.runs())]
    dumped = json.dumps([one.model_dump(mode="json") for one in specs])
    assert not any(key in dumped for key in ("tun", '"study"', '"guide"'))
