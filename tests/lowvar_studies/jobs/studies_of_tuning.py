"""An experiment whose methods are tuned."""

import yaml

from lowvar_studies.jobs import commands
from lowvar_studies.jobs.common_spec import merged

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
