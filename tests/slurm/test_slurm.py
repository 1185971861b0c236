"""The smoke workflow on a real Slurm, through profiles/slurm, with every fault that a week on a cluster brings.

`make test-slurm` runs it beside a Slurm that .ci/slurm brings up. One run of quickstart_search meets all the faults, since
a job costs seconds of CPU, and each test looks at what accounting, the jobs and Snakemake recorded of one of them.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster import accounting, asked, cpu

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]

ROOT, TARGET = Path(__file__).parents[2], "quickstart_search"
HUNG, FAT, CANCELLED = "ellipsoid/fast_ingo-jax", "ellipsoid/ingo-jax", "ellipsoid/es-jax"
PLAN = {HUNG: "hang", FAT: "memory", CANCELLED: "cancel"}
CLEAN = ["levy/fast_ingo-jax", "levy/ingo-jax"]
ALONE, ARRAY = ["--group-components", "short=1"], ["--slurm-array-jobs", "run"]  # no groups; arrays
PATIENCE = 420  # seconds for any one event, on a machine that is busy with other work


def copied(folder):
    """The workflow in a folder of its own, with one experiment."""
    for name in ("workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name)
    for path in (folder / "workflow/experiments").glob("*.yaml"):
        if path.stem != TARGET:
            path.unlink()
    shutil.copy(ROOT / "Snakefile", folder)
    params = re.sub(r"experiments: \[.*\]", f"experiments: [{TARGET}]", (ROOT / "params.yaml").read_text())
    (folder / "params.yaml").write_text(params)
    return folder


def queue(state=None):
    """The jobs in the queue, by id, with their states."""
    states = ["--states", state] if state else []
    lines = asked("squeue", "--me", "--array", "--noheader", "--format", "%i|%T", *states).split()
    return dict(line.split("|") for line in lines)


def node(**settings):
    name = asked("sinfo", "--noheader", "--format", "%n").strip()
    asked("scontrol", "update", f"NodeName={name}", *(f"{key}={value}" for key, value in settings.items()))


class Week:
    """A folder with the workflow, the jobs' records, and its masters one after another."""

    def __init__(self, folder):
        self.folder, self.place, self.bin = copied(folder / "here"), folder / "faults", folder / "bin"
        self.place.mkdir()
        self.bin.mkdir()
        (self.place / "plan.json").write_text(json.dumps(PLAN))
        command = self.bin / "lowvar"
        command.write_text(
            f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(Path(__file__).with_name('faulty.py'))!r})\n"
        )
        command.chmod(0o755)
        self.path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.log = folder / "log"
        self.master = None

    def environment(self, faulty=True):
        path = f"{self.bin}{os.pathsep}{self.path}" if faulty else self.path
        return {**os.environ, "PATH": path, "LOWVAR_FAULTS": str(self.place)}

    def starts(self, *targets, more=()):
        """Starts a master; its output is appended to the log."""
        words = ["snakemake", *targets, "--workflow-profile", "slurm", "--slurm-init-seconds-before-status-checks", "2"]
        words += [*more, "--config", "scale=smoke", "device=gpu"]
        with self.log.open("a") as log:
            self.master = subprocess.Popen(
                words, cwd=self.folder, env=self.environment(), stdout=log, stderr=subprocess.STDOUT
            )

    def said(self):
        return self.log.read_text()

    def calls(self, of=None):
        file = self.place / "calls"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in calls if of in (None, call["of"])]

    def until(self, what, happened, alive=True):
        """Waits for an event; fails with the master's words if it ends or the event does not happen."""
        end = time.monotonic() + PATIENCE
        while not (value := happened()):
            if alive and self.master.poll() is not None:
                pytest.fail(f"the master ended before {what}: {self.said()[-4000:]}")
            if time.monotonic() > end:
                pytest.fail(f"{what} did not happen in {PATIENCE} s: {self.said()[-4000:]}")
            time.sleep(0.5)
        return value

    def marked(self, fault):
        """The Slurm id of the job that has met its fault."""
        return self.until(fault, lambda: (self.place / fault).exists() and (self.place / fault).read_text())


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    """The run with all its faults, and what it left."""
    if shutil.which("sbatch") is None:
        pytest.skip("no Slurm: make test-slurm brings one up")
    folder = tmp_path_factory.mktemp("slurm")
    week, seen = Week(folder), SimpleNamespace()
    try:
        _faults(week, seen, folder)
    finally:
        if week.master and week.master.poll() is None:
            week.master.kill()
        print(week.said())
    week.seen = seen
    return week


