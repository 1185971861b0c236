"""The workflow plans what it should, reruns what an edit touches and nothing else, takes any folder, speaks plainly."""

import re
import shutil
from pathlib import Path

import commands
import pytest
import yaml
from projects import LITTLE, ROOT, call, git, plan

pytest.importorskip("snakemake")

SMALL = yaml.safe_load("""
problems: {breast_cancer: {model: logistic_regression, dataset: breast_cancer}}
solver: {step_sizes: [1.0e-3], batch_size: 50, epochs: 2}
decomposition: {leader: naive, step_size: 1.0e-3, epochs: 2, points_along: 1, replicates: 4, columns: 2}
""")


# tables, figures and claims of one experiment, and runs of another
TARGETS = "first_tables", "first_seconds", "first_figures", "results/quick/first/claims.csv", "second_runs"


def write(folder, name, **changes):
    path = folder / "workflow/experiments" / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "title": name, **SMALL, **changes}))


def copied(folder):
    """The workflow in a folder of its own, with two small experiments besides its own."""
    for name in ("workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("Snakefile", "params.yaml"):
        shutil.copy(ROOT / name, folder)
    write(folder, "first", methods={"naive": None, "joint": None})
    write(folder, "second", methods={"naive": None})
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy in which nothing is made."""
    return copied(tmp_path_factory.mktemp("workflow"))


def dry(folder, *arguments):
    """The exit code of a dry run and all that it says, in a process that need not import Snakemake."""
    done = commands.snakemake(folder, "-n", *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def planned(copy):
    """What `snakemake` alone plans."""
    return plan(copy)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What Snakemake takes for made: one of each job of the first experiment, the runs of the second; empty files."""
    from lowvar_studies.jobs.study import Study

    copy = copied(tmp_path_factory.mktemp("built"))
    paths = [copy / "data/prepared/breast_cancer-minmax.npz"]
    for name in ("first", "second"):
        study = Study.load(copy / f"workflow/experiments/{name}.yaml", "quick", copy / f"results/quick/{name}")
        paths += [path for job in study.jobs() for path in job.outputs + job.records]
        tables = study.table_files(*study.tables, *study.timed)
        paths += [*tables, *(path.with_suffix(".csv") for path in tables)]
        paths += [path for ending in ("svg", "png", "csv") for path in study.figure_files(ending=ending)]
        paths += [copy / f"logs/quick/{name}/{rule}.tsv" for rule in ("tables", "seconds", "figures")]
        paths += [study.metrics, study.verdicts, study.verdicts.with_suffix(".parquet")]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    done = commands.snakemake(copy, *TARGETS, "--cores", "1", "--touch", "--forceall")
    assert done.returncode == 0, done.stderr
    return copy


def test_the_quickstart_plans_every_job(copy):
    jobs = {"prepare": 1, "run": 10, "decompose": 1, "quickstart_tables": 1, "quickstart_seconds": 1,
            "quickstart_figures": 1, "quickstart_timed_figures": 1, "claims": 1, "default": 1}  # fmt: skip
    assert plan(copy, "--config", "experiments=quickstart") == jobs


@pytest.mark.long
def test_the_quickstart_plans_searches_and_integrals_too(planned):
    assert (planned["run"], planned["quickstart_search_tables"]) == (10 + 4 + 5 + 3, 1)
    assert planned["claims"] == 4
    assert (planned["sample"], planned["quickstart_integrals_tables"], planned["quickstart_mlmc_tables"]) == (1, 1, 1)


@pytest.mark.long
def test_the_experiments_of_a_paper_are_targets(copy):
    from lowvar_studies.jobs.load import FAMILIES, load_experiment

    shipped = {path.stem for path in (copy / "workflow/experiments").glob("*.yaml")}
    names = sorted(name for name in shipped if name.startswith(("vvcv", "ingo", "mlmc")))
    planned = [load_experiment(copy / f"workflow/experiments/{name}.yaml", "paper") for name in names]
    jobs = plan(copy, *names, "--config", "scale=paper")
    assert jobs["run"] == sum(len(experiment.runs()) for experiment in planned)
    assert jobs["sample"] == sum(len(experiment.samples()) for experiment in planned)
    searched = [experiment for experiment in planned if experiment.family == "variational"]
    assert jobs["tune"] == sum(len(experiment.studies()) for experiment in searched) > 0
    assert jobs["decompose"] == sum(len(experiment.decompositions()) for experiment in planned)
    for experiment in planned:
        drawn = FAMILIES[experiment.family].figures_of(experiment).values()
        rules = {
            f"{experiment.name}_timed_figures" if one.source.timed else f"{experiment.name}_figures" for one in drawn
        }
        assert {rule for rule in jobs if re.fullmatch(rf"{experiment.name}(_timed)?_figures", rule)} == rules
    assert jobs["claims"] + jobs["no_claims"] == len(names)
    assert jobs["claims"] == sum((copy / f"workflow/claims/{name}.yaml").is_file() for name in names)


@pytest.mark.parametrize(
    "profile",  # .ci/workflow plans gpu
    ["--workflow-profile=slurm", pytest.param("--profile=profiles/slurm", marks=pytest.mark.long)],
)
def test_profiles_plan_the_same_jobs(copy, planned, profile):
    assert plan(copy, profile) == planned


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["--workflow-profile", "slrum"], "--workflow-profile slrum"),
        (["--profile", "profiles/slrum"], "profiles/slrum"),
        (["--config", "scale=qick"], "'quick'"),
        (["--config", "sclae=quick"], "'scale'"),
        (["--config", "experiments=mine.yaml"], "mine.yaml"),
        (["-d", "profiles"], "params.yaml"),
    ],
)
def test_a_slip_is_one_message_and_no_run(copy, given, name):
    """A run on this machine is what Snakemake makes of a workflow profile that it does not find."""
    code, said = dry(copy, *given)
    assert code != 0
    assert name in said
    assert "Traceback" not in said
    assert "Job stats" not in said


