"""Guides in experiment files: two side by side, what is refused, and what a hash depends on."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from commands import lowvar

from lowvar.errors import UserError
from lowvar.vi.guides.gaussian import GUIDES
from lowvar.vi.variational import VariationalProblem
from lowvar_studies.jobs.load import load_experiment
from lowvar_studies.jobs.variational.spec import ModelSpec
from lowvar_studies.reports.variational.gathering import build

PROBLEM = {"model": "logistic_regression", "dataset": "breast_cancer"}
GUIDED = {
    "name": "guided",
    "title": "Two guides on one posterior",
    "problems": {
        "mean": PROBLEM,
        "full": PROBLEM | {"guide": "full_rank"},
    },
    "methods": {"joint_adaptive": None},
    "solver": {"optimizer": "adam", "step_sizes": [1e-2], "batch_size": 50, "epochs": 200, "initial": "origin"},
    "decomposition": {"leader": "joint_adaptive", "step_size": 1e-2, "epochs": 2, "replicates": 4, "columns": 2,
                      "points_along": 0},
    "scales": {"smoke": {"solver": {"epochs": 100}}},
}  # fmt: skip
LOW = {"low": PROBLEM | {"guide": {"guide": "low_rank", "rank": 2}}}
DATA = "data/prepared/breast_cancer-minmax.npz"


def written(folder, problems=None, **changes):
    content = GUIDED | changes | ({} if problems is None else {"problems": problems})
    path = folder / "guided.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.long
def test_two_guides_side_by_side(tmp_path):
    """Full rank ends with a higher ELBO than mean field from the same start; tables name the guides."""
    written(tmp_path)
    results = "results/smoke/guided"
    commands = [["prepare", "breast_cancer", "--out", DATA]]
    for name in GUIDED["problems"]:
        place = f"runs/{name}/joint_adaptive-jax"
        commands.append(["run", "guided.yaml", "--scale", "smoke", "--problem", name, "--method", "joint_adaptive",
                         "--data", DATA, "--out", f"{results}/{place}"])  # fmt: skip
        commands.append(["decompose", "guided.yaml", "--scale", "smoke", "--problem", name, "--data", DATA,
                         "--out", f"{results}/decomposition/{name}"])  # fmt: skip
    for words in [*commands, ["table", "guided.yaml", "--scale", "smoke"]]:
        done = lowvar(tmp_path, *words)
        assert done.returncode == 0, done.stderr
    read = {path.stem: path for path in (tmp_path / results).rglob("*.parquet")}
    optimum = pd.read_parquet(read["optimum"]).set_index("problem")
    assert optimum["guide"].to_dict() == {"mean": "mean_field", "full": "full_rank"}
    assert optimum.loc["mean", "how"] == "L-BFGS on the exact ELBO"
    assert optimum.loc["full", "how"] == "largest seen in these runs"
    with np.load(tmp_path / results / "runs/full/joint_adaptive-jax/params.npz") as params:
        assert {"mu", "log_sigma", "lower"} <= set(params.files)
    runs = tmp_path / results / "runs"
    traces = {
        name: pd.read_parquet(runs / name / "joint_adaptive-jax/trace.parquet").iloc[-1] for name in optimum.index
    }
    best = optimum.loc["mean", "elbo"]  # of all mean-field Gaussians
    assert abs(traces["mean"]["elbo"] - best) < 5
    assert traces["full"]["elbo"] > best + 5 * traces["full"]["elbo_se"]
    parts = pd.read_parquet(read["optimum"].with_name("decomposition.parquet"))
    blocks = {name: set(rows["block"]) for name, rows in parts.groupby("problem")}
    assert blocks == {"mean": {"all", "mu", "log_sigma"}, "full": {"all", "mu", "log_sigma", "lower"}}


def test_a_guide_is_in_the_hash_if_it_is_named(tmp_path):
    problems = GUIDED["problems"] | LOW
    experiment = load_experiment(written(tmp_path, problems), "smoke")
    runs = {name: experiment.run(name, "joint_adaptive", "jax") for name in problems}
    hashes = {run.model_copy(update={"name": ""}).hash for run in runs.values()}
    assert len(hashes) == 3
    assert [run.problem.family for run in runs.values()] == ["mean_field", "full_rank", "low_rank, rank=2"]
    assert "guide" not in runs["mean"].model_dump()["problem"]


@pytest.mark.parametrize(
    ("guide", "message"),
    [
        ("full_rnk", "problems.p.guide: unknown guide 'full_rnk': did you mean 'full_rank'?"),
        ({"guide": "full_rank", "rank": 3}, "problems.p.guide: full_rank: unknown option 'rank'"),
        ({"rank": 3}, "problems.p.guide = {'rank': 3}: name the guide too"),
        (3, "problems.p.guide"),
    ],
)
def test_wrong_guides_are_told(tmp_path, guide, message):
    with pytest.raises(UserError, match=re.escape(message)):
        load_experiment(written(tmp_path, {"p": PROBLEM | {"guide": guide}}), "smoke")


def made(model, guide, **arrays):
    spec = ModelSpec(model=model, dataset="none", guide=guide)  # type: ignore[call-arg]
    return build(spec, SimpleNamespace(arrays=arrays), "float64", "jax", "p")


X = np.random.default_rng(0).normal(size=(12, 3))


def test_a_hierarchical_prior_has_no_mean_field_closed_form_under_another_guide():
    for guide in GUIDES.own:
        problem = made("hlr", guide, x=X, y=X[:, 0])
        assert isinstance(problem, VariationalProblem)
        assert (problem.exact_elbo is None) == (problem.expected_log_prior is None) == (guide != "mean_field")