def _faults(week, seen, folder):
    files = [str(trace(of)) for of in CLEAN]
    week.starts(*files, more=[*ALONE, *ARRAY])
    assert week.master.wait(PATIENCE) == 0, week.said()[-4000:]
    seen.array = week.calls()

    week.starts(TARGET, more=ALONE)

    # cancelled by hand while the node is drained: its retry has to wait for the node
    cancelled = week.marked("cancel")
    node(State="DRAIN", Reason="test")
    asked("scancel", cancelled)
    seen.retry = week.until("a retry of the cancelled job", lambda: waiting_since(week, cancelled))
    calls, time_drained = len(week.calls()), time.monotonic()
    while time.monotonic() - time_drained < 6:
        time.sleep(1)
    seen.waited = queue().get(seen.retry)
    seen.calls_while_drained = len(week.calls()) - calls
    node(State="RESUME")

    # hangs after its first checkpoint, until the time limit
    hung = week.marked("hang")
    week.until("a checkpoint", lambda: (week.place / "checkpoint.npz").exists())
    asked("scontrol", "update", f"JobId={hung}", "TimeLimit=1")
    plain = copied(folder / "plain")  # meanwhile, the same without a cluster
    words = ["snakemake", TARGET, "--cores", "1", "--config", "scale=smoke"]
    with (folder / "plain.log").open("w") as log:
        alone = subprocess.Popen(words, cwd=plain, env=week.environment(faulty=False), stdout=log, stderr=log)
    seen.plain = plain

    # the master is killed as soon as all runs were begun and the hung one was resumed
    week.until("the resumed run", lambda: len(week.calls(HUNG)) == 2)
    week.until("all other runs", lambda: done_by(week) >= {FAT, CANCELLED})
    assert week.master.poll() is None, "the master ended before it could be killed"
    week.master.send_signal(signal.SIGKILL)
    week.master.wait()
    seen.finished = done_by(week)
    week.until("an empty queue", lambda: not queue(), alive=False)
    seen.before = len(week.calls())

    week.starts(TARGET)
    week.master.wait(PATIENCE)
    seen.locked, seen.lock_code = week.said().splitlines(), week.master.returncode
    unlock = ["snakemake", "--unlock"]
    subprocess.run(unlock, cwd=week.folder, env=week.environment(), check=True, capture_output=True)
    seen.submitted_before = {job["JobIDRaw"] for job in accounting()}
    week.starts(TARGET, more=["--forcerun", *files])  # short runs, which share a submission
    assert week.master.wait(PATIENCE) == 0, week.said()[-4000:]
    assert alone.wait(PATIENCE) == 0, (folder / "plain.log").read_text()
    time.sleep(3)  # for accounting
    seen.jobs = accounting()
    print(f"{len(seen.jobs)} jobs, {cpu():.0f} s of CPU in them and their Snakemakes")


def waiting_since(week, cancelled):
    """The id of a job that waits and was not submitted together with the cancelled one."""
    noticed = f"SLURM-job '{cancelled}' failed, SLURM status is: 'CANCELLED'" in week.said()
    made = [job for job in queue("PENDING") if int(job) > int(cancelled)]
    return made[-1] if made and noticed else None


def trace(of):
    return Path(f"results/smoke/{TARGET}/runs/{of}/trace.parquet")


def done_by(week):
    """The runs that the master has seen to the end."""
    ids = {
        match[1]: match[2] for match in re.finditer(r"runs/(\S+)/trace\.parquet, .*\n.*\n    jobid: (\d+)", week.said())
    }
    second = week.said().rpartition("SLURM run ID")[2]
    return {of for of, number in ids.items() if f"Finished jobid: {number} (Rule: run)" in second}


def attempts(week, of):
    """What accounting has of each attempt of a run, in order."""
    jobs = {job["JobIDRaw"]: job for job in week.seen.jobs}
    return [jobs[call["job"]] for call in week.calls(of)]


def test_runs_are_one_array(week):
    tasks = [call["task"] for call in week.seen.array]
    assert {call["of"] for call in week.seen.array} == {*CLEAN}
    assert sorted(tasks) == [f"{tasks[0].partition('_')[0]}_{number}" for number in (1, 2)]