@pytest.mark.long
def test_it_plans_the_same_from_any_folder(copy, planned, tmp_path):
    """With the root's Snakefile from afar, and with workflow/Snakefile, where the default rule has another name."""
    assert plan(tmp_path, "-s", str(copy / "Snakefile")) == planned
    assert list(tmp_path.iterdir()) == []
    catalogue = {"all" if rule == "default" else rule: jobs for rule, jobs in planned.items()}
    assert plan(copy / "workflow", "--cores", "1") == catalogue


def test_a_wrong_key_of_an_experiment_names_file_and_key(copy):
    write(copy, "third", methods={"naive": None}, solvr={})
    code, said = dry(copy)
    (copy / "workflow/experiments/third.yaml").unlink()
    assert code != 0
    assert "workflow/experiments/third.yaml: unknown key 'solvr': did you mean 'solver'?" in said
    assert "Traceback" not in said


RANGE = {"step_size": {"low": 1.0e-5, "high": 1.0e-3}}


@pytest.fixture
def tuned(tmp_path):
    """A copy with an experiment of two methods, one of which is tuned first."""
    write(copied(tmp_path), "tuned", methods={"naive": {"tune": RANGE}, "joint": None}, tuning={"trials": 2})
    return tmp_path


@pytest.mark.long
def test_each_method_of_each_backend_is_tuned_once(tuned):
    both = {"naive": {"tune": RANGE}, "joint": {"tune": RANGE}}
    write(tuned, "tuned", methods=both, backends=["jax", "torch"])
    jobs = plan(tuned, "tuned_runs")
    assert (jobs["tune"], jobs["run"]) == (4, 4)
    write(tuned, "tuned", methods={"naive": {"tune": RANGE}, "joint": {"tune": {"same_as": "naive"}}})
    run = "results/quick/tuned/runs/breast_cancer/joint-jax/trace.parquet"
    assert plan(tuned, "tuned_runs")["tune"] == plan(tuned, run)["tune"] == 1


@pytest.mark.long
def test_a_study_is_made_once_and_anew_where_its_ranges_change(tuned):
    pytest.importorskip("optuna")
    call(tuned, "snakemake", "tuned_runs", "--cores", "2")
    assert plan(tuned, "tuned_runs") == {}
    other = {"naive": {"tune": RANGE}, "joint": {"options": {"table": "full"}}}
    write(tuned, "tuned", methods=other, tuning={"trials": 2})
    assert "tune" not in plan(tuned, "tuned_runs")
    wider = {"step_size": {"low": 1.0e-6, "high": 1.0e-3}}
    write(tuned, "tuned", methods={"naive": {"tune": wider}, "joint": None}, tuning={"trials": 2})
    assert plan(tuned, "tuned_runs") == {"tune": 1, "run": 1, "tuned_runs": 1}


@pytest.mark.slow
def test_what_is_built_is_not_built_again(built):
    """Nor where a file is newer and says the same."""
    for path in (built / "workflow/experiments").glob("*.yaml"):
        path.touch()
    assert plan(built, *TARGETS) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "runs"),
    [
        pytest.param({"methods": {"naive": None, "joint": {"options": {"table": "full"}}}}, 1, id="an option"),
        pytest.param({"seed": 1}, 2, id="the seed", marks=pytest.mark.long),
        pytest.param({"methods": {"naive": None, "joint": None, "cv": None}}, 1, id="a method", marks=pytest.mark.long),
    ],
)
def test_an_edit_reruns_what_depends_on_it_and_nothing_else(built, edit, runs):
    former = {"methods": {"naive": None, "joint": None}}
    write(built, "first", **former | edit)
    after = {"first_tables": 1, "first_seconds": 1, "first_figures": 1, "no_claims": 1}
    assert plan(built, *TARGETS) == {"run": runs, "decompose": 1, **after}
    write(built, "first", **former)
    assert plan(built, *TARGETS) == {}


