"""The variational engine: runs in parts are the same runs, tables too large are refused, a cut changes nothing."""

import importlib

import numpy as np
import pandas as pd
import pytest
import yaml

from lowvar.core import loop
from lowvar.errors import UserError
from lowvar.vi.run import engine
from lowvar.vi.run.settings import Method, Settings
from lowvar_studies.datasets.prepare import prepare
from lowvar_studies.jobs import commands
from lowvar_studies.jobs.variational import engine as methods
from lowvar_studies.models.logistic_regression import problem as logistic_regression

SAMPLER = importlib.import_module("lowvar.vi.batches")  # the package has a function of the same name
N, DIM, SIZES, REPETITIONS = 20, 3, (1e-2, 1e-3), 2
SETTINGS = {"step_sizes": SIZES, "batch_size": 6, "epochs": 4, "repetitions": REPETITIONS}  # the last batch has 2 rows
MARK = {"spec": "1"}


def problem(backend="jax"):
    rng = np.random.default_rng(0)
    return logistic_regression({"x": rng.normal(size=(N, DIM)), "y": rng.integers(0, 2, N)}, backend)


def build(method="joint", backend="jax", options=None, **settings):
    spec = Method(method, options or {})
    return methods.build(problem(backend), spec, Settings(**{**SETTINGS, **settings}), seed=0, name="small")


def split(monkeypatch):
    """No noise is held ahead any more, and no table is read by several runs at once."""
    monkeypatch.setattr(SAMPLER, "_HELD", 0)
    monkeypatch.setattr(engine, "_READ", 0)


def same(found, expected, rtol=1e-12):
    pd.testing.assert_frame_equal(found.trace, expected.trace, rtol=rtol, atol=0)
    assert found.params.keys() == expected.params.keys()
    for block, values in found.params.items():
        assert values.shape == (len(SIZES), REPETITIONS, DIM)
        np.testing.assert_allclose(values, expected.params[block], rtol=rtol, atol=1e-14)


# --- parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "backend", "noise"),
    [
        ("joint", "jax", "antithetic"),
        pytest.param("joint_glm", "jax", "rqmc", marks=pytest.mark.long),
        pytest.param("joint", "torch", "iid", marks=pytest.mark.long),
    ],
)
def test_runs_in_parts_are_the_same_runs(monkeypatch, method, backend, noise):
    """Their noise is drawn batch by batch, in place of an epoch ahead."""
    size = {"noise": noise, "particles": 2} | ({"batch_size": 12} if backend == "torch" else {})
    whole = build(method, backend, **size)
    assert whole.parts == [(slice(0, 2), slice(0, 2))]
    expected = loop.complete(whole)
    split(monkeypatch)
    parts = build(method, backend, **size)
    # a part for each run where a table is read, for each repetition where none is
    assert len(parts.parts) == (4 if method == "joint" else 2)
    found = loop.complete(parts)
    same(found, expected)
    if backend == "torch":
        same(found, loop.complete(build(method, **size)), rtol=1e-9)


# --- tables and memory -------------------------------------------------------------------------------------------


def test_tables_that_do_not_fit_are_refused_before_anything_starts(monkeypatch):
    def never(*args):
        raise AssertionError("a run has started")

    state = build("joint")._state_bytes()
    assert state > 2 * 4 * 2 * DIM * 8  # two epochs of four vectors, two blocks
    monkeypatch.setattr(engine.VariationalEngine, "_parts", never)
    monkeypatch.setattr(engine, "_SHARE", 0.8)
    there = int(4 * state / 0.8)
    monkeypatch.setattr(engine, "memory", lambda: there - 8)
    with pytest.raises(UserError, match=r"the tables of 4 runs need \S+ GiB"):
        build("joint")
    # each of the smaller choices gets past the check, and to the work
    for smaller in ({"repetitions": 1}, {"step_sizes": SIZES[:1]}, {"batch_size": 10}, {"method": "joint_svrg"},
                    {"method": "joint_glm"}, {"method": "joint_current"}):  # fmt: skip
        with pytest.raises(AssertionError, match="a run has started"):
            build(**{"method": "joint", **smaller})
    monkeypatch.setattr(engine, "memory", lambda: there + 8)
    with pytest.raises(AssertionError, match="a run has started"):
        build("joint")


