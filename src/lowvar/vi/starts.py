"""The start of a guide: a user's values of sites, and a random part.

The random part is near a centre, or far from it where the centre is a saddle point of the likelihood. Where parts of a
model are multiplied, as the factors of a matrix or the layers of a network, the likelihood is stationary in them at 0.
A fit that starts near 0 stays there for long, and leaves it in few directions.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lowvar.core.keys import numpy_generator
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


NEAR = 0.1  # standard deviation of the distance from the centre
FAR = 2.0  # at a saddle point: uniform between -FAR and FAR, as by NumPyro's init_to_uniform
_DIRECTIONS = 8  # in none of which the likelihood may rise at a maximum
_STEP = 0.3  # standard deviation of a step along them
_ZERO = 1e-4  # a change that counts as none, relative to changes away from the centre


def drawn_start(
    centre: np.ndarray, sites: Mapping[str, slice], near: Iterable[str], key: Any, *,
    problem_at: Callable[[np.ndarray], Any], check: Any,
) -> Any:  # fmt: skip
    """The problem with a start whose means are ``centre`` plus a random part, checked.

    Sites at a saddle point start far from it, unless the density is not finite there.

    Args:
        centre: ``(dim,)``.
        sites: entries of each site in it.
        near: the sites whose start has a random part.
        key: JAX key; None if there are none.
        problem_at: the problem whose start has some means.
        check: a ``Check``.
    """
    if key is None:
        problem = problem_at(centre)
        check(problem, centre, near)
        return problem
    rng, mu = numpy_generator(key), centre.copy()
    draws = NEAR * rng.standard_normal(len(centre))
    for site in near:
        mu[sites[site]] += draws[sites[site]]
    problem = problem_at(mu)
    if not (saddles := check(problem, centre, near)):
        return problem
    draws = rng.uniform(-FAR, FAR, len(centre))
    for site in saddles:
        mu[sites[site]] = draws[sites[site]]
    far = problem_at(mu)
    try:
        check.density(far)
    except UserError:
        return problem
    return far


def saddle_sites(
    values: Callable[[np.ndarray], Any], sites: Mapping[str, slice], centre: np.ndarray, near: Iterable[str]
) -> list[str]:
    """The sites that must not start near a centre.

    A step in such a site alone changes the log-likelihood of no row to first order: steps to either side give the same
    values. And the log-likelihood rises in some direction, if other such sites move too. So a scale that multiplies
    effects is none of them, since the effects themselves change it, nor is the mean of effects, where it only falls.

    Args:
        values: ``z (dim,) -> (B,)``, log-likelihoods of some rows.
        sites: entries of each site in ``z``.
        centre: ``(dim,)``.
        near: the sites that would start near the centre.
    """
    rng = np.random.default_rng(0)
    steps = _STEP * rng.normal(size=(_DIRECTIONS, len(centre)))

    def there(step: np.ndarray, names: Iterable[str]) -> np.ndarray:
        """The values after a step in some sites."""
        z = centre.copy()
        for name in names:
            z[sites[name]] += step[sites[name]]
        return np.asarray(values(z), float)

    all_moved, sizes = there(steps[0], near), {}
    for name in near:
        size = np.abs(all_moved - there(steps[0], [other for other in near if other != name])).max()
        if size > 0 and np.abs(there(steps[0], [name]) - there(-steps[0], [name])).max() <= _ZERO * size:
            sizes[name] = size
    found = []
    for name, size in sizes.items():
        others = [other for other in sizes if other != name]
        if max((there(step, sizes) - there(step, others)).sum() for step in steps) > _ZERO * size:
            found.append(name)
    return found