@pytest.mark.long
@pytest.mark.slow
def test_a_failed_job_shows_the_one_line_of_its_command(built):
    (built / "data/prepared/breast_cancer-minmax.npz").write_bytes(b"PK\x03\x04" + bytes(1000))  # cut off
    said = call(built, "snakemake", "second_runs", "--cores", "1", "--forcerun", "decompose", code=1)
    assert re.search(r"^lowvar: .*breast_cancer-minmax\.npz", said, re.M), said
    assert "Traceback" not in said


# --- folders of any name, and other workflows that use ours

HOSTILE = "my $(touch made) `touch made` data; touch made"


@pytest.mark.long
def test_a_folder_with_any_name(copy):
    made = Path(HOSTILE, "prepared", "quickstart.sha256")
    words = ["--cores", "1", "data", "--config", f"data={HOSTILE}", "results=my results", "experiments=quickstart"]
    done = commands.snakemake(copy, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "breast_cancer" in (copy / made).read_text()
    assert not list(copy.rglob("made"))


@pytest.mark.parametrize("name", ["a{b}", "it's"])
def test_names_that_no_command_could_pass_on_are_refused(copy, name):
    code, said = dry(copy, "--config", f"results={name}")
    assert code == 1
    assert "params.yaml or --config: results" in said


def test_a_parameter_that_is_given_twice_is_refused(copy):
    params = copy / "params.yaml"
    whole = params.read_text()
    params.write_text(whole + "scale: paper\n")
    code, said = dry(copy)
    params.write_text(whole)
    assert code == 1
    assert "params.yaml: not YAML: duplicate key 'scale'" in said


PARENT = """
{use}

rule mine:
    input: "data/prepared/quickstart.sha256"
    output: "mine.txt"
    shell: "pwd > {{output}}"
"""
AS_MODULE = """
module ours:
    snakefile: "{file}"
    config: {{"experiments": ["quickstart"], "scale": "smoke"}}
use rule * from ours as ours_*
"""


@pytest.mark.parametrize(
    ("use", "file", "folder"),
    [
        (AS_MODULE, "Snakefile", "data"),
        (AS_MODULE.replace("config:", "prefix: 'within'\n    config:"), "workflow/Snakefile", "within/data"),
        pytest.param("include: '{file}'", "Snakefile", "data", marks=pytest.mark.long),
    ],
)
def test_another_workflow_that_uses_ours_stays_in_its_folder(copy, tmp_path_factory, use, file, folder):
    """Ours, as its module or included, writes there too, and nothing into the clone."""
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    parent = tmp_path_factory.mktemp("parent")
    text = PARENT.replace('"data/', f'"{folder}/').format(use=use.format(file=copy / file))
    (parent / "Snakefile").write_text(text)
    done = commands.snakemake(parent, "--cores", "1", "mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (parent / "mine.txt").read_text() == f"{parent}\n"
    assert (parent / folder / "prepared/breast_cancer-minmax.npz").is_file()
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


@pytest.mark.slow
def test_another_repository_builds_on_results_of_its_own_experiment(copy, tmp_path_factory):
    """With the Snakefile of docs/workflow.md: a dry run, then the rules themselves, and then there is nothing to do."""
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    parent = tmp_path_factory.mktemp("repository")
    git(parent, "init", "-q")
    (parent / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", **LITTLE}))
    page = (ROOT / "docs/workflow.md").read_text()
    (shown,) = re.findall(r"^```python\n(module .*?)^```", page, re.M | re.S)
    (parent / "Snakefile").write_text(shown.replace("/some/folder/lowvar", str(copy)))
    assert plan(parent) == {"lowvar_run": 1, "lowvar_mine_tables": 1, "answer": 1}
    done = commands.snakemake(parent, "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(",") for line in (parent / "answer.csv").read_text().splitlines()]
    assert rows[0] == ["problem", "method", "backend", "repetition"]
    assert rows[1:] == [["ellipsoid", "fast_ingo", "jax", str(one)] for one in range(2)]
    assert plan(parent) == {}
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


def test_a_key_that_a_module_does_not_know_is_refused(copy, tmp_path_factory):
    parent = tmp_path_factory.mktemp("parent")
    (parent / "Snakefile").write_text(AS_MODULE.replace('"scale"', '"samples"').format(file=copy / "Snakefile"))
    code, said = dry(parent)
    assert code == 1
    assert "the module's config: unknown key 'samples'" in said
