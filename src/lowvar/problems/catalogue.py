"""The models of the house by name, for specs."""

import importlib
import inspect
from collections.abc import Mapping
from types import MappingProxyType

from lowvar.errors import UserError, unknown_name
from lowvar.problems.split import TEST

# name -> "module:function" with `function(arrays, backend, name)`
MODELS = MappingProxyType(
    {
        "logistic_regression": "lowvar.problems.logistic_regression:problem",
        "softmax_regression": "lowvar.problems.softmax_regression:problem",
        "bradley_terry": "lowvar.problems.bradley_terry:problem",
        "bradley_terry_sd": "lowvar.problems.bradley_terry:problem_with_scale",
        "movielens": "lowvar.problems.movielens:problem",
        "ppca": "lowvar.problems.ppca:problem",
        "hlr": "lowvar.problems.hlr:problem",
        "blr": "lowvar.problems.blr:problem",
        "blr_softmax": "lowvar.problems.blr_softmax:problem",
        "bnn": "lowvar.problems.bnn:problem",
        "dropout": "lowvar.problems.dropout:problem",
    }
)


def build(model: str, arrays: Mapping, backend: str = "jax", name: str | None = None, **options):
    """The catalogue's ``model`` on prepared data, with options of the model's own.

    Where the data have a test part (``test_x``, ``test_y``, see ``split``) the problem has it as ``held_out``.

    Raises:
        UserError: no model has that name, the data are not its own, they have a test part that the model has no use
            for, or the backend is not there.
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
    made = make(arrays, backend, name or model, **options)
    if getattr(made, "held_out", None) is None and any(key.startswith(TEST) for key in arrays):
        raise UserError(f"{name or model}: model {model!r} makes no use of rows for a test; leave the split out")
    return made
