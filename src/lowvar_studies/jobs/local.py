"""A study made on this machine without Snakemake: the same commands, each in a process of its own."""

import contextlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import get
from lowvar_studies.jobs.commands import differences, progress_bar
from lowvar_studies.jobs.study import Job, Study

Command = tuple[str, Callable[[], bool]]  # a command line, and whether its outputs are current


def make(study: Study, *, workers: int = 1, options: tuple[str, ...] = ()) -> tuple[int, int]:
    """Runs the commands of a study whose outputs are not current; returns how many ran, and how many there are.

    Args:
        study: the study.
        workers: number of processes at a time.
        options: more words for the commands of its jobs, such as ``--device`` and ``cpu``.

    Raises:
        UserError: a command ended with a user's mistake, or was killed. The others are stopped; a later call resumes.
    """
    return complete([*data(study), *_jobs(study, options), *_steps(study)], study.name, workers)


def complete(stages: Sequence[Sequence[Command]], name: str, workers: int = 1,
             begins: Callable[[str], object] | None = None) -> tuple[int, int]:  # fmt: skip
    """Runs the commands of each stage in turn that are not current; returns and raises as ``make`` does.

    Args:
        stages: a command of a stage may read what earlier stages make.
        name: for the progress bar.
        workers: number of processes at a time.
        begins: called with each command line as it begins.
    """
    ran, total = 0, sum(map(len, stages))
    live: set[subprocess.Popen] = set()
    with progress_bar(total, name, "job") as tick, _ended_with(live), ThreadPoolExecutor(workers) as pool:
        for stage in stages:
            due = [command for command, current in stage if not current()]
            tick(len(stage) - len(due))
            running = [pool.submit(_run, command, live, tick, begins) for command in due]
            try:
                done = wait(running, return_when=FIRST_EXCEPTION).done
                for one in done:
                    one.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                _end(live)
                raise
            ran += len(due)
    return ran, total


def data(study: Study) -> Iterator[list[Command]]:
    """The commands that fetch and prepare its data, as workflow/rules/data.smk has them."""
    fetch, prepare, raw = {}, {}, study.data / "raw"
    for problem in study.experiment.problems:
        path, data = study.prepared(problem), study.experiment.data(problem)
        if path is None or data is None:
            continue
        files = [raw / file.name for file in get(data.dataset).files]
        if files:
            needed = fetch.setdefault(data.dataset, (files, []))[1]
            needed.append(path)
        words = ["lowvar", "prepare", data.dataset, "--scaling", data.scaling, "--raw", str(raw), "--out", str(path)]
        prepare[path] = shlex.join(words), path.is_file
    yield [
        (shlex.join(["lowvar", "fetch", name, "--raw", str(raw)]), partial(_either, files, needed))
        for name, (files, needed) in fetch.items()
    ]
    yield list(prepare.values())


def _either(raw: list[Path], prepared: list[Path]) -> bool:
    """Whether raw files are there, or not needed."""
    return any(all(path.is_file() for path in files) for files in (raw, prepared))


def _jobs(study: Study, options: tuple[str, ...]) -> Iterator[list[Command]]:
    for kinds in (("sample",), ("tune",), ("run", "decompose")):
        yield [(shlex.join([*shlex.split(job.command), *options]), partial(made, job)) for job in study.jobs(*kinds)]


def made(job: Job) -> bool:
    """Whether a job's outputs are whole, of its spec and of its inputs."""
    try:
        for path in job.outputs:
            job.read(path.name, artifact.read_arrays if path.suffix == ".npz" else artifact.read_table)
    except UserError:
        return False
    return True


def _steps(study: Study) -> Iterator[list[Command]]:
    steps = study.steps()
    timed = study.timed_here and "timed_figures" in steps  # as the workflow: wall times only where a figure shows them
    for name, step in steps.items():
        if timed or name not in ("seconds", "timed_figures"):
            yield [(step.command, partial(_published, study, name))]


def _published(study: Study, name: str) -> bool:
    """Whether a step's outputs are whole, of this experiment, and not older than a file that the step reads.

    The stamps of tables have no hashes of runs, nor those of claims one of the claims' file.
    """
    step = study.steps()[name]
    if not all(path.is_file() for path in step.outputs):
        return False
    oldest = min(path.stat().st_mtime_ns for path in step.outputs)
    if any(path.stat().st_mtime_ns > oldest for path in step.inputs + step.beside):
        return False
    if name == "claims" and bool(study.claims) != (len(study.verdicts.read_text().splitlines()) > 1):
        return False  # the claims' file has gone, or is new and old by its date
    return not any(differences(study, path) for path in step.outputs if path.suffix in (".parquet", ".svg"))


def _run(command: str, live: set[subprocess.Popen], tick: Callable[[], object],
         begins: Callable[[str], object] | None) -> None:  # fmt: skip
    if begins:
        begins(command)
    words = [sys.executable, "-m", "lowvar", *shlex.split(command)[1:]]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    live.add(process)
    said = process.communicate()[1].strip()
    live.discard(process)
    if process.returncode == 2:
        raise UserError(said.splitlines()[-1].removeprefix("lowvar: ") + f" (in: {command})")
    if process.returncode < 0 or process.returncode > 128:
        raise UserError(f"{command}: it was killed, with exit code {process.returncode}; the same command resumes")
    if process.returncode:
        raise RuntimeError(f"{command}: exit code {process.returncode}\n{said}")
    if said:
        print(said, file=sys.stderr)
    tick()


def _end(live: set[subprocess.Popen]) -> None:
    for process in list(live):
        process.terminate()


@contextlib.contextmanager
def _ended_with(live: set[subprocess.Popen]) -> Iterator[None]:
    """The signals that end this process end its commands too."""

    def leave(number, frame):
        _end(live)
        before[number](number, frame)

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
