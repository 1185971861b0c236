"""Folders with any name: paths are quoted wherever a shell reads them."""

import shutil
from pathlib import Path

import commands
import pytest

pytest.importorskip("snakemake")

ROOT = Path(__file__).parents[2]
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


def test_a_key_that_a_module_does_not_know_is_refused(copy, tmp_path_factory):
    parent = tmp_path_factory.mktemp("parent")
    (parent / "Snakefile").write_text(AS_MODULE.replace('"scale"', '"samples"').format(file=copy / "Snakefile"))
    done = commands.snakemake(parent, "-n")
    assert done.returncode == 1
    assert "the module's config: unknown key 'samples'" in done.stdout + done.stderr
