"""A command on a terminal: Ctrl-C at any moment, a full stdout, and a locale that nobody knows."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from projects import LITTLE

from lowvar.core import artifact

FILES = {"trace.parquet": artifact.read_table, "timing.parquet": artifact.read_table,
         "params.npz": artifact.read_arrays, "checkpoint.npz": artifact.read_arrays}  # fmt: skip
LONG = {**LITTLE, "name": "long", "problems": {"ellipsoid": {"function": "ellipsoid", "dim": 40}}, "methods": {"es": None},
        "search": {"budget": 200_000_000, "repetitions": 2}}  # fmt: skip
INTERRUPTED = "lowvar: interrupted; the same command resumes a run from its last checkpoint\n"
COMMAND = [sys.executable, "-m", "lowvar.cli"]


def begun(folder, *words, **more):
    return subprocess.Popen([*COMMAND, *map(str, words)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, **more)  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_an_interrupt_at_any_moment_of_the_start(tmp_path, record_property):
    """From the first moment to a while after the first checkpoint."""
    count = 40
    (tmp_path / "long.yaml").write_text(yaml.safe_dump(LONG))
    words = ["run", "long.yaml", "--problem", "ellipsoid", "--method", "es", "--checkpoint-every", "0", "--out"]
    start = time.monotonic()
    process = begun(tmp_path, *words, "first")
    while not (tmp_path / "first/checkpoint.npz").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    last = 1.2 * (time.monotonic() - start)
    process.kill()
    process.communicate()
    draw = random.Random(1)
    for number in range(count):
        process = begun(tmp_path, *words, "out")
        handled(process)
        time.sleep(last * (number + draw.random()) / count)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=100)[1]
        assert (process.returncode, said) == (130, INTERRUPTED)
        for path in (tmp_path / "out").glob("*"):
            assert path.name in FILES, path  # no temporary file is left
            FILES[path.name](path)
    record_property("interrupts", count)


def handled(process):
    """Waits until Python has started, and lowvar handles signals."""
    while not int(Path(f"/proc/{process.pid}/status").read_text().split("SigCgt:")[1].split()[0], 16) >> 14 & 1:
        assert process.poll() is None
        time.sleep(0.005)


SWALLOWED = """
class Library:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)  # Python would raise the exception here, and ignore it
def work():
    Library()
    time.sleep(20)
"""
HALF = """
def work():
    with files.all_or_none():
        files.write_text("a", "whole")
        with files.atomic("b") as part:
            part.write_text("half")
            os.kill(os.getpid(), signal.{})
            time.sleep(20)
"""


@pytest.mark.parametrize(
    ("work", "ended"),
    [(SWALLOWED, (130, INTERRUPTED)), (HALF.format("SIGTERM"), (143, "")), (HALF.format("SIGHUP"), (129, ""))],
)
def test_a_signal_in_a_destructor_and_while_files_are_written(tmp_path, work, ended):
    script = f"import os, signal, time\nfrom lowvar.core import files; from lowvar import terminal\n{work}\nterminal.exit_code(work)"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=19)
    assert (done.returncode, done.stderr) == ended
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["list"], pytest.param(["prepare", "breast_cancer"], marks=pytest.mark.long)])
def test_a_full_output(tmp_path, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "lowvar: cannot write the output: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "option", ["--out", *(pytest.param(one, marks=pytest.mark.long) for one in ("--data", "--checkpoints"))]
)
def test_a_device_in_place_of_a_file(tmp_path, option):
    (tmp_path / "little.yaml").write_text(yaml.safe_dump({"name": "little", **LITTLE}))
    words = ["run", "little.yaml", "--problem", "ellipsoid", "--method", "fast_ingo", option, "/dev/full"]
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "/dev/full" in done.stderr.strip()
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("locale", ["xx_XX.nothing", pytest.param("C", marks=pytest.mark.long)])
def test_an_unknown_locale(tmp_path, locale):
    variables = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": locale}
    content = yaml.safe_dump({"name": "kühn", **LITTLE, "title": "Größe β"}, allow_unicode=True)
    (tmp_path / "kühn.yaml").write_text(content, encoding="utf-8")
    calls = ["prepare", "breast_cancer", "--out", "dä/ü.npz"], ["schema", "--page"], ["table", "kühn.yaml"]
    words = [word for call in calls for word in (*call, ",")]
    code = """
import itertools, sys
from lowvar.cli import main
calls = [list(words) for comma, words in itertools.groupby(sys.argv[1:], ",".__eq__) if not comma]
assert [main(words) for words in calls] == [0, 0, 2]
"""
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, env=variables, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert (tmp_path / "dä/ü.npz").is_file()


def test_a_warning_is_a_line_without_source():
    """In the words of the command's options; other categories keep their place, which says whose they are."""
    code = """
import warnings
from lowvar.terminal import exit_code
def do():
    warnings.warn("samples repeat: set chain=True")
    warnings.warn("overflow", RuntimeWarning)
before = warnings.formatwarning
assert exit_code(do, names=lambda: ["chain"]) == 0
assert warnings.formatwarning is before
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, *_ = done.stderr.splitlines()
    assert first == "lowvar: warning: samples repeat: set --chain"
    assert second.endswith("RuntimeWarning: overflow")
