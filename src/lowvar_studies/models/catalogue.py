"""lowvar's models by name, for specs."""

import sys
from collections.abc import Mapping

from lowvar.errors import UserError
from lowvar.registry import Registry
from lowvar_studies.models.split import TEST

# factories (arrays, backend, name, **options) -> problem; the module's DATA names the arrays
MODELS = Registry(
    "problem",
    {
        **{
            name: f"lowvar_studies.models.{name}:problem"
            for name in ("logistic_regression", "bradley_terry", "movielens", "ppca", "hlr", "blr", "bnn", "dropout")
        },
        "softmax_regression": "lowvar_studies.models.logistic_regression:softmax_problem",
        "blr_softmax": "lowvar_studies.models.blr:softmax_problem",
    },
    given=("arrays", "backend", "name"),
    group="lowvar.problems",
    accepts=lambda arguments: arguments[:1] == ["arrays"],
)


def build(model: str, arrays: Mapping, backend: str = "jax", name: str | None = None, **options):
    """The catalogue's ``model`` on prepared data, with the model's options.

    Test rows in the data (``test_x``, ``test_y``, see ``split``) become the problem's ``held_out``.

    Raises:
        UserError: an unknown model, missing arrays, test rows that the model cannot use, or an unavailable backend.
    """
    make = MODELS.get(model)
    needed = getattr(sys.modules[make.__module__], "DATA", ())
    if missing := [key for key in needed if key not in arrays]:
        raise UserError(
            f"{name or model}: model {model!r} needs the arrays {', '.join(needed)}; its data have "
            f"{', '.join(arrays)}, not {', '.join(missing)}"
        )
    MODELS.check_options(model, options, where=name or "")
    built = make(arrays, backend, name or model, **options)
    if getattr(built, "held_out", None) is None and any(key.startswith(TEST) for key in arrays):
        raise UserError(f"{name or model}: model {model!r} cannot use test rows; leave the split out")
    return built
