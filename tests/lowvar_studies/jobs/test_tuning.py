"""A study repeats to the byte however often it is killed, says what it chose, and is refused where it does not belong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from commands import started

from lowvar.core import artifact, loop
from lowvar.errors import UserError
from lowvar_studies.datasets.prepare import prepare
from lowvar_studies.jobs import commands
from lowvar_studies.jobs.common_spec import merged
from lowvar_studies.jobs.variational import spec as chosen_by
from lowvar_studies.jobs.variational import trials as tuning
from lowvar_studies.reports.variational import selection

pytest.importorskip("optuna")
FALLING = {"optimizer": "sgd", "schedule": {"kind": "step"}, "tune": {"beta": {"low": 0.1, "high": 1}, "r": {"low": 10, "high": 50}}}  # fmt: skip
EXPERIMENT = {
    "name": "small",
    "title": "Three trials",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer", "methods": {
        "plain": None, "adam": None, "falling": FALLING}}},
    "methods": {
        "plain": {"estimator": "naive"},
        "adam": {"estimator": "naive", "tune": {"step_size": {"low": 1e-3, "high": 0.5}}},
        "falling": {"estimator": "naive", "tune": {"step_size": {"low": 1e-5, "high": 1e-3}}},
    },
    "solver": {"optimizer": "adam", "step_sizes": [0.01], "batch_size": 100, "epochs": 6, "repetitions": 2},
    "tuning": {"trials": 3, "epochs": 3},
    "scales": {"paper": {"tuning": {"trials": 40}}},
}  # fmt: skip


def write(folder, changes=(), scale="quick"):
    """The experiment with some keys (``a.b``) replaced."""
    content = EXPERIMENT
    for keys, value in dict(changes).items():
        for key in reversed(keys.split(".")):
            value = {key: value}
        content = merged(content, value)
    (folder / "small.yaml").write_text(yaml.safe_dump(content))
    return commands.Study.load(folder / "small.yaml", scale, folder / "results", folder / "data")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuning")
    prepare("breast_cancer", out=folder / "data/prepared/breast_cancer-minmax.npz")
    return folder


@pytest.fixture
def place(home):
    return write(home)


@pytest.fixture(scope="module")
def whole(home):
    """Both studies, made without a stop."""
    place = write(home)
    return {method: commands.tune(place.job("tune", "bc", method, "jax")) for method in ("adam", "falling")}


# --- specs


def test_a_trial_that_diverges_is_the_worst():
    trace = pd.DataFrame({"epoch": [0, 0, 3, 3], "elbo": [-9.0, -9.0, -4.0, -2.0]})
    assert tuning.value(trace) == -3.0
    for bad in (np.nan, np.inf, -np.inf):
        assert tuning.value(trace.assign(elbo=[-9.0, -9.0, bad, -2.0])) == -np.inf
    study = pd.DataFrame({"step_size": [0.3, 0.1, 0.2], "r": [5, 6, 7], "value": [-np.inf, -7.0, -7.0]})
    assert chosen_by.choice(study) == {"step_size": 0.1, "r": 6}
    assert chosen_by.choice(study.assign(value=-np.inf)) == {"step_size": 0.1, "r": 6}
    assert chosen_by.choice(study.assign(value=[-1.0, -np.inf, -np.inf])) == {"step_size": 0.3, "r": 5}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"methods.adam.tune.step_size": {"low": 0.5, "high": 0.5}}, "methods.adam.tune.step_size: low = 0.5"),
        ({"problems.bc.methods.falling.tune.beta": {"low": 0.5, "high": 1.5}}, "bc.methods.falling.tune: beta.high"),
        ({"problems.bc.methods.falling.tune.r.low": 1.5}, "r.low = 1.5"),
        ({"problems.bc.methods.plain": {"tune": {"beta": {"low": 0.1, "high": 1}}}}, "plain.tune: key 'step_size'"),
        ({"problems.bc.methods.falling.schedule": None}, "problems.bc.methods.falling.tune.beta"),
        ({"problems.bc.methods.falling.schedule.kind": "time"}, "schedule: 'time' takes beta"),
        ({"decomposition": {"leader": "falling", "step_size": 1e-3, "epochs": 2}}, "decomposition.leader: 'falling'"),
        ({"methods.adam.tune": {"same_as": "falling"}}, "methods.adam.tune: give ranges or same_as"),
        ({"problems.bc.methods.plain": {"tune": {"same_as": "fallin"}}}, "plain.tune.same_as: unknown method 'fallin'"),
        ({"methods.plain.tune": {"same_as": "plain"}}, "plain.tune.same_as: 'plain'"),
    ],
)
def test_wrong_ranges_are_named(tmp_path, changes, place):
    with pytest.raises(UserError, match=re.escape(place)) as caught:
        write(tmp_path, changes)
    assert str(caught.value).startswith(str(tmp_path / "small.yaml"))


def test_hashes_depend_on_what_is_tuned_and_on_nothing_else(tmp_path):
    def hashes(changes=()):
        experiment = write(tmp_path, changes).experiment
        return {job: experiment.run(*job).hash for job in experiment.runs()}

    before = hashes()
    plain, adam, falling = [("bc", method, "jax") for method in ("plain", "adam", "falling")]
    for changes, changed in (
        ({"methods.adam.tune.step_size.high": 0.4}, {adam}),
        ({"problems.bc.methods.falling.tune.r.high": 40}, {falling}),
        ({"tuning.trials": 4}, {adam, falling}),
        ({"solver.step_sizes": [0.02]}, {plain}),  # what is tuned has no other value
        ({"problems.bc.methods.falling.schedule": {"beta": 0.7, "r": 3}}, set()),
        ({"tuning.repetitions": 2}, set()),  # the default
    ):
        assert {job for job, hash in hashes(changes).items() if hash != before[job]} == changed, changes


def test_what_is_tuned_can_be_narrowed_or_left_on_a_problem(tmp_path):
    """A problem's ``tune`` is put over the method's, key by key; null is none."""
    high = write(tmp_path, {"problems.bc.methods.adam": {"tune": {"step_size": {"high": 0.1}}}}).experiment
    assert high.tune_on("bc", "adam").step_size.model_dump() == {"low": 1e-3, "high": 0.1}
    fixed = {"schedule": {"kind": "step", "beta": 0.5, "r": 7}}
    none = write(
        tmp_path, {"problems.bc.methods": {"adam": {"tune": None}, "falling": {"tune": None, **fixed}}}
    ).experiment
    assert none.studies() == []
    assert none.run("bc", "adam", "jax").hash == none.run("bc", "plain", "jax").hash
    assert none.run("bc", "adam", "jax").solver.step_sizes == (0.01,)


# --- the search


@pytest.mark.long
def test_a_study_has_a_row_for_each_trial(place, whole):
    study = artifact.read_table(whole["falling"])
    assert whole["falling"] == place.results / "runs/bc/falling-jax/tuning/study.parquet"
    assert list(study["number"]) == [0, 1, 2]
    assert study["step_size"].between(1e-5, 1e-3).all()
    assert study["beta"].between(0.1, 1).all()
    assert study["r"].between(10, 50).all()
    assert study["r"].dtype == np.int64
    assert study[["step_size", "beta", "r"]].nunique().tolist() == [3, 3, 3]
    assert np.isfinite(study["value"]).all()
    assert "beta" not in artifact.read_table(whole["adam"])
    assert (artifact.read_table(whole["falling"].with_name("timing.parquet"))["seconds"] > 0).all()
    assert {path.name for path in whole["adam"].parent.iterdir()} == {
        "study.parquet",
        "timing.parquet",
        "provenance.json",
    }


def test_a_trial_is_the_run_that_its_row_says(place, whole):
    """Its value is the mean ELBO at the end of a run of its own, and the noise is not that of the runs."""
    study, job = artifact.read_table(whole["falling"]), place.experiment.tune("bc", "falling", "jax")
    row = study.iloc[1]
    spec = job.trial({"step_size": row["step_size"], "beta": row["beta"], "r": int(row["r"])})
    assert (spec.solver.epochs, spec.solver.repetitions, spec.solver.step_sizes) == (3, 2, (row["step_size"],))
    falling = spec.solver.schedule
    assert (falling.kind, falling.beta, falling.r) == ("step", row["beta"], row["r"])

    def ends(spec):
        trace = loop.complete(place.family.engine(spec, place.load_data("bc"))).trace
        return trace.loc[trace["epoch"] == 3, "elbo"].to_numpy()

    own = ends(spec)
    assert len(own) == 2
    assert row["value"] == pytest.approx(own.mean(), rel=1e-10)  # trials share programs, a run has its own
    assert np.abs(own - ends(spec.model_copy(update={"name": "bc"}))).min() > 1e-3


def test_methods_begin_with_the_same_draws_and_trials_differ(place):
    jobs = [place.experiment.tune("bc", method, "jax") for method in ("adam", "falling")]
    shares = []
    for job in jobs:
        low, high = job.ranges.step_size.low, job.ranges.step_size.high
        found, rows = [], []
        for _ in range(4):
            row = tuning.propose(job, rows)
            rows.append(row | {"value": -1.0})
            found.append(np.log(row["step_size"] / low) / np.log(high / low))
        shares.append(found)
    np.testing.assert_allclose(*shares, rtol=1e-9)
    assert np.unique(np.round(shares[0], 6)).size == 4


def test_the_search_finds_the_top_of_a_known_function(place):
    """After the random trials it does better than as many random draws, divergences included."""
    job = write(place.path.parent, scale="paper").experiment.tune("bc", "falling", "jax")

    def value(row):
        if row["step_size"] > 5e-4:
            return -np.inf
        return -(np.log(row["step_size"] / 1e-4) ** 2) - (row["beta"] - 0.8) ** 2 - ((row["r"] - 20) / 40) ** 2

    rows = []
    for _ in range(40):
        row = tuning.propose(job, rows)
        rows.append(row | {"value": value(row)})
    values = np.array([row["value"] for row in rows])
    assert np.isinf(values[:10]).any(), "no trial diverged: the test shows little"
    assert np.median(values[20:]) > np.sort(values[:10])[-3]
    assert values.max() > -0.1


# --- kills


def test_stopped_within_every_trial_the_bytes_are_the_same(place, whole, tmp_path, monkeypatch):
    real, tried, stopped = loop.complete, [], set()

    def run(engine, *, checkpoint, mark, every, progress=None):
        key = mark["spec"]
        tried.append(key)
        if key in stopped:
            assert checkpoint.exists()
            return real(engine, checkpoint=checkpoint, mark=mark, every=every)
        stopped.add(key)
        advance = engine.advance

        def once(state, first, count):
            if first >= 1 and count:
                raise KeyboardInterrupt
            return advance(state, first, count)

        monkeypatch.setattr(engine, "advance", once)
        return real(engine, checkpoint=checkpoint, mark=mark, every=0.0)

    monkeypatch.setattr(loop, "complete", run)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            commands.tune(place.job("tune", "bc", "falling", "jax"), out=tmp_path)
        assert not (tmp_path / "study.parquet").exists()
    commands.tune(place.job("tune", "bc", "falling", "jax"), out=tmp_path)
    assert (len(stopped), len(tried)) == (3, 6), "a trial that was done was made again"
    assert (tmp_path / "study.parquet").read_bytes() == whole["falling"].read_bytes()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.long
@pytest.mark.slow
def test_two_at_once(place, whole, tmp_path):
    """The second waits until the first has ended; neither meets the other's files."""
    out = tmp_path / "out"
    words = ["tune", place.path, "--problem", "bc", "--method", "falling", "--data", place.prepared("bc"), "--out", out]
    first = started(Path.cwd(), *words)
    while first.is_alive() and not list(out.glob("checkpoint*.npz")):
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGSTOP)  # so that it works for as long as the second takes to begin
    second = subprocess.Popen([sys.executable, "-m", "lowvar.cli", *map(str, words)], stderr=subprocess.PIPE, text=True)
    said = [second.stderr.readline()]
    os.kill(first.pid, signal.SIGCONT)
    first.join()
    study = (out / "study.parquet").read_bytes()
    assert (first.exitcode, study) == (0, whole["falling"].read_bytes())
    said.append(second.communicate()[1])
    assert second.returncode == 0, said
    assert f"{out}: waiting for another process" in said[0]
    assert (out / "study.parquet").read_bytes() == study
    assert len(list(out.iterdir())) == 3


