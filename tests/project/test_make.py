"""What `make` says and removes."""

import hashlib
import os
import re
import runpy
import subprocess
import sys
import time
import tomllib
import zipfile

import pytest


@pytest.mark.parametrize("error", ["Error in rule run:", "WorkflowError in file x:", "lowvar: a: no"])
def test_a_failure_is_shown(repository, tmp_path, error):
    (tmp_path / "params.yaml").write_text("experiments: [first, second]\nscale: quick\n")
    lines = ["SNAKEMAKE", "Job stats:", "total 50", "", "noise", error, *(f"line {i}" for i in range(100))]
    fails = [sys.executable, "-c", f"import sys; print({chr(10).join(lines)!r}); sys.exit(1)"]
    script = [sys.executable, repository / ".ci/progress.py", "logs/make.log"]
    done = subprocess.run([*script, *fails], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert done.returncode == 1
    assert said[2:4] == [error, "line 0"]
    assert said[-1].endswith("full output: logs/make.log")
    assert len(said) < 40


def test_a_part_is_one_line_unless_it_fails(repository, tmp_path):
    def part(command):
        script = [sys.executable, repository / ".ci/part.py", "name", command]
        done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    code, said = part("echo many; echo words; echo '== 3 passed, 1 skipped in 2.00s =='")
    assert (code, len(said)) == (0, 1)
    assert said[0].split()[:2] == ["ok", "name"]
    assert said[0].endswith(" s   3 passed, 1 skipped in 2.00s")
    assert (tmp_path / "logs/test/name.log").read_text().startswith("many\nwords\n")
    code, said = part("echo what; exit 3")
    assert (code, said[0], said[1].split()[:2]) == (3, "what", ["FAILED", "name"])
    assert said[1].endswith(" s   details: logs/test/name.log")


def test_an_installation_shows_that_it_goes_on(repository, tmp_path, capsys):
    shown = runpy.run_path(str(repository / ".ci/installing.py"))["shown"]
    works = "import sys, time; print('Collecting numpy', flush=True); time.sleep(1.5); print('end'); sys.exit(3)"
    log = tmp_path / "pip.log"
    assert shown([sys.executable, "-c", works], log, time.monotonic(), seconds=1) == 3
    assert log.read_text().splitlines() == ["Collecting numpy", "end"]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(("Collecting numpy", "starting"))


def test_uv_has_the_indexes_of_pip(repository):
    settings = runpy.run_path(str(repository / ".ci/installing.py"))["settings"]
    listed = "\n".join(
        (
            ":env:.default-timeout='180'",
            ":env:.index-url='https://env/simple'",
            "freeze.timeout='1'",
            "global.extra-index-url='https://a/simple\\nhttps://b/simple'",
            "global.find-links='/one /two'",
            "global.index-url='https://global/simple'",
            "install.find-links='/three'",
        )
    )
    assert settings(listed) == {
        "UV_DEFAULT_INDEX": "https://env/simple",
        "UV_FIND_LINKS": "/three",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert settings("global.find-links='/one /two'")["UV_FIND_LINKS"] == "/one,/two"


@pytest.fixture
def thing(repository, tmp_path):
    """Installs packages from a folder with one wheel, which only pip's settings name: exit code, words, is it there?"""
    wheel = tmp_path / "wheels/small_thing-1.5-py3-none-any.whl"
    wheel.parent.mkdir()
    files = {
        "small_thing.py": "VALUE = 7\n",
        "small_thing-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: small-thing\nVersion: 1.5\n",
        "small_thing-1.5.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "small_thing-1.5.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    (tmp_path / "pins.txt").write_text("small-thing==1.5\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    script = [sys.executable, repository / ".ci/installing.py", "logs/a.log", python, "-c", "pins.txt"]

    def install(name, digest=None, **settings):
        digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
        (tmp_path / "pins-hashes.txt").write_text(f"small-thing==1.5 \\\n    --hash=sha256:{digest}\n")
        environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)} | settings
        done = subprocess.run([*script, name], cwd=tmp_path, env=environment, capture_output=True, text=True)
        there = subprocess.run([python, "-c", "import small_thing; print(small_thing.VALUE)"], capture_output=True)
        return done.returncode, done.stdout, there.stdout == b"7\n"

    return install


def test_an_installation_takes_what_pip_would_take_with_its_hash(thing):
    code, said, there = thing("small-thing", "0" * 64)
    assert (code, there) == (1, False)
    assert "pins-hashes.txt" in said
    code, said, there = thing("small-thing")
    assert (code, there) == (0, True), said
    assert "full output" not in said


def test_an_installation_names_a_package_that_is_not_there(thing):
    code, said, _ = thing("missing-thing")
    assert code == 1
    assert "missing-thing" in said
    assert said.endswith("full output: logs/a.log\n")


def test_pip_installs_where_uv_fails(thing):
    code, said, there = thing("small-thing", UV_LINK_MODE="no such mode")  # which pip does not read
    assert (code, there) == (0, True), said
    assert "hashes are not checked" in said


PROBE = """
import sys, numpy, scipy.linalg, threadpoolctl, torch
kernels = {library.get("architecture") for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}
print(sorted(kernels), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), sys.argv[2:])
sys.exit(1)
"""


@pytest.mark.long
def test_other_processors_are_one_line_each_and_limit_every_library(repository, tmp_path):
    import numpy._core._multiarray_umath as umath

    if not umath.__cpu_features__.get("AVX2"):
        pytest.skip("this processor lacks AVX2")
    (tmp_path / "probe.py").write_text(PROBE)
    script = [sys.executable, repository / ".ci/cpus.py", "sse4 avx2 avx512", sys.executable, "probe.py", "pytest"]
    widest = [name for name in umath.__cpu_dispatch__ if name.startswith(("AVX512", "X86_V4"))]
    lacking = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(widest)}
    done = subprocess.run(script, cwd=tmp_path, env=lacking, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    said = [line.split() for line in done.stdout.splitlines() if line.startswith(("ok ", "FAILED "))]
    assert [line[:2] for line in said] == [["FAILED", "sse4"], ["FAILED", "avx2"], ["ok", "avx512"]]
    assert said[2][4] == "skipped:"
    found = {name: (tmp_path / f"logs/test/{name}.log").read_text().splitlines()[-1] for name in ("sse4", "avx2")}
    assert found == {"sse4": "['Nehalem'] DEFAULT 1 []", "avx2": "['Haswell'] AVX2 2 ['--random-order-seed=1']"}


@pytest.mark.parametrize(
    ("words", "stamp"),
    [([], "installed"), (["EXTRAS="], "installed-library"), (["EXTRAS=torch,plot"], "installed-torch,plot")],
)
@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("echo 'ERROR: no space' >&2; exit 1", 2)])
def test_an_installation_that_fails_is_none(repository, tmp_path, end, code, words, stamp):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((repository / name).read_text())
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{end}\n")  # in place of the program that installs
    python.chmod(0o755)
    done = subprocess.run(["make", "-s", "install", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert (tmp_path / ".venv" / stamp).exists() == (code == 0)
    assert len(list((tmp_path / ".venv").glob("installed*"))) == (code == 0)  # another choice of extras installs again


def test_clean_spares_the_pages_of_results_and_data(repository, tmp_path):
    (tmp_path / "Makefile").write_text((repository / "Makefile").read_text())
    for path in ("results/README.md", "results/quick/a.csv", "data/README.md", "data/raw/b", "logs/c"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    for target, left in (("clean", {"README.md", "raw"}), ("distclean", {"README.md"})):
        subprocess.run(["make", "-s", target], cwd=tmp_path, check=True, capture_output=True)
        assert [path.name for path in (tmp_path / "results").iterdir()] == ["README.md"]
        assert {path.name for path in (tmp_path / "data").iterdir()} == left
        assert not (tmp_path / "logs").exists()


def test_slurm_says_why_it_is_skipped(repository, tmp_path):
    """And never touches a Slurm that is there."""
    (tmp_path / "slurm.conf").write_text("")
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    command = [repository / ".ci/slurm", "touch", tmp_path / "ran"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch("skipped: .*a Slurm of its own.*\n", done.stdout)
    assert not (tmp_path / "ran").exists()


def test_the_recipe_of_the_image_names_what_is_there(repository):
    """CI builds it each week; here its instructions, files and extras are read."""
    text = (repository / "Containerfile").read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    steps = [line.split(maxsplit=1) for line in lines]
    assert steps[0][0] == "FROM"
    assert {step for step, _ in steps} <= {"FROM", "RUN", "WORKDIR", "COPY", "ARG", "ENV", "CMD"}
    assert len(text.splitlines()) < 40
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (given,) = (rest.removeprefix("EXTRAS=").split(",") for step, rest in steps if step == "ARG")
    assert {"torch", "workflow"} <= set(given) <= set(extras)
    (target,) = (found[1] for step, rest in steps if (found := re.search(r"make (\w+) EXTRAS=", rest)))
    assert re.search(rf"^{target}:", (repository / "Makefile").read_text(), re.M)


def test_an_image_gets_no_file_that_git_ignores(repository):
    ignored = (repository / ".dockerignore").read_text().splitlines()
    for name in (".venv", "data/*", "results/*", "logs", "build", "dist", ".snakemake"):
        assert name in ignored
        assert any(one.strip("/") == name for one in (repository / ".gitignore").read_text().splitlines())
