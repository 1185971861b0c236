"""Runs that stop in the middle: an experiment that takes long enough to be killed, and the reader of its checkpoints."""

import warnings

from lowvar.core import artifact
from lowvar.errors import UserError

DATA = {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}}
GRADIENTS = {
    "problems": DATA,
    "backends": ["jax", "torch"],
    "methods": {"joint": None, "naive": None},
    "solver": {"optimizer": "adam", "step_sizes": [1e-2, 1e-3], "batch_size": 5, "epochs": 1500, "repetitions": 2},
    "decomposition": {"leader": "joint", "step_size": 1e-3, "epochs": 10, "replicates": 64, "columns": 8,
                      "points_along": 2},
    "scales": {"smoke": {"solver": {"epochs": 60}}},
}  # fmt: skip


def read_checkpoint(path, mark):
    """The arrays; a damaged checkpoint is put aside with a warning, which is raised here."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = artifact.read_checkpoint(path, mark)
    if said:
        raise UserError(str(said[0].message))
    return found
