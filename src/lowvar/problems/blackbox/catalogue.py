"""The black-box problems of the house by name, for specs."""

import importlib
import inspect
from dataclasses import dataclass
from types import MappingProxyType

from lowvar.backends import Backend
from lowvar.errors import UserError, unknown_name
from lowvar.problems.blackbox.problem import BlackBoxProblem, Kind


@dataclass(frozen=True)
class Function:
    """A row of the catalogue, known without building the problem.

    Attributes:
        module: with a factory of the function's name, ``(backend, dim, **options) -> BlackBoxProblem``.
        kind: of its domain.
        program: whether its values are a program of a backend, and not a simulator called from Python.
    """

    module: str
    kind: Kind = "real"
    program: bool = True


FUNCTIONS = MappingProxyType(
    {
        **dict.fromkeys(
            ("sphere", "ellipsoid", "discus", "l1_ellipsoid", "l_half_ellipsoid", "levy", "rastrigin10"),
            Function("lowvar.problems.blackbox.functions"),
        ),
        "binary_reconstruction": Function("lowvar.problems.blackbox.discrete", "binary"),
        **dict.fromkeys(
            ("categorical_reconstruction", "graph_colouring"),
            Function("lowvar.problems.blackbox.discrete", "categorical"),
        ),
        **dict.fromkeys(
            ("swimmer", "half_cheetah", "inverted_double_pendulum", "humanoid_standup"),
            Function("lowvar.problems.blackbox.policy", program=False),
        ),
    }
)


def build(function: str, backend: Backend, *, dim: int | None = None, **options) -> BlackBoxProblem:
    """The catalogue's problem called ``function``.

    Args:
        function: one of ``FUNCTIONS``.
        backend: of the arrays; policies, whose simulator is on the host, do not use it.
        dim: coordinates of a point; policies imply it.
        options: of the problem, see its factory; ``name`` among them, if it is to differ from ``function``.

    Raises:
        UserError: no problem has that name, or an option is unknown or out of range.
    """
    if function not in FUNCTIONS:
        raise unknown_name("function", function, FUNCTIONS)
    factory = getattr(importlib.import_module(FUNCTIONS[function].module), function)
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise unknown_name(
                "option", option, [key for key in known if key not in ("backend", "dim")], where=function
            )
    if dim is None and known["dim"].default is inspect.Parameter.empty:
        raise UserError(f"{function} needs a dimension: dim=100, for example")
    return factory(backend, dim, **options)
