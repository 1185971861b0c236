"""The models of the house by name, for specs."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from lowvar.errors import unknown_name

# name -> "module:function" with `function(arrays, backend, name)`
MODELS = MappingProxyType(
    {
        "logistic_regression": "lowvar.problems.logistic_regression:problem",
        "softmax_regression": "lowvar.problems.softmax_regression:problem",
        "bradley_terry": "lowvar.problems.bradley_terry:problem",
        "bradley_terry_sd": "lowvar.problems.bradley_terry:problem_with_scale",
        "movielens": "lowvar.problems.movielens:problem",
        "ppca": "lowvar.problems.ppca:problem",
        "dropout": "lowvar.problems.dropout:problem",
    }
)


def build(model: str, arrays: Mapping, backend: str = "jax", name: str | None = None, **options):
    """The catalogue's ``model`` on prepared data, with options of the model's own.

    Raises:
        UserError: no model has that name, or the backend is not there.
    """
    if model not in MODELS:
        raise unknown_name("problem", model, MODELS)
    module, function = MODELS[model].split(":")
    return getattr(importlib.import_module(module), function)(arrays, backend, name or model, **options)