# --- runs


def test_a_run_takes_what_its_study_chose(place, whole, tmp_path):
    best = artifact.read_table(whole["falling"]).sort_values("value").iloc[-1]
    chosen = {"step_size": best["step_size"], "beta": best["beta"], "r": best["r"]}
    assert chosen_by.choice(artifact.read_table(whole["falling"])) == chosen
    job = place.job("run", "bc", "falling", "jax")
    out = commands.run(job, out=tmp_path, study=whole["falling"])
    about = json.loads((tmp_path / "provenance.json").read_text())
    assert artifact.read_table(out)["step_size"].unique() == [best["step_size"]]
    assert about["spec"]["solver"]["schedule"] == {"kind": "step", "beta": best["beta"], "r": best["r"]}
    assert about["stamp"]["spec"] == place.experiment.run("bc", "falling", "jax").hash
    assert about["stamp"]["inputs"] == job.settled()[1]
    assert set(about["stamp"]["inputs"]) == {"bc", "bc/falling-jax"}
    assert place.job("run", "bc", "plain", "jax").settled()[0] == place.experiment.run("bc", "plain", "jax")
    runs = pd.DataFrame({"problem": "bc", "method": ["plain", "falling"], "backend": "jax", "step_size": [0.01, 0.02]})
    table = selection.with_trials(place, runs)[["elbo", "trials", "diverged"]]
    assert table.loc[1].tolist() == [best["value"], 3, 0]
    assert table.loc[0].isna().all()


