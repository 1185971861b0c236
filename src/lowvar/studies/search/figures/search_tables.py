"""Which rows of the tables of black-box searches a figure draws, and is saved with."""

from __future__ import annotations

import numpy as np

from lowvar.errors import UserError, unknown_name
from lowvar.studies.drawing.tables import Table, require

RUN = ("problem", "method", "backend")
BACKENDS = ("jax", "torch")
OF = {"mean": "f at the mean", "best": "best point"}
AXES = {"evaluations": "evaluations", "iteration": "iteration", "seconds": "time of one run (seconds)"}
_COLUMN = {"mean": "f", "best": "best"}
_DIM = r"_\d+$"  # the end of a problem's name that says its dimension


def along_search(curves: Table, x: str = "evaluations", of: str = "mean", backend: str | None = None) -> Table:
    """The rows that `curves` draws: every method on one backend, the same for all where possible.

    Args:
        curves: the table of gaps along searches.
        x: ``evaluations``, ``iteration`` or ``seconds``.
        of: ``mean`` or ``best``.
        backend: which; if None, each method's first of jax, torch and others.

    Raises:
        UserError: a column is missing, a name is unknown, or nothing is left.
    """
    _known(of, backend)
    if x not in AXES:
        raise unknown_name("axis", x, AXES)
    quartiles = [f"{name}_{part}" for name in dict.fromkeys(("f", _COLUMN[of])) for part in ("median", "low", "high")]
    needed = ("optimum", "budget", "evaluations", "iteration", "repetitions", "diverged", x)
    require(curves, (*RUN, *needed, *quartiles), "curves")
    return _one_backend(curves, backend, "curves")


def in_seconds(seconds: Table, of: str = "mean", backend: str | None = None) -> Table:
    """The rows that `search_seconds` draws: as `along_search`, of the table with seconds."""
    return along_search(seconds, "seconds", of, backend)


def of_profiles(profiles: Table, of: str = "mean", backend: str | None = None) -> Table:
    """The rows that `profiles` draws: those of ``mean`` or ``best``, every method on one backend.

    Raises:
        UserError: a column is missing, a name is unknown, or nothing is left.
    """
    _known(of, backend)
    require(profiles, (*RUN, "of", "evaluations_per_dim", "share", "targets", "budget_per_dim"), "profiles")
    return _one_backend(profiles[profiles["of"] == of], backend, "profiles")


def at_target(targets: Table, target: float = 1e-10, of: str = "mean", backend: str | None = None) -> Table:
    """The rows that `effort` draws: those of one target.

    Raises:
        UserError: a column is missing, a name is unknown, or the target is not in the table.
    """
    _known(of, backend)
    needed = ("of", "target", "reached", "repetitions", "budget")
    require(targets, (*RUN, *needed, *(f"evaluations_{part}" for part in ("median", "low", "high"))), "targets")
    here = np.isclose(np.log10(targets["target"].to_numpy(float)), np.log10(target), rtol=0, atol=1e-3)
    rows = targets[here & (targets["of"] == of)]
    if not len(rows):
        raise UserError(f"targets table: no target {target:g} of {of}; there are 1e4 to 1e-10 in steps of 0.2 decades")
    return _one_backend(rows, backend, "targets")


def by_dimension(targets: Table, target: float = 1e-10, of: str = "mean", backend: str | None = None) -> Table:
    """The rows that `scaling` draws: functions that were searched in several dimensions, with the fitted exponents.

    A problem is called ``{function}_{dim}``. ``exponent`` is the slope of log evaluations against log dimension by
    least squares, over the dimensions in which the median is known; NaN where that are fewer than two.

    Raises:
        UserError: as for `at_target`, or no function has several dimensions.
    """
    rows = at_target(targets, target, of, backend)
    require(rows, ("dim",), "targets")
    rows = rows.assign(function=rows["problem"].str.replace(_DIM, "", regex=True))
    several = rows.groupby("function")["dim"].transform("nunique") > 1
    rows = rows[several].sort_values("dim", kind="stable").reset_index(drop=True)
    if not len(rows):
        raise UserError("targets table: no function in several dimensions; their problems are called function_dim")
    slopes = {key: _slope(group) for key, group in rows.groupby(["function", "method", "backend"], sort=False)}
    keys = zip(rows["function"], rows["method"], rows["backend"], strict=True)
    return rows.assign(exponent=[slopes[key] for key in keys])


def search_gradients(decomposition: Table, baseline: str | None = None) -> Table:
    """The rows that `gradients` draws: one baseline.

    Args:
        decomposition: the variances of search gradients.
        baseline: which; if None, ``mean``, or the table's first if it has no ``mean``.

    Raises:
        UserError: a column is missing, or the baseline is not in the table.
    """
    needed = ("problem", "dim", "sigma", "population", "scheme", "baseline", "block", "source", "variance",
              "to_iid", "to_iid_low", "to_iid_high")  # fmt: skip
    require(decomposition, needed, "decomposition")
    known = list(decomposition["baseline"].drop_duplicates())
    chosen = baseline or ("mean" if "mean" in known else known[0])
    if chosen not in known:
        raise unknown_name("baseline", chosen, known, where="decomposition table")
    return decomposition[decomposition["baseline"] == chosen].reset_index(drop=True)


def _known(of: str, backend: str | None) -> None:
    if of not in OF:
        raise unknown_name("quantity", of, OF)


def _one_backend(table: Table, backend: str | None, what: str) -> Table:
    if backend is None:
        found = set(table["backend"])
        order = [name for name in BACKENDS if name in found] + sorted(found - set(BACKENDS))
        rank = table["backend"].map({name: place for place, name in enumerate(order)})
        first = rank.groupby([table["problem"], table["method"]], dropna=False).transform("min")
        rows = table[rank == first]
    else:
        rows = table[table["backend"] == backend]
    if not len(rows):
        raise UserError(f"{what} table: no rows of backend {backend!r}, so there is nothing to draw")
    return rows.reset_index(drop=True)


def _slope(rows: Table) -> float:
    known = rows[np.isfinite(rows["evaluations_median"]) & (rows["evaluations_median"] > 0)]
    if known["dim"].nunique() < 2:
        return float("nan")
    return float(np.polyfit(np.log(known["dim"].to_numpy(float)), np.log(known["evaluations_median"]), 1)[0])
