"""Of runs that were not timed here, the workflow asks for no figure and no table that is made of times."""

from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize("timed", [True, False])
def test_results_of_runs_that_were_not_timed_have_no_figures_of_times(repository, monkeypatch, tmp_path, timed):
    pytest.importorskip("snakemake")
    monkeypatch.chdir(repository)
    path = repository / "workflow" / "rules" / "common.smk"
    config = {"experiments": ["mlmc"], "scale": "paper", "results": str(tmp_path)}
    alone = SimpleNamespace(
        storage_settings=SimpleNamespace(default_storage_provider=None, default_storage_prefix=""),
        is_main_process=False,
        configfiles=[],
    )
    rules = {"config": config, "report": None, "workflow": alone, "OWN": True, "HERE": Path()}
    exec(compile(path.read_text(), str(path), "exec"), rules)
    trace = tmp_path / "paper/mlmc/runs/blr/mc-jax/trace.parquet"
    trace.parent.mkdir(parents=True)
    trace.touch()
    if timed:
        trace.with_name("timing.parquet").touch()
    wanted = {name.removeprefix(f"{tmp_path}/paper/mlmc/") for name in rules["results_of"]("mlmc")}
    of_times = {"tables/seconds.csv", "figures/seconds.svg", "figures/cost.svg"}
    assert wanted & of_times == (of_times if timed else set())
    assert {"tables/measured.csv", "figures/particles.svg", "claims.csv"} <= wanted
