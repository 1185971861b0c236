"""A table of posterior means and standard deviations, with the errors of both."""

import re
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from lowvar.core.frames import ROUNDING, rounded_text
from lowvar.errors import UserError, check_known, chosen_names
from lowvar.integrals.base import UNITS
from lowvar.integrals.integrate import integrate
from lowvar.integrals.sites import arrays, by_site

_ARGUMENTS = {"samples": "draws", "scores": "model", "values": "var_names"}  # of integrate, by their names here


def summary(
    draws: Any,
    model: Any = None,
    var_names: str | Iterable[str] | None = None,
    *,
    chain: bool | None = None,
    exact_scores: bool | None = None,
    kernels: bool = False,
    round_to: str | None = None,
) -> Any:
    """Posterior means and standard deviations from control variates, with standard errors of both.

    The mean of each entry, and that of its squared deviation, are those of ``lowvar.integrate``: cross-fitted
    polynomials, whose errors come from held-out draws. With the squares centred at the plain mean ``c``, the variance
    is ``E (x - c)^2 - (mean - c)^2``. The error of the standard deviation follows by the delta method; the errors of
    both terms are added as if they were fully correlated, which states no error too small.

    Args:
        draws: by site: NumPyro's ``MCMC``, ArviZ's ``DataTree`` or ``InferenceData``, or a dict of arrays ``(m, ...)``
            or ``(chains, draws, ...)``; at least 3 draws.
        model: of the draws, as the ``scores`` of ``lowvar.integrate``: a ``pymc.Model``, BridgeStan's ``StanModel``, or
            ``functools.partial(model, **data)`` of a NumPyro model; for a dict of unconstrained samples, a dict of
            their scores. None for an ``MCMC``, or where the sampler stored the gradients (see ``lowvar.scores``).
        var_names: names of sites, in the order of the rows; by default all.
        chain: see ``lowvar.integrate``.
        exact_scores: whether the scores are known to be those of the draws' density; by default, those that lowvar
            derives from a model are. Others, stored gradients too, are tested by the draws, and no error below Monte
            Carlo's is then stated: set it where the sampler took its gradients by automatic differentiation.
        kernels: whether to try kernel methods as well. They take most of the time, and seldom pay for moments.
        round_to: ``"auto"`` for text: means and standard deviations to the place of their errors' first digit, all
            others to two digits. By default numbers.

    Returns:
        A data frame with a row for each entry of each site (``site[i, j]``): ``mean``, ``sd``, their standard errors
        ``mcse_mean`` and ``mcse_sd`` (as ArviZ calls them), and ``worth_mean`` and ``worth_sd``: by how many times as
        many draws plain averages would reach the same errors. NaN errors of an entry that does not vary. Its
        ``attrs["notes"]`` are those of ``integrate``, for means and squares.

    Raises:
        UserError: an unknown site, a model that does not fit the draws, or other inputs that ``lowvar.integrate``
            refuses.

    Warns:
        UserWarning: notes on draws and scores that are not to be trusted, as ``lowvar.integrate`` has them.

    References:
        Mira, Solgi and Imparato, "Zero variance Markov chain Monte Carlo for Bayesian estimators", 2013; South, Oates,
        Mira and Drovandi, "Regularised zero-variance control variates for high-dimensional variance reduction", 2023.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(3.0, 2.0, size=1000)
    >>> table = summary({"x": x}, {"x": (3.0 - x) / 4}, exact_scores=True, round_to="auto")
    >>> table[["mean", "sd"]].loc["x"].tolist()
    ['3.000', '2.000']
    """
    import pandas as pd

    if round_to is not None:
        check_known("way to round", round_to, ROUNDING, where="summary: round_to")
    if chain is not None and not isinstance(chain, (bool, np.bool_)):
        raise UserError(f"chain {chain!r}: it must be True or False")
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            (points, scores, values, chain, names, derived), notes = arrays(
                draws, model, chosen_names("site", var_names, by_site(draws), where="summary: var_names"), chain, None
            )
            centre, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
            spread[np.ptp(values, axis=0) <= UNITS * np.finfo(float).eps * np.abs(values).max(axis=0)] = 0.0
            unit = np.where(spread > 0, spread, 1.0)
            squares = ((values - centre) / unit) ** 2
            found = integrate(
                points, scores, np.concatenate([values, squares], axis=1), chain=chain, kernels=kernels,
                names=[*names, *(f"{name} (squared deviation)" for name in names)],
                exact_scores=derived if exact_scores is None else exact_scores,
            )  # fmt: skip
        except UserError as error:
            at = re.match("|".join(_ARGUMENTS), str(error))
            raise (UserError(_ARGUMENTS[at[0]] + str(error)[at.end() :]) if at else error) from None
    for note in (*notes, *(one.message for one in raised)):
        warnings.warn(note, stacklevel=2)
    mean, square = found.value.reshape(2, -1)
    (error, of_square), (plain, plain_of_square) = (
        np.reshape(of, (2, -1)) for of in (found.standard_error, found.table["monte_carlo_se"])
    )
    shift = (mean - centre) / unit
    variance = square - shift**2
    plainly = (variance <= 0) | (found.table["method"].to_numpy()[len(names) :] == "monte_carlo")
    size = np.sqrt(np.where(plainly, 1.0, variance))  # in units of the plain standard deviation
    of_variance = np.where(plainly, plain_of_square, of_square + 2 * np.abs(shift) * error / unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = {
            "mean": mean, "sd": np.where(spread > 0, unit * size, 0.0),
            "mcse_mean": error, "mcse_sd": unit * of_variance / (2 * size),
            "worth_mean": (plain / error) ** 2, "worth_sd": (plain_of_square / of_variance) ** 2,
        }  # fmt: skip
    table = pd.DataFrame(columns, index=pd.Index(names, dtype=object))
    if round_to:
        table = rounded_text(table, {"mean": "mcse_mean", "sd": "mcse_sd"})
    table.attrs["notes"] = (*notes, *found.notes)
    return table
