"""What is tuned, as specs say it: wrong ranges, hashes, and how trials become a choice."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from studies_of_tuning import write

from lowvar.errors import UserError
from lowvar_studies.jobs.load import load_experiment
from lowvar_studies.jobs.variational import spec as chosen_by
from lowvar_studies.jobs.variational import trials as tuning


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
    ("changes", "message"),
    [
        ({"methods.adam.tune.step_size": {"low": 0.5, "high": 0.5}}, "methods.adam.tune.step_size: low = 0.5 must be below high = 0.5"),
        ({"problems.bc.methods.falling.tune.beta": {"low": 0.5, "high": 1.5}}, "problems.bc.methods.falling.tune: beta.high = 1.5: it must be less than or equal to 1"),
        ({"problems.bc.methods.falling.tune.r.low": 1.5}, "r.low = 1.5: it must be a whole number"),
        ({"problems.bc.methods.plain": {"tune": {"beta": {"low": 0.1, "high": 1}}}}, "problems.bc.methods.plain.tune: key 'step_size' is missing"),
        ({"problems.bc.methods.falling.schedule": None}, "problems.bc.methods.falling.tune.beta: the solver has no schedule"),
        ({"problems.bc.methods.falling.schedule.kind": "time"}, "schedule: 'time' takes beta"),
        ({"decomposition": {"leader": "falling", "step_size": 1e-3, "epochs": 2}}, "decomposition.leader: 'falling' tunes its schedule"),
        ({"methods.adam.tune": {"same_as": "falling"}}, "methods.adam.tune: give ranges or same_as, not both"),
        ({"problems.bc.methods.plain": {"tune": {"same_as": "fallin"}}}, "problems.bc.methods.plain.tune.same_as: unknown method 'fallin': did you mean 'falling'?"),
        ({"methods.plain.tune": {"same_as": "plain"}}, "problems.bc.methods.plain.tune.same_as: 'plain' tunes no settings of its own on 'bc'"),
    ],
)  # fmt: skip
def test_wrong_ranges_are_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        write(tmp_path, changes)
    assert str(caught.value).startswith(str(tmp_path / "small.yaml"))
    assert "\n" not in str(caught.value)


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


def test_an_experiment_that_tunes_nothing_is_as_it_was(repository):
    """No key of the tuning is in its specs, so results that were made before are not stale."""
    experiment = load_experiment(repository / "workflow/experiments/quickstart.yaml", "quick")
    dumped = json.dumps(
        [
            experiment.model_dump(mode="json"),
            *(experiment.run(*job).model_dump(mode="json") for job in experiment.runs()),
        ]
    )
    assert "tun" not in dumped
    assert '"study"' not in dumped
    assert experiment.studies() == []
