"""Every experiment runs from end to end, and so do the lines of docs/workflow.md."""

import re
import shlex
import shutil
from pathlib import Path

import commands
import jax
import pandas as pd
import pytest
import torch

from lowvar import cli
from lowvar_studies.datasets.catalogue import DATASETS
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.claims import VERDICTS, load

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
LINES = re.findall(r"^\$ snakemake (\w+ --config scale=quick)", (ROOT / "docs/workflow.md").read_text(), flags=re.M)
assert len(LINES) >= 4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def lowvar():
    """``lowvar(command)`` in this process, which must end with 0: as the workflow's rules run it."""
    settings = jax.config.jax_enable_x64, jax.config.jax_numpy_rank_promotion, torch.get_default_dtype()
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield lambda command: _ended(cli.main(shlex.split(command)[1:]), command)
    jax.config.update("jax_enable_x64", settings[0])
    jax.config.update("jax_numpy_rank_promotion", settings[1])
    torch.set_default_dtype(settings[2])
    jax.clear_caches()


def _ended(code, command):
    assert code == 0, command


def _judged(study):
    rows = pd.read_csv(study.verdicts) if study.claims else []
    assert len(rows) == (len(load(study.claims)) if study.claims else 0)
    assert set(rows["verdict"] if len(rows) else ()) <= set(VERDICTS)


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "workflow/experiments").glob("*.yaml")))
def test_every_experiment_runs_at_smoke(name, data, tmp_path, lowvar, request):
    study = Study.load(ROOT / f"workflow/experiments/{name}.yaml", "smoke", tmp_path, data)
    prepared = {path: study.experiment.data(one) for one in study.experiment.problems if (path := study.prepared(one))}
    for path, about in prepared.items():
        if path.is_file():
            continue
        if DATASETS[about.dataset].files:
            request.getfixturevalue("mirror")
            lowvar(f"lowvar fetch {about.dataset} --raw {data}/raw")
        lowvar(f"lowvar prepare {about.dataset} --scaling {about.scaling} --raw {data}/raw --out {path}")
    for job in study.jobs():
        lowvar(job.command)
    folders = {"results": study.results, "data": study.data}
    lowvar(study.command("table", **folders))
    if study.timed:
        lowvar(f"{study.command('table', **folders)} --seconds")
    lowvar(study.command(f"figure {' '.join(study.figures)}", **folders))
    lowvar(study.command("claims", **folders))
    _judged(study)


@pytest.mark.parametrize("line", LINES)
def test_the_lines_of_the_readme_run(line, tmp_path, mirror):
    for name in ("workflow", "profiles"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("Snakefile", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    done = commands.snakemake(tmp_path, "--cores", "1", *line.split())
    assert done.returncode == 0, done.stdout + done.stderr
    name = line.split()[0]
    _judged(Study.load(tmp_path / f"workflow/experiments/{name}.yaml", "quick", tmp_path / f"results/quick/{name}"))
