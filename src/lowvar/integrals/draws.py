"""Draws by site, from NumPyro's ``MCMC``, ArviZ's ``DataTree`` or ``InferenceData``, and dicts; kinds of models."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError, kind_of


def is_mcmc(given: Any) -> bool:
    """Whether ``given`` is NumPyro's ``MCMC``."""
    return callable(getattr(given, "get_samples", None)) and hasattr(given, "sampler")


def is_dataset(given: Any) -> bool:
    """Whether ``given`` is ArviZ's ``DataTree`` or ``InferenceData``, or an xarray ``Dataset``."""
    return hasattr(given, "data_vars") or callable(getattr(given, "groups", None))


def is_stan(model: Any) -> bool:
    """Whether ``model`` is BridgeStan's ``StanModel``."""
    return hasattr(model, "param_unconstrain") and hasattr(model, "log_density_gradient")


def is_pymc(model: Any) -> bool:
    """Whether ``model`` is a ``pymc.Model``."""
    return hasattr(model, "free_RVs") and hasattr(model, "rvs_to_transforms")


def is_by_site(given: Any) -> bool:
    """Whether ``given`` has draws by the names of sites."""
    return is_mcmc(given) or is_dataset(given) or isinstance(given, Mapping)


def by_site(given: Any) -> dict[str, Any]:
    """Site -> draws: ``(chains, draws, ...)`` of an ``MCMC`` or a ``DataTree``; of a mapping as they are given.

    Of a ``DataTree`` or ``InferenceData`` the group ``posterior``: no warm-up.

    Raises:
        UserError: none of these, an ``MCMC`` that has not run or has no sites, no group ``posterior``, or variables
            without the dimensions ``chain`` and ``draw``.
    """
    if is_mcmc(given):
        return _of_mcmc(given)
    if is_dataset(given):
        return _of_dataset(given)
    if isinstance(given, Mapping):
        return dict(given)
    raise UserError(
        "draws: give a mapping of sites to arrays (mcmc.get_samples()), NumPyro's MCMC, or ArviZ's DataTree or "
        f"InferenceData, not {kind_of(given)}"
    )


def _of_mcmc(mcmc: Any) -> dict[str, Any]:
    if getattr(mcmc, "_states", ...) is None:
        raise UserError("draws: this MCMC has no draws yet; call its run(key, ...) first")
    samples = mcmc.get_samples(group_by_chain=True)
    if not isinstance(samples, Mapping):
        raise UserError(
            "draws: this MCMC samples a potential_fn, which has no sites; give arrays (chains, draws, d) of its draws "
            "and of their scores"
        )
    return dict(samples)


def _of_dataset(given: Any) -> dict[str, Any]:
    posterior = getattr(given, "posterior", given)
    variables = getattr(posterior, "data_vars", {})
    if not len(variables):
        held = given.groups() if callable(getattr(given, "groups", None)) else list(getattr(given, "children", ()))
        raise UserError(f"draws: there is no group 'posterior' with variables (groups: {', '.join(held) or 'none'})")
    sites = {}
    for name, array in variables.items():
        if not {"chain", "draw"} <= set(array.dims):
            raise UserError(
                f"draws: the variable {name!r} has the dimensions {', '.join(map(str, array.dims)) or 'none'}; it must "
                "have chain and draw, as in the group posterior"
            )
        sites[str(name)] = array.transpose("chain", "draw", ...).to_numpy()
    return sites


def divergences(given: Any) -> tuple[int, int] | None:
    """How many transitions diverged, and of how many; None where the sampler does not say."""
    if is_mcmc(given):
        diverging = given.get_extra_fields().get("diverging")
    else:
        diverging = getattr(getattr(given, "sample_stats", None), "diverging", None)
    return None if diverging is None else (int(np.sum(np.asarray(diverging))), int(np.size(diverging)))


def rows_of(sites: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict, tuple[int, ...]]:
    """The sites' draws with one axis of rows, and the axes that it had: ``(m,)`` or ``(chains, draws)``.

    Args:
        sites: site -> ``(m, *shape)``, or ``(chains, draws, *shape)``.
        shapes: the shape of one draw of each site.

    Raises:
        UserError: another shape, sites with different numbers of draws, or none.
    """
    rows, leading = {}, {}
    for key, value in sites.items():
        shape, event = np.shape(value), shapes[key]
        outer = len(shape) - len(event)
        if outer not in (1, 2) or shape[outer:] != event:
            raise UserError(
                f"draws: the site {key!r} has shape {shape}; it must be (m, ...) or (chains, draws, ...), with {event} "
                "in place of the dots"
            )
        leading[key] = shape[:outer]
        rows[key] = value.reshape(-1, *event)
    if len(set(leading.values())) > 1:
        raise UserError(f"draws: sites have different numbers of draws: {leading}")
    first = next(iter(leading))
    if not len(rows[first]):
        raise UserError(f"draws: the site {first!r} has no rows; give at least one draw")
    check_chains(leading[first])
    return rows, leading[first]


def check_chains(leading: tuple[int, ...]) -> None:
    """Refuses more chains than draws.

    Raises:
        UserError: the first of two axes is the longer one.
    """
    if len(leading) == 2 and leading[0] > leading[1]:
        raise UserError(
            f"draws: these are {leading[0]} chains of {leading[1]} draws; give at least as many draws as chains, with "
            "the axes (chains, draws, ...)"
        )


def place(row: int, leading: tuple[int, ...]) -> str:
    """Where a row is, for messages."""
    if len(leading) == 1:
        return f"row {row}"
    return "chain {}, draw {}".format(*np.unravel_index(row, leading))
