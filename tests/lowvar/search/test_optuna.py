"""``LowvarSampler`` in studies of Optuna: parameters of all kinds, storages, workers, failures."""

import pickle
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from lowvar.errors import UserError

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.ERROR)

from lowvar.search.optuna import LowvarSampler  # noqa: E402

PLACE = "lowvar:place"


def sphere(trial):
    return sum((trial.suggest_float(f"x{i}", -5, 5) - 1) ** 2 for i in range(3))


def mixed(trial):
    """All kinds of parameters; the minimum 0 is at 2, 1e-3, 12, 0.75, 40 and "b"."""
    real, rate = trial.suggest_float("real", -5, 5), trial.suggest_float("rate", 1e-5, 1, log=True)
    count, step = trial.suggest_int("count", 0, 20, step=4), trial.suggest_float("step", 0, 1, step=0.25)
    size, kind = trial.suggest_int("size", 1, 1000, log=True), trial.suggest_categorical("kind", ["a", "b", None])
    trial.suggest_float("fixed", 3, 3)
    return (
        (real - 2) ** 2 + np.log10(rate / 1e-3) ** 2 + ((count - 12) / 4) ** 2 + (4 * step - 3) ** 2
        + np.log(size / 40) ** 2 + (0 if kind == "b" else 2)
    )  # fmt: skip


def study_of(seed=0, **options):
    settings = {key: options.pop(key) for key in ("direction", "storage", "study_name") if key in options}
    return optuna.create_study(sampler=LowvarSampler(seed=seed, **options), load_if_exists=True, **settings)


def params(study, skip=1):
    return [trial.params for trial in study.trials[skip:]]


def places(study):
    return [tuple(trial.system_attrs[PLACE][1:]) for trial in study.trials if PLACE in trial.system_attrs]


def test_a_function_of_reals():
    study = study_of()
    study.optimize(sphere, n_trials=250)
    assert study.best_value < 1e-4  # random points, as many: 0.1
    assert places(study)[:3] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]


def test_parameters_of_all_kinds():
    study = study_of()
    study.optimize(mixed, n_trials=600)
    best = study.best_params
    assert (best["count"], best["step"], best["kind"]) == (12, 0.75, "b")
    assert study.best_value < 1e-2
    for trial in study.trials:
        assert trial.params["count"] in range(0, 21, 4)
        assert isinstance(trial.params["count"], int)
        assert trial.params["step"] in (0, 0.25, 0.5, 0.75, 1)
        assert trial.params["fixed"] == 3
    early = study.trials[1:40]
    assert {trial.params["kind"] for trial in early} == {"a", "b", None}
    assert min(trial.params["size"] for trial in early) < 10 < 100 < max(trial.params["size"] for trial in early)


def test_to_maximise_is_to_minimise_the_opposite():
    up, down = study_of(direction="maximize"), study_of()
    up.optimize(lambda trial: -sphere(trial), n_trials=60)
    down.optimize(sphere, n_trials=60)
    assert params(up, 0) == params(down, 0)
    assert up.best_value == -down.best_value


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_study_from_a_storage_goes_on(kind, tmp_path):
    """With a new sampler each time, in the middle of generations."""

    def storage():
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/study.db"
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        return optuna.storages.JournalStorage(backend)

    whole = study_of(study_name="s")
    whole.optimize(mixed, n_trials=32)
    for n_trials in (5, 1, 17, 9):
        parts = study_of(storage=storage(), study_name="s")
        parts.optimize(mixed, n_trials=n_trials)
    assert params(parts, 0) == params(whole, 0)


def test_the_seed_is_the_study_s_name():
    first, again, other = (study_of(seed=None, study_name=name) for name in ("a", "a", "b"))
    for study in (first, again, other):
        study.enqueue_trial({f"x{i}": 0.0 for i in range(3)})
        study.optimize(sphere, n_trials=5)
    assert params(first) == params(again) != params(other)


