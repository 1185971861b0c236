"""Copies of the workflow with small experiments of their own, in git."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import commands
import yaml

ROOT = Path(__file__).parents[1]
LITTLE = {
    "title": "little",
    "family": "search",
    "problems": {"ellipsoid": {"function": "ellipsoid", "dim": 3}},
    "methods": {"fast_ingo": None},
    "search": {"budget": 500, "repetitions": 2},
    "draw": ["curves"],
}


def project(folder, **experiments):
    """The workflow in ``folder`` with these experiments alone, at scale smoke; experiments without a family are little."""
    folder.mkdir(exist_ok=True)
    for name in ("workflow", "profiles", ".ci"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("Snakefile", "params.yaml", "dvc.yaml", ".dvcignore", ".gitignore", "Makefile", "pyproject.toml",
                 "constraints.txt"):  # fmt: skip
        shutil.copy(ROOT / name, folder)
    for name in ("experiments", "claims", "times"):
        for path in (folder / "workflow" / name).iterdir():
            path.unlink()
    (folder / "workflow/claims/other.txt").write_text("")  # DVC's stages depend on both folders
    (folder / "workflow/times/other.txt").write_text("")
    for name, content in experiments.items():
        write(folder, name, **content)
    params = {"experiments": list(experiments), "scale": "smoke", "device": "cpu", "data": "data", "results": "results"}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    for name in ("data", "results"):
        (folder / name).mkdir()
        shutil.copy(ROOT / name / "README.md", folder / name)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    return folder


def write(folder, name, **content):
    """An experiment: little, or whole if it has a family."""
    whole = content if "family" in content else {**LITTLE, **content}
    path = folder / "workflow/experiments" / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "title": name, **whole}))


def git(folder, *words):
    """As ``git WORDS`` in ``folder``."""
    who = ["-c", "user.email=a@b", "-c", "user.name=a", "-c", "advice.detachedHead=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def plan(folder, *words):
    """How many jobs of each rule a dry run of Snakemake lists; none if there is nothing to be done."""
    done = commands.snakemake(folder, "-n", *words)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    stats = said[said.find("Job stats:") :].split("\n\n")[0] if "Job stats:" in said else ""
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", stats, re.M) if rule != "total"}


def call(folder, *command, code=0, path=(), **variables):
    """All that a command says, which must end with ``code``; ``path`` goes to the front of ``PYTHONPATH``."""
    environment = {**os.environ, **variables, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
