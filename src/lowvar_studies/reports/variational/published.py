"""Published numbers, for claims, tables and benchmarks that compare them with ours.

Keys are models and datasets, so that they do not depend on an experiment's name for the problem; None is any dataset.

References:
    Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024.
    Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021.
"""

from typing import Any

_SONAR, _AUSTRALIAN = ("logistic_regression", "sonar"), ("logistic_regression", "australian")
_MNIST, _PPCA = ("softmax_regression", "mnist"), ("ppca", "mnist")
_TENNIS, _MOVIELENS = ("bradley_terry", "tennis"), ("movielens", "movielens")
_HLR, _BLR, _BNN = ((name, None) for name in ("hlr", "blr", "bnn"))

# Table 1: variance of the naive gradient at the end of a run of joint (V, V_n, V_eps)
VARIANCES = {
    _SONAR: {"total": 4.04e4, "subsampling": 2.02e4, "monte_carlo": 1.16e4},
    _AUSTRALIAN: {"total": 9.16e4, "subsampling": 8.61e4, "monte_carlo": 2.07e3},
    _MNIST: {"total": 4.21e8, "subsampling": 3.21e8, "monte_carlo": 1.75e4},
    _PPCA: {"total": 1.69e10, "subsampling": 1.68e10, "monte_carlo": 3.73e7},
    _TENNIS: {"total": 9.96e7, "subsampling": 9.59e7, "monte_carlo": 8.56e4},
    _MOVIELENS: {"total": 1.78e9, "subsampling": 1.69e9, "monte_carlo": 1.75e6},
}
# Table 3: milliseconds of an iteration on an Nvidia 2080 Ti; on movielens, joint is its SVRG version
MILLISECONDS = {
    _MNIST: {"naive": 10.4, "cv": 12.8, "inc": 328.0, "joint": 17.6, "full_naive": 201.0, "full_cv": 360.0},
    _PPCA: {"naive": 12.8, "cv": 18.5, "inc": 897.0, "joint": 31.2, "full_naive": 740.0, "full_cv": 1606.0},
    _TENNIS: {"naive": 10.2, "cv": 14.6, "inc": 588.0, "joint": 29.6, "full_naive": 203.0, "full_cv": 246.0},
    _MOVIELENS: {"naive": 16.3, "cv": 19.6, "joint_svrg": 24.4, "full_naive": 267.0, "full_cv": 702.0},
}

# Fujisawa and Sato, Table 3: initial step size and step schedule, as selected by optuna
SELECTED = {
    _HLR: {
        "mc": {"step_size": 0.39893},
        "rqmc": {"step_size": 0.39893},
        "mlmc": {"step_size": 0.027026, "beta": 0.862527, "r": 221},
    },
    _BLR: {
        "mc": {"step_size": 0.004735},
        "rqmc": {"step_size": 0.007780},
        "mlmc": {"step_size": 0.007438, "beta": 0.226316, "r": 458},
    },
    _BNN: {
        "mc": {"step_size": 0.007780},
        "rqmc": {"step_size": 0.007780},
        "mlmc": {"step_size": 9.062263e-6, "beta": 0.819243, "r": 253},
    },
}


def numbers(table, model: str, dataset: str) -> Any:
    """The numbers of a model on a dataset; an empty mapping if there are none."""
    model = model.removesuffix("_sd")
    return table.get((model, dataset), table.get((model, None), {}))
