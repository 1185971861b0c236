"""Compiled programs that are kept on disk: a damaged one is compiled again."""

import os
import subprocess
import sys

import pytest
import yaml
from projects import LITTLE

from lowvar.core import xla
from lowvar.core.xla import Programs

RUN = ["run", "little.yaml", "--problem", "ellipsoid", "--method", "fast_ingo", "--out"]


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-1], lambda whole: b"", lambda whole: whole[:40] + b"?" + whole[41:]]
)
def test_a_damaged_program_is_forgotten(tmp_path, damage):
    kept = Programs(tmp_path / "programs")
    assert kept.get("key") is None
    kept.put("key", b"a program" * 10)
    assert kept.get("key") == b"a program" * 10
    (file,) = (tmp_path / "programs").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert kept.get("key") is None
    assert not file.exists()


def test_a_program_under_the_key_of_another(tmp_path):
    kept = Programs(tmp_path)
    kept.put("one", b"1")
    kept.put("other", b"2")
    (tmp_path / "one").rename(tmp_path / "aside")
    (tmp_path / "other").rename(tmp_path / "one")
    (tmp_path / "aside").rename(tmp_path / "other")
    assert (kept.get("one"), kept.get("other")) == (None, None)
    assert not any(tmp_path.iterdir())


def test_a_folder_of_programs_has_a_largest_size(tmp_path, monkeypatch):
    kept = Programs(tmp_path)
    for age, key in enumerate(("old", "used", "new")):
        kept.put(key, b"1" * 1000)
        os.utime(tmp_path / key, (age, age))
    assert kept.get("old") == b"1" * 1000  # from now on the last one used
    monkeypatch.setattr(xla, "BYTES", 3500)
    kept.put("last", b"1" * 1000)
    assert {file.name for file in tmp_path.iterdir()} == {"old", "new", "last"}


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "a").write_text("a file where a folder should be")
    Programs(tmp_path / "a").put("key", b"a program")
    assert Programs(tmp_path / "a").get("key") is None


@pytest.mark.long
def test_a_run_with_damaged_programs(tmp_path, record_property):
    """It ends with the same bytes, and says nothing: the programs are compiled again."""
    (tmp_path / "little.yaml").write_text(yaml.safe_dump({"name": "little", **LITTLE}))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    programs = tmp_path / "cache/lowvar/programs"
    for out in ("whole", "damaged"):
        done = subprocess.run([sys.executable, "-m", "lowvar.cli", *RUN, out], cwd=tmp_path, env=environment,
                              capture_output=True, text=True)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        files = list(programs.iterdir())
        assert files
        for file in files:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
    assert (tmp_path / "whole/trace.parquet").read_bytes() == (tmp_path / "damaged/trace.parquet").read_bytes()
    record_property("damaged", len(files))


def test_no_home(tmp_path):
    """Nothing is kept, rather than in a folder called ~ or one of the folder that a command runs in."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "JAX_"))}
    script = "import jax; from lowvar.core import xla; xla.keep(); print(jax.config.jax_compilation_cache_dir)"
    said = subprocess.check_output([sys.executable, "-c", script], env={**variables, "HOME": "home"}, text=True)
    assert said == "None\n"