def test_trials_end_in_any_order():
    """The next generation depends on the values alone; workers that have no point of it get some of a second search."""
    names = [f"x{i}" for i in range(3)]
    space = {name: optuna.distributions.FloatDistribution(-5, 5) for name in names}
    found = []
    for order in (1, -1):
        study = study_of(population=8)
        study.add_trial(optuna.trial.create_trial(params=dict.fromkeys(names, 0.0), distributions=space, value=3.0))
        trials = [study.ask(space) for _ in range(11)]
        assert places(study) == [*((0, 0, row) for row in range(8)), *((1, 0, row) for row in range(3))]
        assert len({tuple(trial.params.values()) for trial in trials}) == 11
        for trial in trials[::order]:
            study.tell(trial, sum((trial.params[name] - 1) ** 2 for name in names))
        found.append(study.ask(space).params)
        assert places(study)[-1] == (0, 1, 0)
    assert found[0] == found[1]


def test_two_workers():
    study, at_once, most, lock = study_of(), [], [], threading.Lock()

    def slow(trial):
        value = sphere(trial)
        with lock:
            at_once.append(trial.number)
            most.append(len(at_once))
        time.sleep(0.002 * (trial.number % 3))
        with lock:
            at_once.remove(trial.number)
        return value

    study.optimize(slow, n_trials=300, n_jobs=2)
    assert max(most) == 2
    assert study.best_value < 1e-4
    assert len(set(places(study))) == len(places(study)) >= 298
    assert sum(place[0] == 0 for place in places(study)) > 200


def test_failed_and_pruned_trials_are_the_worst():
    """With a boundary beyond which the function fails or prunes, the search finds the minimum beside it."""
    study = study_of()

    def failing(trial):
        value, x = sphere(trial), trial.params["x0"]
        if x > 1.5:
            raise ArithmeticError
        if x > 1.2:
            raise optuna.TrialPruned
        return float("nan") if trial.params["x1"] > 1.5 else value

    study.optimize(failing, n_trials=300, catch=(ArithmeticError,))
    states = [trial.state.name for trial in study.trials]
    assert {"FAIL", "PRUNED", "COMPLETE"} == set(states)
    assert study.best_value < 1e-4
    assert len(set(places(study))) == len(places(study))  # none was asked again


def test_a_point_whose_trial_never_ends_is_asked_again():
    whole, killed = study_of(population=6), study_of(population=6)
    whole.optimize(sphere, n_trials=25)
    killed.optimize(sphere, n_trials=4)
    lost = killed.ask()
    sphere(lost)
    killed.optimize(sphere, n_trials=25)
    assert places(killed).count((0, 0, 3)) == 2
    first = [trial.params for trial in whole.trials if trial.system_attrs.get(PLACE, [1, 1])[1] == 0]
    after = [trial.params for trial in killed.trials if trial.system_attrs.get(PLACE, [1, 1])[1] == 0]
    after.remove(lost.params)
    assert [one in first for one in after] == [True] * len(after)
    assert len(after) > 12


def test_parameters_that_not_all_trials_have():
    """They go to the independent sampler, with one warning; the others are searched."""

    def conditional(trial):
        x = trial.suggest_float("x", -5, 5)
        kind = trial.suggest_categorical("kind", ["one", "two"])
        inner = trial.suggest_float("inner one", 0, 1) if kind == "one" else trial.suggest_int("inner two", 0, 9)
        trial.suggest_float("moving", 0, 1 + abs(x))
        return (x - 1) ** 2 + (kind == "one") + inner

    study = study_of(independent_sampler=optuna.samplers.RandomSampler(seed=1))
    with pytest.warns(UserWarning, match="RandomSampler") as caught:
        study.optimize(conditional, n_trials=150)
    assert len(caught) == 1
    assert study.best_value < 0.05
    assert study.best_params["kind"] == "two"
    inner = [trial.params["inner two"] for trial in study.trials if "inner two" in trial.params]
    assert set(inner) == set(range(10))


