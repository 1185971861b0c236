"""Lowvar's black-box problems by name, for specs."""

import inspect

from lowvar.core.backend import Backend
from lowvar.errors import UserError
from lowvar.registry import Registry, row
from lowvar.search.problem import BlackBoxProblem

# factories (backend, dim, **options) -> BlackBoxProblem. `domain`: its kind; `program`: whether a backend compiles its
# values, rather than Python calling a simulator
FUNCTIONS = Registry(
    "function",
    {
        **dict.fromkeys(
            (
                "sphere",
                "elastic_net",
                "ellipsoid",
                "discus",
                "l1_ellipsoid",
                "l_half_ellipsoid",
                "levy",
                "rastrigin10",
            ),
            "lowvar_studies.functions.functions",
        ),
        **dict.fromkeys(
            ("bbob", "bbob_noisy"),
            row("lowvar_studies.functions.bbob", program=False, packages=("cocoex",), extra="bbob"),
        ),
        "binary_reconstruction": row("lowvar_studies.functions.functions", domain="binary"),
        "categorical_reconstruction": row("lowvar_studies.functions.functions", domain="categorical"),
        **dict.fromkeys(
            ("swimmer", "half_cheetah", "inverted_double_pendulum", "humanoid_standup"),
            row("lowvar_studies.functions.policy", program=False, packages=("gymnasium", "mujoco"), extra="rl"),
        ),
    },
    given=("backend", "dim", "name"),
    about={"domain": "real", "program": True},
    group="lowvar.problems",
    accepts=lambda arguments: arguments[:1] == ["backend"],
)


def build(function: str, backend: Backend, *, dim: int | None = None, **options) -> BlackBoxProblem:
    """The catalogue's problem called ``function``.

    Args:
        function: one of ``FUNCTIONS``.
        backend: the array library; policies, whose simulator runs on the host, do not use it.
        dim: coordinates of a point; policies imply it.
        options: options of the problem, see its factory; ``name`` overrides the default, ``function``.

    Raises:
        UserError: no problem has that name, or an option is unknown or out of range.
    """
    factory = FUNCTIONS.get(function)
    FUNCTIONS.check_options(function, {key: value for key, value in options.items() if key != "name"})
    if dim is None and inspect.signature(factory).parameters["dim"].default is inspect.Parameter.empty:
        raise UserError(f"{function} needs a dimension, for example dim=100")
    return factory(backend, dim, **options)
