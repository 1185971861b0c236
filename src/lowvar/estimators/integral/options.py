"""An integrator from its name and options, with one sentence for whatever is wrong with them."""

import ast
import functools
import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowvar.errors import UserError, unknown_name
from lowvar.estimators import INTEGRAL, integrator
from lowvar.estimators.integral.base import Integrator


def make(name: str, options: Mapping[str, Any]) -> Integrator:
    """The integrator called ``name``.

    Args:
        name: one of ``lowvar.estimators.INTEGRAL``.
        options: keyword arguments of its factory.

    Raises:
        UserError: no integrator has that name, PyTorch is missing, or an option is unknown or out of range.
    """
    check_options(name, options)
    try:
        factory = integrator(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError(f"{name} needs PyTorch: pip install 'lowvar[torch]'") from error
    try:
        return factory(**options)
    except UserError:
        raise
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{name}: it cannot be made with the options {dict(options)}: {error}") from error


@functools.cache
def options_of(name: str) -> tuple[str, ...]:
    """The options of an integrator, read from its source: reading a spec should not take the time to load PyTorch.

    Raises:
        UserError: no integrator has that name.

    >>> options_of("monte_carlo")
    ('correlated',)
    """
    if name not in INTEGRAL:
        raise unknown_name("integrator", name, INTEGRAL)
    found = importlib.util.find_spec(INTEGRAL[name])
    if found is None or found.origin is None:
        return tuple(inspect.signature(integrator(name)).parameters)
    for node in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return tuple(arg.arg for arg in (*node.args.args, *node.args.kwonlyargs))
    raise AttributeError(f"{INTEGRAL[name]} has no function {name}")


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that an integrator does not have; their values its factory refuses.

    Raises:
        UserError: one of them is unknown.
    """
    for key in options:
        if key not in options_of(name):
            raise unknown_name("option", key, options_of(name), where=name)