def test_a_usual_study_has_no_warning():
    study = study_of()
    study.enqueue_trial({"x0": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(sphere, n_trials=40)


def test_enqueued_trials_are_evaluated_as_they_are():
    plain, queued = study_of(), study_of()
    plain.optimize(sphere, n_trials=30)
    queued.optimize(sphere, n_trials=5)
    queued.enqueue_trial({f"x{i}": float(i) for i in range(3)})
    queued.enqueue_trial({"x1": 4.0})
    queued.optimize(sphere, n_trials=27)
    assert queued.trials[5].params == {"x0": 0.0, "x1": 1.0, "x2": 2.0}
    assert queued.trials[6].params["x1"] == 4.0
    assert [*params(queued)[:4], *params(queued)[6:]] == params(plain)


def test_another_search_starts_elsewhere_after_one_that_converged():
    """Two valleys: the nearer to the middle is not the deeper."""

    def valleys(trial):
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        return min((x - 0.4) ** 2 + (y - 0.4) ** 2, (x - 0.9) ** 2 + (y - 0.9) ** 2 - 0.02)

    study = study_of()
    study.optimize(valleys, n_trials=1500)
    assert places(study)[-1][0] > 0
    assert study.best_value < -0.019  # 0 in the valley of the first search


def test_few_points_end_a_search_too():
    """A domain of six points: each is found, though a search soon has one of them only."""
    study = study_of()
    study.optimize(lambda trial: trial.suggest_categorical("k", list("abcdef")) != "e", n_trials=400)
    assert study.best_params == {"k": "e"}
    assert places(study)[-1][0] > 0


def test_trials_of_other_settings_are_not_learned_from():
    plain = study_of(seed=1)
    plain.optimize(sphere, n_trials=30)
    study = study_of(seed=0)
    study.optimize(sphere, n_trials=15)
    study.sampler = LowvarSampler(seed=1)
    with pytest.warns(UserWarning, match="sampler"):
        study.optimize(sphere, n_trials=29)
    assert params(study, 15) == params(plain)


def test_a_sampler_of_two_studies_and_its_pickle():
    first, second = study_of(), study_of()
    first.optimize(sphere, n_trials=30)
    second.sampler = first.sampler
    second.optimize(lambda trial: -sphere(trial), n_trials=15)
    alone = study_of()
    alone.optimize(lambda trial: -sphere(trial), n_trials=15)
    copied = pickle.loads(pickle.dumps(alone.sampler))
    for study in (second, alone):
        study.enqueue_trial(second.trials[0].params)
    assert places(second) == places(alone)
    searched = [trial.params for trial in second.trials if PLACE in trial.system_attrs]
    assert searched[0] == params(alone)[0]
    more = study_of()
    more.sampler = copied
    more.optimize(sphere, n_trials=10)
    assert params(more)[0] == params(alone)[0]


@pytest.mark.parametrize(
    "wrong", [{"bounds": (0, 1)}, {"integers": [0]}, {"domain": "binary"}, {"sigma0": 1.0}, {"noisy": "yes"}]
)
def test_what_the_study_has_is_refused_at_once(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        LowvarSampler(**wrong)


def test_a_choice_may_be_nan():
    def f(trial):
        choice = trial.suggest_categorical("k", [1.0, float("nan"), 3.0])
        return (trial.suggest_float("x", -5, 5) - 2) ** 2 + (choice != 3.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        study = study_of()
        study.optimize(f, n_trials=100)
    assert len({repr(sorted(trial.params.items())) for trial in study.trials}) > 90
    assert study.best_value < 0.1


def test_settings():
    with pytest.raises(UserError, match="seed"):
        LowvarSampler(seed=-1)
    with pytest.raises(UserError, match="populaton"):
        LowvarSampler(populaton=4)
    with pytest.raises(UserError, match="ingo_binary"):
        LowvarSampler(method="ingo_binary")
    noisy, named, plain = study_of(noisy=True), study_of(method="ingo_path"), study_of()
    for study in (noisy, named, plain):
        study.optimize(sphere, n_trials=40)
    assert params(noisy) == params(named) != params(plain)


def test_constraints_and_several_objectives():
    study = study_of()

    def constrained(trial):
        trial.set_constraint("c", 1.0)
        return sphere(trial)

    with pytest.warns(UserWarning, match="constraints"):
        study.optimize(constrained, n_trials=1)
    several = optuna.create_study(directions=["minimize", "minimize"], sampler=LowvarSampler())
    with pytest.raises(ValueError, match="multi-objective"):
        several.optimize(lambda trial: (sphere(trial), 0.0), n_trials=2)


def test_without_optuna():
    code = (
        "import sys; sys.modules['optuna'] = None\ntry: import lowvar.search.optuna\nexcept ValueError as e: print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "lowvar[optuna]" in said
    assert len(said.splitlines()) == 1