@pytest.mark.parametrize(
    ("method", "options", "settings", "vectors"),
    [
        ("naive", {}, {}, 0),
        ("joint", {}, {}, 2 * 4 * 2),
        ("joint", {"table": "rows"}, {}, N * 2),
        ("joint_current", {}, {}, 2 * 4),
        ("smiso", {"table": "rows"}, {}, N * 2),
        ("smiso", {"table": "batches"}, {"batches": "fixed"}, 4 * 2),
        ("smiso", {"table": "rows"}, {"batches": "fixed"}, N * 2),  # not the default there
    ],
)
def test_table_bytes_are_those_of_the_state(method, options, settings, vectors):
    solver = build(method, options=options, repetitions=1, step_sizes=(1e-2,), **settings).at(1e-2)
    assert solver.table_bytes == vectors * DIM * 8


# --- checkpoints -------------------------------------------------------------------------------------------------


class Cut(Exception):
    """The run is cut here."""


@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.long)])
def test_a_run_in_parts_goes_on_from_its_checkpoint(monkeypatch, tmp_path, backend):
    split(monkeypatch)
    path, runs = tmp_path / "checkpoint.npz", build("joint", backend, batch_size=12)
    assert len(runs.parts) == 4
    expected = loop.complete(runs)
    passed = []

    def cut(count):
        passed.append(count)
        if path.exists() and sum(passed) > 1:
            raise Cut

    with pytest.raises(Cut):
        loop.complete(runs, checkpoint=path, mark=MARK, every=0.0, progress=cut)
    assert 0 < sum(passed) < SETTINGS["epochs"]
    resumed = []
    found = loop.complete(runs, checkpoint=path, mark=MARK, progress=resumed.append)
    assert resumed[0] > 0  # it did not begin again
    assert sum(resumed) == SETTINGS["epochs"]
    pd.testing.assert_frame_equal(found.trace, expected.trace, check_exact=True)
    for block, values in found.params.items():
        assert values.tobytes() == expected.params[block].tobytes()


# --- settings by problem and method ------------------------------------------------------------------------------

CANCER = {"model": "logistic_regression", "dataset": "breast_cancer"}


def study(folder, **content):
    content = {"name": "small", "title": "A small one", **content}
    (folder / "small.yaml").write_text(yaml.safe_dump(content))
    return commands.Study.load(folder / "small.yaml", "quick", folder / "results", folder / "data")


def test_the_most_particular_setting_counts(tmp_path):
    own = {"naive": None, "joint": {"repetitions": 2, "step_sizes": [0.5, 0.25]}}
    found = study(
        tmp_path,
        problems={"one": {**CANCER, "solver": {"batch_size": 9, "repetitions": 4}, "methods": own}, "two": CANCER},
        methods={"naive": None, "joint": None},
        solver={"step_sizes": [1e-3], "batch_size": 5, "epochs": 3, "repetitions": 7},
    ).experiment
    for problem, method, expected in (
        ("one", "naive", (9, 4, (1e-3,), 3)),
        ("one", "joint", (9, 2, (0.5, 0.25), 3)),
        ("two", "joint", (5, 7, (1e-3,), 3)),
    ):
        solver = found.run(problem, method, "jax").solver
        assert (solver.batch_size, solver.repetitions, solver.step_sizes, solver.epochs) == expected


@pytest.mark.long
def test_two_guides_side_by_side(tmp_path):
    """Full rank ends with a higher ELBO than mean field from the same start; tables name the guides."""
    place = study(
        tmp_path,
        problems={"mean": CANCER, "full": CANCER | {"guide": "full_rank"}},
        methods={"joint_adaptive": None},
        solver={"optimizer": "adam", "step_sizes": [1e-2], "batch_size": 50, "epochs": 100, "initial": "origin"},
        decomposition={"leader": "joint_adaptive", "step_size": 1e-2, "epochs": 2, "replicates": 4, "columns": 2,
                       "points_along": 0},
    )  # fmt: skip
    prepare("breast_cancer", out=place.prepared("mean"))
    for job in place.jobs():
        getattr(commands, job.kind)(job)
    commands.tables(place)
    optimum = place.table("optimum").set_index("problem")
    assert optimum["guide"].to_dict() == {"mean": "mean_field", "full": "full_rank"}
    ends = place.gather("run", "trace.parquet").groupby("problem").last()
    best = optimum.loc["mean", "elbo"]  # of all mean-field Gaussians
    assert abs(ends.loc["mean", "elbo"] - best) < 5
    assert ends.loc["full", "elbo"] > best + 5 * ends.loc["full", "elbo_se"]
    blocks = place.table("decomposition").groupby("problem")["block"].agg(set)
    assert (blocks["mean"], blocks["full"] - blocks["mean"]) == ({"all", "mu", "log_sigma"}, {"lower"})
