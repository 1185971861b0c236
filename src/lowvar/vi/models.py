"""What ``fit`` and ``decompose`` take as a model: an object that makes its own problem, or a NumPyro model."""

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.core.frames import check_index
from lowvar.core.keys import named_key
from lowvar.core.rows import in_files
from lowvar.errors import UserError
from lowvar.vi.guides.forms import from_autoguide
from lowvar.vi.numpyro.model import from_numpyro


def problem_of(model, data, *, streams: bool = False, **start):
    """The problem of a model and its data.

    Args:
        model: an object with a method ``problem(data, **start)``, such as ``TorchModel``; or a NumPyro model.
        data: keyword arguments of a NumPyro model; None for a model that holds its data.
        streams: whether rows that are in files stay there, see ``vi.numpyro.streamed``.
        start: further arguments, see ``from_numpyro``.

    Returns:
        A ``VariationalProblem`` with ``start``, ``params``, ``data`` and ``model``, and with ``named``, ``draws`` and
        ``auto_guide``, which give results in the model's own terms.

    Raises:
        UserError: the model does not permit mini-batches, see there; or it is a module of PyTorch, or Pyro's; or data
            of pandas have rows in another order.
    """
    if isinstance(model, getattr(sys.modules.get("torch.nn"), "Module", ())) and not hasattr(model, "problem"):
        raise UserError(
            f"{type(model).__name__} is a torch.nn.Module: give lowvar.TorchModel.from_module(module, inputs, "
            "log_likelihood), which adds priors, or for a Pyro model TorchModel.from_pyro(model, data)"
        )
    if _is_pyros(model):
        raise UserError(
            f"{model.__name__} is a Pyro model: give lowvar.TorchModel.from_pyro({model.__name__}, data), without data "
            "after it"
        )
    if "guide" in start:
        of_params = start.get("init_is") == "params"
        start["guide"], start["init"] = from_autoguide(start["guide"], model, start.get("init"), of_params)
    if holds_data(model):
        return model.problem(data, **start)
    if isinstance(data, Mapping):
        check_index(data)
    source, others = in_files(data) if streams else (None, {})
    if source is None:
        return from_numpyro(model, data, **start)
    from lowvar.vi.numpyro.streamed import from_files

    return from_files(model, source, others, **start)


def start_of(model, init, seed: int) -> dict[str, Any]:
    """Arguments of ``problem_of`` that define the start of a fit; ``init`` may be a ``Fit``."""
    init, name = getattr(init, "params", init), getattr(model, "name", "model")
    return {"init": init, "key": named_key(seed, getattr(model, "__name__", name), "start", 0)}


def starts(problem) -> dict[str, np.ndarray]:
    """The start of one run, ``{block: (1, length)}``."""
    return {block: value[None] for block, value in problem.start.items()}


def holds_data(model) -> bool:
    """Whether a model makes its own problem, such as ``TorchModel``; a NumPyro model is a function of its data."""
    return callable(getattr(model, "problem", None))


def _is_pyros(model) -> bool:
    """Whether a function uses Pyro, and not NumPyro."""
    if not inspect.isfunction(model):
        return False
    try:
        found = inspect.getclosurevars(model)
    except ValueError:  # a name that is not bound yet
        return False
    used = (*found.globals.values(), *found.nonlocals.values())
    names = (one.__name__ if inspect.ismodule(one) else getattr(one, "__module__", "") for one in used)
    roots = {str(name).partition(".")[0] for name in names}
    return "pyro" in roots and "numpyro" not in roots
