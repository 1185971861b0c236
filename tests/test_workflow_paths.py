"""Folders with any name: paths are quoted wherever a shell reads them."""

import shutil
from pathlib import Path

import commands
import pytest

pytest.importorskip("snakemake")

ROOT = Path(__file__).parents[1]
HOSTILE = "my $(touch made) `touch made` data; touch made"


@pytest.fixture
def copy(tmp_path):
    for name in ("workflow", "profiles"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("Snakefile", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_a_folder_with_any_name(copy):
    made = Path(HOSTILE, "prepared", "quickstart.sha256")
    words = ["--cores", "1", "data", "--config", f"data={HOSTILE}", "results=my results", "experiments=quickstart"]
    done = commands.snakemake(copy, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "breast_cancer" in (copy / made).read_text()
    assert not list(copy.rglob("made"))


@pytest.mark.parametrize("name", ["a{b}", "it's"])
def test_names_that_no_command_could_pass_on_are_refused(copy, name):
    done = commands.snakemake(copy, "-n", "--config", f"results={name}")
    assert done.returncode == 1
    assert "params.yaml or --config: results" in done.stdout + done.stderr


def test_a_parameter_that_is_given_twice_is_refused(copy):
    with (copy / "params.yaml").open("a") as params:
        params.write("scale: paper\n")
    done = commands.snakemake(copy, "-n")
    assert done.returncode == 1
    assert "params.yaml: not YAML: duplicate key 'scale'" in done.stdout + done.stderr


def test_dvc_quotes_the_folders():
    import yaml

    listed = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["runs"]["do"]["cmd"]
    assert listed[0] == "mkdir -p '${results}/${scale}/${item}/decomposition' '${results}/${scale}/${item}/samples'"
