"""The models of the house by name, for specs."""

import importlib
import inspect
from collections.abc import Mapping
from types import MappingProxyType

from lowvar.errors import UserError, unknown_name

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
        UserError: no model has that name, the data are not its own, or the backend is not there.
    """
    if model not in MODELS:
        raise unknown_name("problem", model, MODELS)
    module, function = MODELS[model].split(":")
    make = getattr(importlib.import_module(module), function)
    needed = importlib.import_module(module).DATA
    if missing := [key for key in needed if key not in arrays]:
        raise UserError(
            f"{name or model}: model {model!r} needs the arrays {', '.join(needed)}; its data have "
            f"{', '.join(arrays)}, not {', '.join(missing)}"
        )
    try:
        inspect.signature(make).bind(arrays, backend, name, **options)
    except TypeError as error:
        raise UserError(f"{name or model}: options of model {model!r}: {error}") from error
    return make(arrays, backend, name or model, **options)
