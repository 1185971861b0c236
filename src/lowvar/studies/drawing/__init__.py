"""Room 8: tables into pictures.

Each figure is a function from a table (pandas) to a `matplotlib.figure.Figure` that pyplot knows nothing of;
`FIGURES` lists them by name. Under the same names, `DATA` has what selects the rows of its table: those are what
`save` writes beside the picture. Which table it draws, an experiment's family says. `picture` does all three steps.
matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowvar.errors import unknown_name
from lowvar.studies.drawing.save import save
from lowvar.studies.drawing.tables import (
    Table,
    along_run,
    at_end,
    at_last_iteration,
    by_scheme,
    on_envelope,
    split_of_naive,
)
from lowvar.studies.integral.figures.boxes import boxes
from lowvar.studies.integral.figures.epochs import epochs
from lowvar.studies.integral.figures.errors import errors
from lowvar.studies.integral.figures.fits import fits
from lowvar.studies.integral.figures.integral_seconds import integral_seconds
from lowvar.studies.integral.figures.integral_tables import (
    of_epochs,
    of_errors,
    of_estimates,
    of_fits,
    of_kernels,
    of_predictive,
    of_scores,
    of_seconds,
    of_split,
)
from lowvar.studies.integral.figures.power_scores import power_scores
from lowvar.studies.integral.figures.predictive import predictive
from lowvar.studies.integral.figures.split import split
from lowvar.studies.integral.figures.stein_kernels import stein_kernels
from lowvar.studies.search.figures.curves import curves, search_seconds
from lowvar.studies.search.figures.effort import effort
from lowvar.studies.search.figures.gradients import gradients
from lowvar.studies.search.figures.profiles import profiles
from lowvar.studies.search.figures.scaling import scaling
from lowvar.studies.search.figures.search_tables import (
    along_search,
    at_target,
    by_dimension,
    in_seconds,
    of_profiles,
    search_gradients,
)
from lowvar.studies.variational.figures.along import along
from lowvar.studies.variational.figures.convergence import convergence
from lowvar.studies.variational.figures.cost import cost
from lowvar.studies.variational.figures.diagnostic_tables import (
    of_cost,
    of_fractions,
    of_points,
    of_ratios,
    of_settings,
    of_tests,
    of_variances,
)
from lowvar.studies.variational.figures.gradient_noise import points, snr, variance
from lowvar.studies.variational.figures.held_out import held_out, sizes
from lowvar.studies.variational.figures.schemes import schemes
from lowvar.studies.variational.figures.sensitivity import sensitivity
from lowvar.studies.variational.figures.shares import shares
from lowvar.studies.variational.figures.split_along import split_along
from lowvar.studies.variational.figures.steps import steps
from lowvar.studies.variational.figures.user import bars_for_user

FIGURES: dict[str, Callable[..., Any]] = {
    "shares": shares,
    "along": along,
    "split_along": split_along,
    "convergence": convergence,
    "steps": steps,
    "schemes": schemes,
    "bars_for_user": bars_for_user,
    "curves": curves,
    "profiles": profiles,
    "effort": effort,
    "scaling": scaling,
    "gradients": gradients,
    "search_seconds": search_seconds,
    "errors": errors,
    "boxes": boxes,
    "split": split,
    "fits": fits,
    "stein_kernels": stein_kernels,
    "power_scores": power_scores,
    "predictive": predictive,
    "integral_seconds": integral_seconds,
    "epochs": epochs,
    "variance": variance,
    "snr": snr,
    "points": points,
    "test": held_out,
    "cost": cost,
    "sizes": sizes,
    "sensitivity": sensitivity,
}
DATA: dict[str, Callable[..., Any]] = {
    "shares": at_end,
    "along": along_run,
    "split_along": split_of_naive,
    "convergence": on_envelope,
    "steps": at_last_iteration,
    "schemes": by_scheme,
    "bars_for_user": at_end,
    "curves": along_search,
    "profiles": of_profiles,
    "effort": at_target,
    "scaling": by_dimension,
    "gradients": search_gradients,
    "search_seconds": in_seconds,
    "errors": of_errors,
    "boxes": of_estimates,
    "split": of_split,
    "fits": of_fits,
    "stein_kernels": of_kernels,
    "power_scores": of_scores,
    "predictive": of_predictive,
    "integral_seconds": of_seconds,
    "epochs": of_epochs,
    "variance": of_variances,
    "snr": of_ratios,
    "points": of_points,
    "test": of_tests,
    "cost": of_cost,
    "sizes": of_fractions,
    "sensitivity": of_settings,
}
_SELECTING = ("x", "blocks", "of", "backend", "target", "baseline", "task", "sizes")  # keywords that choose rows


def picture(name: str, table: Table, stem: str | os.PathLike, **options: Any) -> list[Path]:
    """Draws one figure of the registry and saves it with the rows that it shows.

    Args:
        name: one of `FIGURES`.
        table: what that figure draws.
        stem: path without its ending.
        options: the figure's own keywords, e.g. ``x="seconds"``.

    Returns:
        The paths of the vector, the bitmap and the csv.

    Raises:
        UserError: an unknown name, a missing column, or a folder that cannot be written.
    """
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    known = list(inspect.signature(FIGURES[name]).parameters)[1:]
    for option in options:
        if option not in known:
            raise unknown_name("option", option, known, where=f"figure {name}")
    selecting = {key: value for key, value in options.items() if key in _SELECTING}
    return save(FIGURES[name](table, **options), stem, DATA[name](table, **selecting))


__all__ = [
    "DATA",
    "FIGURES",
    "along",
    "bars_for_user",
    "boxes",
    "convergence",
    "cost",
    "curves",
    "effort",
    "epochs",
    "errors",
    "fits",
    "gradients",
    "held_out",
    "integral_seconds",
    "picture",
    "points",
    "power_scores",
    "predictive",
    "profiles",
    "save",
    "scaling",
    "schemes",
    "search_seconds",
    "sensitivity",
    "shares",
    "sizes",
    "snr",
    "split",
    "split_along",
    "stein_kernels",
    "steps",
    "variance",
]
