"""Small experiments of each family, as a user writes them."""

import pytest
import yaml

from lowvar.errors import UserError
from lowvar_studies.jobs.load import FAMILIES, load_experiment
from lowvar_studies.reports.declarations import names_of

BASE = {
    "name": "small",
    "title": "A small one",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": None, "mine": {"estimator": "joint", "options": {"table": "rows"}}},
    "solver": {"step_sizes": [1e-3], "batch_size": 5, "epochs": 3},
    "decomposition": {"leader": "mine", "step_size": 1e-3, "epochs": 3},
    "scales": {"smoke": {"solver": {"epochs": 1}}},
}
SEARCH = {
    "name": "small",
    "title": "A small search",
    "family": "search",
    "backends": ["jax", "torch"],
    "problems": {
        "e": {"function": "ellipsoid", "dim": 4, "methods": ["fast_ingo", "short", "pycma"]},
        "bits": {"function": "binary_reconstruction", "dim": 8, "methods": ["ones"], "budget": 50},
    },
    "methods": {
        "fast_ingo": None,
        "ones": {"solver": "ingo_binary", "repetitions": 2},
        "short": {"solver": "ingo", "repetitions": 2},
        "pycma": {"budget": 200},
    },
    "search": {"budget": 100, "repetitions": 3},
    "scales": {"smoke": {"search": {"budget": 10}}},
}
TAKEN_APART = {"problems": ["e"], "populations": [4]}
INTEGRAL = {
    "name": "small",
    "title": "Small integrals",
    "family": "integral",
    "problems": {
        "b": {"problem": "borehole", "sizes": [10, [20, 15]]},
        "s": {
            "problem": "south",
            "options": {"variance": 1.1},
            "sizes": [10],
            "methods": {"monte_carlo": None, "stopped": {"epochs": 5}},
            "repetitions": 2,
        },
        "high": {"within": "b", "tasks": ["high"], "sizes": [12], "methods": ["monte_carlo"]},
    },
    "methods": {
        "monte_carlo": None,
        "stopped": {"integrator": "paper_cv", "options": {"epochs": 9, "record": 1}},
    },
    "estimation": {"repetitions": 3},
    "scales": {"smoke": {"estimation": {"repetitions": 1}}},
}


def tables(experiment):
    return names_of(FAMILIES[experiment.family].tables, experiment)


def figures(experiment):
    """Its figures, and the table that each is drawn from."""
    return {name: one.table for name, one in FAMILIES[experiment.family].figures_of(experiment).items()}


def write(tmp_path, changes=None, base=BASE):
    content = yaml.safe_load(yaml.safe_dump(base))
    for key, value in (changes or {}).items():
        *parents, last = key.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def assert_refused(tmp_path, changes, message, base):
    path = write(tmp_path, changes, base)
    with pytest.raises(UserError) as error:
        load_experiment(path, "quick")
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
