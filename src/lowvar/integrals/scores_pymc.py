"""Scores of PyMC models: their own log density of the transformed values, and its gradient."""

from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known
from lowvar.integrals.draws import place, rows_of


def pymc_scores(model: Any, draws: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Unconstrained points and scores of the draws of a PyMC model.

    The density is that of PyMC's value variables, with the Jacobian of their transforms, as ``pm.sample`` samples it.

    Args:
        model: ``pymc.Model``, with its data.
        draws: free random variable -> ``(m, ...)`` or ``(chains, draws, ...)``. Deterministics are left out.

    Returns:
        Points and scores, ``(m, d)`` or ``(chains, draws, d)``, in the order of ``model.value_vars``.

    Raises:
        UserError: the draws lack a variable, have an unknown one or another shape; a variable is discrete; or a draw
            is outside its support.
    """
    from pymc.pytensorf import compile as compiled
    from pytensor.graph.replace import graph_replace

    variables = {rv.name: rv for rv in model.free_RVs}
    if not variables:
        raise UserError("the PyMC model has no free random variable")
    known = [*variables, *(of.name for of in model.deterministics), *(value.name for value in model.value_vars)]
    for key in draws:
        check_known("variable", key, known, where="draws")
    for key, rv in variables.items():
        if rv.dtype.startswith(("int", "uint", "bool")):
            raise UserError(f"draws: the variable {key!r} is discrete and has no score: marginalise it in the model")
        if key not in draws:
            raise UserError(f"draws: there is no variable {key!r}; the model has {', '.join(variables)}")
    sizes = model.eval_rv_shapes()
    shapes = {key: tuple(int(size) for size in sizes[key]) for key in variables}
    rows, leading = rows_of({key: np.asarray(draws[key], float) for key in variables}, shapes)

    constrained = {rv: rv.type(name=f"{key}_draw") for key, rv in variables.items()}
    free = []
    for rv, value in constrained.items():
        transform = model.rvs_to_transforms[rv]
        free.append(value if transform is None else transform.forward(value, *rv.owner.inputs))
    # the bounds of a transform may depend on other variables: at their draws, not at random
    free = graph_replace(free, list(constrained.items()), strict=False)
    unconstrain = compiled(list(constrained.values()), free, on_unused_input="ignore")
    values = [model.rvs_to_values[rv] for rv in variables.values()]
    slope = compiled(values, model.dlogp(vars=list(variables.values())), on_unused_input="ignore")
    points, slopes = [], []
    for r in range(len(next(iter(rows.values())))):
        one = unconstrain(*(rows[key][r].astype(rv.dtype) for key, rv in variables.items()))
        points.append(np.concatenate([np.ravel(part) for part in one]))
        slopes.append(slope(*one))
        if not np.isfinite(points[-1]).all():
            bad = next(key for key, part in zip(variables, one, strict=True) if not np.isfinite(part).all())
            raise UserError(f"draws: site {bad!r}, {place(r, leading)}: the value is outside its support or not finite")
        if not np.isfinite(slopes[-1]).all():
            raise UserError(
                f"draws: {place(r, leading)}: the gradient of the log density is not finite; check draw and data"
            )
    found = np.array(points, float), np.array(slopes, float)
    return found[0].reshape(*leading, -1), found[1].reshape(*leading, -1)