SAME = {"problems.bc.methods.plain": {**{key: FALLING[key] for key in ("optimizer", "schedule")}, "tune": {"same_as": "falling"}}}  # fmt: skip


def test_a_run_takes_what_the_study_of_another_method_chose(home, whole, tmp_path):
    """The study is an input of both runs: in their specs, their stamps and the commands that rebuild them."""
    place = write(home, SAME)
    experiment, mine, theirs = place.experiment, ("bc", "plain", "jax"), ("bc", "falling", "jax")
    assert experiment.study_of(*mine) == experiment.study_of(*theirs) == theirs
    assert mine not in experiment.studies()
    assert experiment.run(*mine).study == experiment.tune(*theirs).hash == experiment.run(*theirs).study
    out = commands.run(place.job("run", *mine), out=tmp_path)
    best = chosen_by.choice(artifact.read_table(whole["falling"]))
    solver = place.job("run", *mine).settled()[0].solver
    assert artifact.read_table(out)["step_size"].unique() == [best["step_size"]] == list(solver.step_sizes)
    assert (solver.schedule.beta, solver.schedule.r) == (best["beta"], best["r"])
    stamp = json.loads((tmp_path / "provenance.json").read_text())["stamp"]
    assert stamp["inputs"] == place.job("run", *theirs).settled()[1]
    with pytest.raises(UserError, match="'plain' has the settings of 'falling'"):
        commands.tune(place.job("tune", *mine))


