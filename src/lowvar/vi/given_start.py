"""A user's values of sites, as entries of a guide's start."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError, unknown_name

_ENDS = ("_auto_loc", "_auto_scale")  # of the names that AutoNormal gives to means and standard deviations


def fill(
    mu: np.ndarray, log_sigma: np.ndarray, given: Mapping[str, Any], sites: Mapping[str, slice],
    unconstrained: Callable[[str, Any], Any], *, free: Callable[[slice], bool] = lambda entries: True, where: str,
) -> set[str]:  # fmt: skip
    """Writes given values into the start of a mean-field guide.

    Args:
        mu: means, ``(dim,)``.
        log_sigma: logarithms of standard deviations, ``(dim,)``.
        given: values by site, or means and standard deviations of unconstrained sites by ``AutoNormal``'s names.
        sites: entries of each site.
        unconstrained: ``(site, value) -> array`` on R^d; of a mean or a standard deviation, the site is empty.
        free: whether a site's entries have a distribution, not only a value.
        where: the model and option, for messages.

    Returns:
        The sites whose means are given.

    Raises:
        UserError: an unknown site, or a value of another size, outside the site's support or not finite.
    """
    means = set()
    for name, value in given.items():
        end = next((end for end in _ENDS if name.endswith(end) and name not in sites), "")
        site = name.removesuffix(end)
        if site not in sites or (end and not free(sites[site])):
            raise unknown_name("site", name, sites, where=where)
        try:
            array = np.asarray(unconstrained("" if end else site, value), float).ravel()
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{where}: {name} is not a value of its site: {' '.join(str(error).split())}") from error
        entries = sites[site]
        if array.size != (size := entries.stop - entries.start):
            raise UserError(f"{where}: {name} has {array.size} entries, the model needs {size}")
        scale = end == "_auto_scale"
        if not np.isfinite(array).all() or (scale and not (array > 0).all()):
            raise UserError(f"{where}: {name} lies outside its support, or is not finite")
        (log_sigma if scale else mu)[entries] = np.log(array) if scale else array
        means |= set() if scale else {site}
    return means
