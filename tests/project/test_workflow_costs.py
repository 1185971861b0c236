"""What jobs ask of a cluster: enough, and not one submission for each short job."""

import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from projects import call, project

PLUGINS = Path(__file__).parents[1] / "plugins"

HEADER = "s\th:m:s\tmax_rss\trule_name\tresources"


def costs(repository, folder, **jobs):
    for name, (seconds, megabytes, rule, resources) in jobs.items():
        (folder / f"{name}.tsv").write_text(f"{HEADER}\n{seconds}\t0:00:01\t{megabytes}\t{rule}\t{resources}\n")
    command = [sys.executable, repository / "workflow/costs.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_the_worst_job_of_a_rule_decides(repository, tmp_path):
    asked = {"runtime": 10, "mem_mb": 2000}
    jobs = {
        "a": (60.0, 500.0, "run", asked),
        "b": (300.0, 1000.0, "run", asked),
        "c": (0.5, "NA", "one_of_mine_tables", asked),
        "d": (1.0, 100.0, "one_of_mine_timed_figures", asked),
        "e": (9999.0, 9999.0, "fetch_sonar", {"tmpdir": "/tmp"}),  # runs where Snakemake does
    }
    code, said = costs(repository, tmp_path, **jobs)
    assert code == 0
    assert [line.split() for line in said[1:]] == [
        ["figures", "1", "1", "to", "1", "600", "600.0", "100", "to", "100", "2000", "20.0"],
        ["run", "2", "60", "to", "300", "600", "2.0", "500", "to", "1000", "2000", "2.0"],
        ["tables", "1", "0", "to", "0", "600", "1200.0", "-", "-", "-"],
    ]


@pytest.mark.parametrize("took", [(601.0, 10.0), (1.0, 2001.0)])
def test_a_job_that_took_more_than_it_asked_for_is_an_error(repository, tmp_path, took):
    code, said = costs(repository, tmp_path, a=(*took, "run", {"runtime": 10, "mem_mb": 2000}))
    assert code == 1
    assert "a factor is below 1" in said[-1]


def test_short_are_jobs_of_few_operations_on_small_data(repository):
    from lowvar_studies.jobs.study import Study

    def short(name, scale):
        return {
            job.kind: job.short for job in Study.load(repository / f"workflow/experiments/{name}.yaml", scale).jobs()
        }

    assert short("quickstart_search", "smoke") == {"run": True, "decompose": True}
    assert short("mlmc_tuned", "paper")["tune"] is False
    assert short("joint_mnist", "paper")["run"] is False  # few operations, minutes of evaluations


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_thousand_short_runs_are_fifty_submissions(tmp_path, record_property):
    """Planned, grouped and submitted as on Slurm, to a cluster that does no work."""
    pytest.importorskip("snakemake")
    problems = {f"e{dim}": {"function": "ellipsoid", "dim": dim} for dim in range(3, 28)}
    methods = {f"m{i}": {"solver": "fast_ingo", "repetitions": i + 1} for i in range(40)}
    folder = project(tmp_path / "project", many={"problems": problems, "methods": methods})
    said = tmp_path / "counted"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    call(folder, "snakemake", "-n", "--workflow-profile", "profiles/slurm", "--quiet")
    planned = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    call(folder, "snakemake", "--workflow-profile", "profiles/slurm", "--executor", "counted", "--latency-wait", "0",
         "--seconds-between-status-checks", "1", "--quiet", path=[PLUGINS], COUNTED=str(said))  # fmt: skip
    submitted = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    submissions = Counter(said.read_text().splitlines())
    assert submissions[" ".join(["run"] * 20)] == 50
    assert sum(submissions.values()) <= 54, submissions
    for what, number in {"runs": 1000, "submissions": sum(submissions.values()), "CPU seconds to plan": planned - before,
                         "CPU seconds to plan and submit": submitted - planned}.items():  # fmt: skip
        record_property(what, round(number))
