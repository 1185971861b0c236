"""The models of the house by name, for specs."""

import sys
from collections.abc import Mapping

from lowvar.errors import UserError
from lowvar.problems.split import TEST
from lowvar.registry import Registry

# factories (arrays, backend, name, **options) -> problem; the module's DATA says which arrays
MODELS = Registry(
    "problem",
    {
        **{
            name: f"lowvar.problems.{name}:problem"
            for name in (
                "logistic_regression", "softmax_regression", "bradley_terry", "movielens", "ppca", "hlr", "blr",
                "blr_softmax", "bnn", "dropout",
            )
        },
        "bradley_terry_sd": "lowvar.problems.bradley_terry:problem_with_scale",
    },
    given=("arrays", "backend", "name"),
    group="lowvar.problems",
    accepts=lambda arguments: arguments[:1] == ["arrays"],
)  # fmt: skip


def build(model: str, arrays: Mapping, backend: str = "jax", name: str | None = None, **options):
    """The catalogue's ``model`` on prepared data, with options of the model's own.

    Where the data have a test part (``test_x``, ``test_y``, see ``split``) the problem has it as ``held_out``.

    Raises:
        UserError: no model has that name, the data are not its own, they have a test part that the model has no use
            for, or the backend is not there.
    """
    make = MODELS.get(model)
    needed = getattr(sys.modules[make.__module__], "DATA", ())
    if missing := [key for key in needed if key not in arrays]:
        raise UserError(
            f"{name or model}: model {model!r} needs the arrays {', '.join(needed)}; its data have "
            f"{', '.join(arrays)}, not {', '.join(missing)}"
        )
    MODELS.check_options(model, options, where=name or "")
    made = make(arrays, backend, name or model, **options)
    if getattr(made, "held_out", None) is None and any(key.startswith(TEST) for key in arrays):
        raise UserError(f"{name or model}: model {model!r} makes no use of rows for a test; leave the split out")
    return made
