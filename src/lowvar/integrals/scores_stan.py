"""Scores of Stan models, by BridgeStan."""

from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known
from lowvar.integrals.draws import place, rows_of


def stan_scores(model: Any, draws: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Unconstrained points and scores of the draws of a Stan model.

    The density includes the Jacobian of the constraining transforms (``jacobian=True``), as Stan samples it.

    Args:
        model: ``bridgestan.StanModel``, with its data.
        draws: parameter -> ``(m, ...)`` or ``(chains, draws, ...)``, in Stan's own shapes. Transformed parameters and
            generated quantities are left out.

    Returns:
        Points and scores, ``(m, d)`` or ``(chains, draws, d)``.

    Raises:
        UserError: the draws lack a parameter, have an unknown one or another shape; or Stan rejects a draw.

    References:
        Roualdes, Ward, Carpenter, Seyboldt and Axen, "BridgeStan: efficient in-memory access to the methods of a Stan
        model", 2023.
    """
    entries = [_entry(name) for name in model.param_names()]
    shapes: dict[str, tuple[int, ...]] = {}
    for site, index in entries:
        largest = shapes.get(site, (0,) * len(index))
        shapes[site] = tuple(max(size, at + 1) for size, at in zip(largest, index, strict=True))
    everything = dict.fromkeys(_entry(name)[0] for name in model.param_names(include_tp=True, include_gq=True))
    for key in draws:
        check_known("parameter", key, list(everything), where="draws")
    for key in shapes:
        if key not in draws:
            raise UserError(f"draws: there is no parameter {key!r}; the model has {', '.join(shapes)}")
    rows, leading = rows_of({key: np.asarray(draws[key], float) for key in shapes}, shapes)
    flat = np.stack([rows[site][(slice(None), *index)] for site, index in entries], axis=1)
    points = np.empty((len(flat), model.param_unc_num()))
    slopes = np.empty_like(points)
    for r, one in enumerate(np.ascontiguousarray(flat)):
        try:
            points[r] = model.param_unconstrain(one)
            slopes[r] = model.log_density_gradient(points[r], propto=True, jacobian=True)[1]
        except RuntimeError as error:
            raise UserError(f"draws: {place(r, leading)}: Stan rejects this draw: {error}") from error
        if not (np.isfinite(points[r]).all() and np.isfinite(slopes[r]).all()):
            raise UserError(
                f"draws: {place(r, leading)}: the draw is outside its support or not finite, or the gradient of the "
                "log density there is not"
            )
    return points.reshape(*leading, -1), slopes.reshape(*leading, -1)


def _entry(name: str) -> tuple[str, tuple[int, ...]]:
    """The site of an entry of ``param_names`` and its index, from 0.

    >>> _entry("Sigma.2.1"), _entry("tau")
    (('Sigma', (1, 0)), ('tau', ()))
    """
    site, *index = name.split(".")
    if ":" in site or not all(part.isdigit() for part in index):
        raise UserError(
            f"draws: the Stan parameter {name!r} is a tuple or complex; give integrate arrays of "
            "model.param_unconstrain_json and model.log_density_gradient"
        )
    return site, tuple(int(part) - 1 for part in index)
