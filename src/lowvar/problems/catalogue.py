"""The models of the house by name, for specs."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from lowvar.errors import unknown_name

# name -> module with `problem(arrays, backend, name)`
MODELS = MappingProxyType({"logistic_regression": "lowvar.problems.logistic_regression"})


def build(model: str, arrays: Mapping, backend: str = "jax", name: str | None = None):
    """The catalogue's ``model`` on prepared data.

    Raises:
        UserError: no model has that name, or the backend is not there.
    """
    if model not in MODELS:
        raise unknown_name("problem", model, MODELS)
    return importlib.import_module(MODELS[model]).problem(arrays, backend, name or model)