def test_each_run_has_a_gpu(week):
    runs = [call for call in week.calls() if call["words"][0] == "run"]
    assert {call["gpus"] for call in runs} == {"0", "1"}
    assert {call["gpus"] for call in week.seen.array} == {"0", "1"}  # two at a time, each its own
    assert {call["asked"] for call in runs} == {"gpu"}
    jobs = {job["JobIDRaw"]: job for job in week.seen.jobs}
    assert all("gres/gpu=1" in jobs[call["job"]]["AllocTRES"] for call in runs)
    assert {call["gpus"] for call in week.calls() if call["words"][0] == "table"} == {None}


def test_every_job_has_the_mark_by_which_its_processes_are_ended(week):
    assert {call["mark"] for call in week.calls()} == {os.environ.get("LOWVAR_SLURM")}


def test_out_of_memory_is_retried_with_more(week, record_property):
    killed, passed = attempts(week, FAT)
    assert killed["State"].partition(" ")[0] in ("OUT_OF_MEMORY", "FAILED", "CANCELLED")
    assert passed["State"] == "COMPLETED"
    assert megabytes(passed) >= 1.9 * megabytes(killed)
    record_property("MB asked for first", int(megabytes(killed)))
    record_property("MB asked for then", int(megabytes(passed)))


def megabytes(job):
    return float(job["ReqMem"][:-1]) * {"M": 1, "G": 1024}[job["ReqMem"][-1]]


def test_out_of_time_goes_on_from_its_checkpoint(week, record_property):
    import numpy as np
    import pandas as pd

    killed, passed = attempts(week, HUNG)
    assert (killed["State"], passed["State"]) == ("TIMEOUT", "COMPLETED")
    assert [call["resumes"] for call in week.calls(HUNG)] == [False, True]
    with np.load(week.place / "checkpoint.npz") as kept:
        laps = kept["laps"]
    timing = pd.read_parquet(week.folder / f"results/smoke/{TARGET}/runs/{HUNG}/timing.parquet")
    assert len(laps) > 0
    assert timing["seconds"].to_numpy()[: len(laps)].tolist() == laps.tolist()  # measured before the time limit
    record_property("wall times of the killed job in the results", len(laps))


def test_a_cancelled_job_is_noticed_and_retried(week):
    cancelled, passed = attempts(week, CANCELLED)
    assert cancelled["State"].startswith("CANCELLED by")
    assert passed["State"] == "COMPLETED"


def test_a_drained_node_is_waited_for(week):
    assert (week.seen.waited, week.seen.calls_while_drained) == ("PENDING", 0)


def test_a_killed_master_goes_on_after_unlock(week, record_property):
    assert week.seen.lock_code != 0
    assert any("--unlock" in line for line in week.seen.locked)
    assert week.seen.finished >= {FAT, CANCELLED}  # the hung one may have ended, too
    calls = week.calls()
    begun, again = ({call["of"] for call in part if call["words"][0] == "run"}
                    for part in (calls[: week.seen.before], calls[week.seen.before :]))  # fmt: skip
    assert not again & {*PLAN}  # nor the one that was running, which went on by itself
    record_property("runs kept", len(begun - again))


def test_short_jobs_are_submitted_together(week):
    made = [job for job in week.seen.jobs if job["JobIDRaw"] not in week.seen.submitted_before]
    after = Counter(call["words"][0] for call in week.calls()[week.seen.before :])
    assert after["table"] == 1
    assert after["figure"] == 1
    assert after["claims"] == 1
    assert after["run"] == len(CLEAN)
    assert [(megabytes(job), int(job["TimelimitRaw"])) for job in made] == [(2001, 2 * 11), (3000, 20 + 2 * 5)]


def test_results_equal_local_ones_to_the_byte(week, record_property):
    def files(folder):
        found = {path.relative_to(folder): path for path in (folder / "results").rglob("*") if path.is_file()}
        return {
            at: path.read_bytes() for at, path in found.items() if at.name not in ("timing.parquet", "provenance.json")
        }

    here, plain = files(week.folder), files(week.seen.plain)
    assert sorted(here) == sorted(plain)
    assert len(plain) > 20
    assert [str(at) for at in plain if plain[at] != here[at]] == []
    for state, count in Counter(job["State"].partition(" ")[0] for job in week.seen.jobs).items():
        record_property(f"jobs {state}", count)
    record_property("files compared", len(plain))
    record_property("bytes compared", sum(map(len, plain.values())))
