"""`lowvar new-study` writes a valid file; `lowvar study` makes what Snakemake makes, once, and resumes."""

import re
import time

import commands
import pytest
import yaml
from projects import LITTLE, project

from lowvar_studies.jobs.common_spec import SCALES
from lowvar_studies.jobs.study import Study

UNEQUAL = re.compile(r"provenance\.json|timing\.parquet")  # hosts and wall times; little has no figure of these


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "little.yaml").write_text(yaml.safe_dump({"name": "little", **LITTLE}))
    return tmp_path


def study(folder, *words, code=0):
    done = commands.lowvar(folder, "study", "little.yaml", "--scale", "smoke", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def ran(said):
    return int(re.search(r"(\d+) commands ran", said)[1])


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def lasting(folder):
    return {name: content for name, content in contents(folder).items() if not UNEQUAL.search(name)}


def test_a_new_study_is_valid_at_all_scales(tmp_path):
    done = commands.lowvar(tmp_path, "new-study", "my_study.yaml")
    assert (done.returncode, done.stdout.strip()) == (0, "my_study.yaml"), done.stderr
    for scale in SCALES:
        assert len(list(Study.load(tmp_path / "my_study.yaml", scale).jobs())) == 3


def test_a_new_study_explains_each_key(tmp_path):
    commands.lowvar(tmp_path, "new-study", "my_study.yaml")
    lines = (tmp_path / "my_study.yaml").read_text().splitlines()
    plain = [line for line, before in zip(lines[1:], lines, strict=False) if not before.lstrip().startswith("#")]
    keys = [found[1] for line in plain if (found := re.match(r" *(\w+):", line))]
    names_and_overrides = ["breast_cancer", "naive", "joint", "smoke", "solver", "decomposition"]
    assert keys == [*names_and_overrides, "paper", "solver", "decomposition"]


@pytest.mark.parametrize("name", ["there.yaml", "a-b.yaml", "study.txt"])
def test_a_new_study_is_refused_where_a_file_or_no_experiment_could_be(tmp_path, name):
    (tmp_path / "there.yaml").write_text("mine")
    done = commands.lowvar(tmp_path, "new-study", name)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert name in done.stderr
    assert contents(tmp_path) == {"there.yaml": b"mine"}


def test_it_makes_what_snakemake_makes_and_nothing_twice(folder, tmp_path_factory):
    assert ran(study(folder, "--workers", "2")) == 4
    ours = folder / "results/smoke/little"
    workflow = project(tmp_path_factory.mktemp("snakemake") / "copy", little={})
    done = commands.snakemake(workflow, "--cores", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    theirs = workflow / "results/smoke/little"
    assert lasting(ours) == lasting(theirs)
    assert contents(ours).keys() == contents(theirs).keys()
    assert len(lasting(ours)) > 8

    # what is current is not made again, and what is not is made again with all that reads it
    whole = contents(ours)
    assert ran(study(folder)) == 0
    assert contents(ours) == whole
    for name in ("tables/ends.csv", "runs/ellipsoid/fast_ingo-jax/trace.parquet"):
        half = len(whole[name]) // 2
        (ours / name).write_bytes(whole[name][:half])
        assert ran(study(folder)) == 4 - (name == "tables/ends.csv")
        assert lasting(ours) == lasting(theirs)
    (ours / "figures/curves.svg").unlink()
    assert ran(study(folder)) == 1
    assert lasting(ours) == lasting(theirs)


def test_it_resumes_after_it_was_stopped(folder):
    results = folder / "results/smoke/little"
    process = commands.started(folder, "study", "little.yaml", "--scale", "smoke")
    while process.is_alive() and not (results / "metrics.json").is_file():
        time.sleep(0.05)
    process.terminate()
    process.join()
    assert process.exitcode == 143
    trace = results / "runs/ellipsoid/fast_ingo-jax/trace.parquet"
    before = trace.stat().st_mtime_ns
    assert 1 <= ran(study(folder)) <= 3
    assert trace.stat().st_mtime_ns == before
    assert ran(study(folder)) == 0


def test_a_mistake_is_one_sentence(folder):
    assert "--workers" in study(folder, "--workers", "0", code=2)
    (folder / "results").write_text("a file")
    said = study(folder, code=2)
    assert said.count("\n") == 1
    assert "results" in said


def test_a_mistake_in_the_claims_is_said_before_anything_runs(folder):
    (folder / "claims").mkdir()
    (folder / "claims/little.yaml").write_text("- {id: a, statement: b, source: ours, test: {effect: nothing}}")
    said = study(folder, code=2)
    assert "'nothing'" in said
    assert not (folder / "results").exists()