def test_the_runs_of_tuned_methods_are_gathered(place, whole):
    """Their stamps name the study: a run of another one is stale."""
    for method in ("plain", "adam", "falling"):
        commands.run(place.job("run", "bc", method, "jax"))
    traces = place.gather("run", "trace.parquet")
    assert set(traces["method"]) == {"plain", "adam", "falling"}
    file = place.job("run", "bc", "adam", "jax").folder / "tuning/study.parquet"
    before, mark = file.read_bytes(), artifact.verified_stamp(file)
    study = artifact.read_table(file)
    artifact.write_table(file, study.assign(value=study["value"] + 1), mark)
    with pytest.raises(UserError, match=r"adam-jax/trace\.parquet: stale, .*--study .*study\.parquet"):
        place.gather("run", "trace.parquet")
    file.write_bytes(before)
    assert {"bc", "bc/adam-jax", "bc/falling-jax"} == set(place.tables_stamp()["inputs"])


@pytest.mark.parametrize(
    ("changes", "method"),
    [({}, "adam"), ({"tuning.trials": 4}, "falling"), ({"seed": 1}, "falling"), ({"problems.bc.scaling": "standard"}, "falling")],
)  # fmt: skip
def test_a_study_of_another_experiment_is_refused(home, whole, tmp_path, changes, method):
    other = write(home, changes)
    if "problems.bc.scaling" in changes:
        prepare("breast_cancer", scaling="standard", out=other.prepared("bc"))
    with pytest.raises(UserError, match=r"study\.parquet: stale, .*lowvar tune "):
        commands.run(other.job("run", "bc", method, "jax"), study=whole["falling"], out=tmp_path)
    write(home)


def test_a_tuned_run_needs_its_study_and_another_none(place, whole, tmp_path):
    with pytest.raises(UserError, match=r"none\.parquet: no such file; .*lowvar tune .*--method falling --backend jax"):
        commands.run(place.job("run", "bc", "falling", "jax"), study=tmp_path / "none.parquet", out=tmp_path)
    with pytest.raises(UserError, match="'plain' on 'bc'"):
        commands.run(place.job("run", "bc", "plain", "jax"), study=whole["falling"], out=tmp_path)
