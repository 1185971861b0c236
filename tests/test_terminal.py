"""A command on a terminal: Ctrl-C at any moment, a full stdout, and a locale that nobody knows."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import yaml
from projects import LITTLE

from lowvar.files import atomic
from lowvar.runs import artifact
from lowvar.terminal import exit_code

FILES = {"trace.parquet": artifact.read_table, "timing.parquet": artifact.read_table,
         "params.npz": artifact.read_arrays, "checkpoint.npz": artifact.read_arrays}  # fmt: skip
LONG = {**LITTLE, "name": "long", "search": {"budget": 200_000_000, "repetitions": 2}}
COMMAND = [sys.executable, "-m", "lowvar.cli"]


def begun(folder, *words, **more):
    return subprocess.Popen([*COMMAND, *map(str, words)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, **more)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.long)])
def test_an_interrupt_at_any_moment_of_the_start(tmp_path, record_property, count):
    """From the first moment to a while after the first checkpoint."""
    (tmp_path / "long.yaml").write_text(yaml.safe_dump(LONG))
    words = ["run", "long.yaml", "--problem", "ellipsoid", "--method", "fast_ingo", "--checkpoint-every", "0", "--out"]
    start = time.monotonic()
    process = begun(tmp_path, *words, "first")
    while not (tmp_path / "first/checkpoint.npz").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    last = 1.2 * (time.monotonic() - start)
    process.kill()
    process.communicate()
    draw, codes = random.Random(1), []
    for number in range(count):
        process = begun(tmp_path, *words, "out")
        time.sleep(last * (number + draw.random()) / count)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        codes.append(process.returncode)
        # before lowvar's own code runs, Python ends by the signal, which a shell shows as 130 too
        assert codes[-1] in (130, -signal.SIGINT), said
        assert codes[-1] < 0 or said.startswith("lowvar: interrupted"), said
        for path in (tmp_path / "out").glob("*"):
            assert path.name in FILES, path  # no temporary file is left
            FILES[path.name](path)
    for what, number in {"interrupts": count, "ended with 130": codes.count(130)}.items():
        record_property(what, number)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_destructor_swallows_comes_again(capsys):
    class Library:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # Python raises the exception here, and ignores it

    def work():
        Library()
        time.sleep(20)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    start = time.monotonic()
    with pytest.warns(pytest.PytestUnraisableExceptionWarning) if False else open(os.devnull):
        assert exit_code(work) == 130
    assert time.monotonic() - start < 10
    assert "interrupted" in capsys.readouterr().err
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_leaves_no_half_written_file(tmp_path):
    def work():
        with atomic(tmp_path / "a") as part:
            part.write_text("half")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(SystemExit, match="143"):
        exit_code(work)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["list"], ["prepare", "breast_cancer"]])
def test_a_full_output(tmp_path, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "lowvar: cannot write the output: No space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("option", ["--out", "--data"])
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
    calls = (
        (["prepare", "breast_cancer", "--out", "dä/ü.npz"], 0),
        (["schema", "--page"], 0),
        (["table", "kühn.yaml"], 2),
    )
    for words, code in calls:
        done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=variables, capture_output=True)
        assert done.returncode == code, done.stderr.decode()
        assert done.stderr.count(b"\n") == (code == 2)
    assert (tmp_path / "dä/ü.npz").is_file()
