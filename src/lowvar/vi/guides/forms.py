"""A guide's start, and its parameters under the names of NumPyro's guides, in both directions; for PyTorch too.

NumPyro's joint guides lay the latent sites out in the order of the model. For a NumPyro model, ``z`` has them in
alphabetical order, with the ``numpyro.param`` sites among them. A Gaussian guide of any other kind is an
``AutoMultivariateNormal``, whose factor is that of its covariance: for ``block_diagonal`` it has zeros between sites.

A start has a user's values of sites, and a random part. This is near a centre, or far from it where the centre is a
saddle point of the likelihood. Where parts of a model are multiplied, as the factors of a matrix or the layers of a
network, the likelihood is stationary in them at 0. A fit that starts near 0 stays there for long, and leaves it in few
directions.
"""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.keys import numpy_generator
from lowvar.errors import UserError, unknown_name
from lowvar.vi.guides.gaussian import LowRank, Triangular, is_amortised
from lowvar.vi.guides.interface import Guide

BLOCK = "amortised"  # of an encoder's parameters
JOINT = LOC, TRIL, FACTOR, SCALE = "auto_loc", "auto_scale_tril", "auto_cov_factor", "auto_scale"


class Form(NamedTuple):
    """How NumPyro writes a kind of guide.

    Attributes:
        options: its arguments, from a guide.
        names: the names of its parameters, from a problem.
        written: ``(problem, vectors) -> {name: value}``.
        read: its inverse, ``(problem, {name: value}) -> vectors``, in JAX, differentiable.
    """

    options: Callable[[Any], dict[str, Any]]
    names: Callable[[Any], list[str]]
    written: Callable[[Any, Any], dict[str, Any]]
    read: Callable[[Any, Mapping[str, Any]], dict[str, Any]]


def form_of(guide: Guide) -> Form:
    """The form of a guide."""
    return _FORMS[guide.autoguide]


def autoguide(problem):
    """The guide of ``numpyro.infer.autoguide`` that accepts ``named``, set up for a NumPyro model and its data."""
    from numpyro import handlers
    from numpyro.infer import autoguide as theirs

    from lowvar.vi.numpyro.trace import RUNNING

    kind = getattr(theirs, problem.guide.autoguide)

    class OfRows(kind):
        def __call__(self, *args, **data):
            if made:
                _check_rows(problem, args, data)
            return super().__call__(*args, **data)

    OfRows.__name__ = OfRows.__qualname__ = kind.__name__
    made: list[Any] = []
    guide = (OfRows if problem.densities else kind)(problem.model, **form_of(problem.guide).options(problem.guide))
    # sets up the guide, which can then be used without the data; under jit, its sites would be in alphabetical order
    with RUNNING, jax.ensure_compile_time_eval(), handlers.block(), handlers.seed(rng_seed=0):
        guide(**problem.data)
    made.append(guide)
    return guide


def _check_rows(problem, args, data) -> None:
    """Rejects data of other rows than those of the fit, whose own latent variables the guide has.

    Rows of which the data differ are taken for the same ones, with a warning.

    Raises:
        UserError: the data plate has another size, or a subsample, whose rows the guide does not know.
    """
    from numpyro import handlers

    from lowvar.vi.numpyro.trace import RUNNING

    with RUNNING, handlers.block(), handlers.seed(rng_seed=0):
        plates = handlers.trace(problem.model).get_trace(*args, **data)
    local, N = ", ".join(problem.densities.layout.sites), problem.N
    size, rows = plates[problem.plate]["args"] if problem.plate in plates else (N, N)
    others = (
        f"for other rows give Predictive posterior_samples, the other sites of fit.sample(): it draws {local} from the "
        "prior, unless you add values, as by Amortised's function"
    )
    if size != N:
        raise UserError(
            f"{problem.name}: the guide has {local} of the fit's {N} rows, and these data have {size}; {others}"
        )
    if rows not in (None, size):
        raise UserError(
            f"{problem.name}: the guide has {local} of all {N} rows, and the plate {problem.plate!r} a subsample of "
            f"{rows} here: leave the size of a batch out"
        )
    given = inspect.signature(problem.model).bind_partial(*args, **data).arguments
    changed = [name for name, value in given.items() if _differs(value, problem.data.get(name))]
    if changed:
        warnings.warn(
            f"{problem.name}: {local} are those of the fit's {N} rows, and {', '.join(map(repr, changed))} has other "
            f"values than there: these are predictions for the same rows under other data; {others}",
            UserWarning, stacklevel=3,
        )  # fmt: skip


def _differs(value, was) -> bool:
    """Whether an array has other values than in the fit; those under a transformation of JAX are not known."""
    if isinstance(value, jax.core.Tracer) or not np.ndim(value) or np.shape(value) != np.shape(was):
        return False
    return not np.allclose(value, was, equal_nan=True)


OURS = {  # guides of NumPyro, and Pyro, and the same families of lowvar
    "AutoNormal": "mean_field", "AutoDiagonalNormal": "mean_field", "AutoMultivariateNormal": "full_rank",
    "AutoLowRankMultivariateNormal": "low_rank",
}  # fmt: skip


def from_autoguide(guide, model, init, given: bool = False) -> tuple[Any, Any]:
    """``guide`` and ``init`` with a guide of NumPyro's or Pyro's, or its class, as the guide of the same family.

    Args:
        guide: as for ``fit``; anything but such a guide is returned as it is.
        model: of the fit.
        init: of the fit, which the guide's ``init_loc_fn`` replaces.
        given: whether ``init`` has the guide's own parameters, before which its start counts for nothing.

    Raises:
        UserError: a guide of another family or of another model, or with settings that a fit does not have.
    """
    options = guide.keywords if isinstance(guide, partial) else {}
    one: Any = guide.func if isinstance(guide, partial) else guide
    kind: Any = one if isinstance(one, type) else type(one)
    if not any(parent.__name__ == "AutoGuide" and ".autoguide" in parent.__module__ for parent in kind.__mro__):
        return guide, init
    name, own = kind.__name__, kind.__module__.split(".")[0] in ("numpyro", "pyro")
    if not own or name not in OURS:
        raise UserError(
            f"guide: {name} is no guide of fit; it has those of {', '.join(OURS)}, or by name 'mean_field', "
            "'full_rank', 'block_diagonal' and 'low_rank'; for others use the library's own SVI"
        )
    if one is not kind:
        if (theirs := getattr(one, "model", None)) is not None and not _same(theirs, model):
            raise UserError(f"guide: this {name} belongs to another model than fit is given; write guide={name}")
        hidden = {"init_scale": "_init_scale"}
        options = {
            key: getattr(one, hidden.get(key, key), None) for key in ("init_loc_fn", "init_scale", "prefix", "rank")
        }
    usual = {key: one.default for key, one in inspect.signature(kind).parameters.items()}
    changed = {key: value for key, value in options.items() if value is not None and value != usual.get(key)}
    family: Any = OURS[name]
    if "rank" in changed:
        family = {"guide": family, "rank": changed.pop("rank")}
    strategy = changed.pop("init_loc_fn", None)
    changed.pop("create_plates", None)  # rows with latent variables have parameters of their own without it
    if strategy is not None and init is not None and not given:
        raise UserError(f"init: the {name} has an init_loc_fn too; give one of them")
    if given or not changed:
        return family, init if strategy is None or given else strategy
    (key, value), *_ = changed.items()
    instead = {
        "init_scale": "standard deviations start at 0.1; give others by site, as init={'w_auto_scale': ...}",
        "prefix": "the names of params have the prefix 'auto'",
    }
    raise UserError(f"guide: {name}({key}={value!r}): {instead.get(key, 'a fit has no such setting')}")


def _same(one, other) -> bool:
    """Whether two models are one; a ``TorchModel`` does not keep the Pyro model that it is from."""
    return one == other or hasattr(other, "problem")


def guide_of_params(given) -> Any:
    """The guide whose parameters a mapping has, see ``guides.gaussian.family``."""
    if isinstance(given, Mapping) and BLOCK in given:
        raise UserError(
            "params: they have the encoder of an amortised guide: give its function too, as guide=Amortised"
        )
    if isinstance(given, Mapping) and TRIL in given:
        return "full_rank"
    if isinstance(given, Mapping) and FACTOR in given and np.ndim(given[FACTOR]) == 2:
        return {"guide": "low_rank", "rank": np.shape(given[FACTOR])[1]}
    return "mean_field"


def with_encoder(guide, init, sites, local, where: str):
    """``guide``, which starts at the encoder in ``init`` if it is amortised, and ``init`` without what it replaces.

    Raises:
        UserError: values of the rows' own variables, without an encoder.
    """
    if not isinstance(init, Mapping) or BLOCK in sites:
        return guide, init
    if is_amortised(guide):
        own = [name for name in init if name.removesuffix("_auto_loc").removesuffix("_auto_scale") in local]
        if own and BLOCK not in init:
            raise UserError(f"{where}: {own[0]!r} is a variable of the rows, whose mean and scale come from Amortised")
        guide = replace(guide, params=init.get(BLOCK, guide.params))
        init = {name: value for name, value in init.items() if name not in own}
    return guide, {name: value for name, value in init.items() if name != BLOCK}


def split(init, sites, where: str) -> tuple[Any, dict[str, np.ndarray]]:
    """``init`` without the parameters of a joint guide, and these; a site may have one of their names."""
    if not isinstance(init, Mapping):
        return init, {}
    try:
        joint = {name: np.asarray(init[name], float) for name in JOINT if name in init and name not in sites}
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: the parameters of a joint guide must be arrays of numbers: {error}") from error
    return {name: value for name, value in init.items() if name not in joint}, joint


def guide_start(problem, mu, log_sigma, joint, key, where: str) -> dict[str, np.ndarray]:
    """The guide's start.

    Args:
        problem: a ``NumPyroProblem`` or ``TorchProblem``.
        mu: means, ``(dim,)``, where ``joint`` has none.
        log_sigma: logarithms of the standard deviations, ``(dim,)``, the same.
        joint: parameters of a joint guide, from ``split``. A guide of another kind starts at its means and standard
            deviations.
        key: JAX key of a random start.
        where: name of the start in messages.

    Raises:
        UserError: parameters of other shapes, or that are no Gaussian's.
    """
    if not joint:
        return problem.guide.start(mu, log_sigma, key)
    order = _order(problem)
    n, kinds = len(order), {LOC: ("n",), TRIL: ("n", "n"), FACTOR: ("n", "rank"), SCALE: ("n",)}
    needed = {LOC, TRIL} if TRIL in joint else {LOC, FACTOR, SCALE} if FACTOR in joint else {LOC}
    if missing := sorted(needed - set(joint)):
        raise UserError(f"{where}: {', '.join(missing)} is missing beside {', '.join(sorted(joint))}")
    for name, value in joint.items():
        shape = tuple(n if axis == "n" else np.shape(value)[-1:] and np.shape(value)[-1] for axis in kinds[name])
        if value.shape != shape or not np.isfinite(value).all():
            wanted = " x ".join(str(n) if axis == "n" else axis for axis in kinds[name])
            raise UserError(f"{where}: {name} has shape {value.shape}; it must have finite entries, {wanted}")
    mu, sigma = mu.copy(), np.exp(log_sigma)
    mu[order] = joint[LOC]
    spread = np.diag(joint[TRIL]) if TRIL in joint else joint.get(SCALE, np.ones(1))
    if not (spread > 0).all():
        raise UserError(f"{where}: {TRIL if TRIL in joint else SCALE} must have positive entries on its diagonal")
    factor = np.diag(sigma)
    if needed == {LOC}:  # those of an AutoDiagonalNormal or an AutoDelta
        sigma[order] = joint.get(SCALE, sigma[order])
        return problem.guide.start(mu, np.log(sigma), key)
    if TRIL in joint:
        factor[np.ix_(order, order)] = np.tril(joint[TRIL])
    else:
        W = np.zeros((problem.dim, joint[FACTOR].shape[1]))
        W[order], sigma[order] = joint[FACTOR], joint[SCALE]
        if isinstance(problem.guide, LowRank) and problem.guide.rank == W.shape[1]:
            return {"mu": mu, "log_sigma": np.log(sigma), "factor": W.ravel()}
        factor = np.concatenate([np.diag(sigma), sigma[:, None] * W], axis=1)
    if isinstance(problem.guide, Triangular):
        return problem.guide.from_factor(mu, _cholesky(factor))
    return problem.guide.start(mu, 0.5 * np.log((factor**2).sum(1)), key)


def _order(problem) -> np.ndarray:
    """The coordinates of ``z`` in the order of NumPyro's joint guides."""
    return np.concatenate([np.arange(problem.dim)[problem.sites[site]] for site in problem.latent])


def _cholesky(factor):
    """The lower triangular factor of ``factor factor'``, from a QR decomposition: as accurate as ``factor`` itself."""
    r = np.linalg.qr(factor.T, mode="r")
    return (r * np.where(np.diag(r) < 0, -1.0, 1.0)[:, None]).T


def _names(problem):
    sites = [f"{site}_auto_{end}" for site in sorted(problem.latent) for end in ("loc", "scale")]
    return [*sites, BLOCK] if problem.guide.amortised else sites


def _by_site(problem, vectors):
    numpy, guide, encoder = problem.backend.to_numpy, problem.guide, {}
    if guide.amortised:
        encoder, vectors = {BLOCK: numpy(guide.unravel(vectors[BLOCK]))}, guide.mean_field(vectors)
    loc = problem.unravel(numpy(vectors["mu"]))
    scale = problem.unravel(numpy(problem.backend.xp.exp(vectors["log_sigma"])))
    params = {f"{site}_auto_loc": loc[site] for site in sorted(problem.latent)}
    return params | {f"{site}_auto_scale": scale[site] for site in sorted(problem.latent)} | encoder


def _tril(problem, vectors):
    order, mu = _order(problem), problem.backend.to_numpy(vectors["mu"])
    matrix = np.asarray(problem.guide.matrix(vectors), float)[order]
    return {LOC: mu[order], TRIL: _cholesky(matrix).astype(mu.dtype)}


def _low_rank(problem, vectors):
    order = _order(problem)
    mu, log_sigma, factor = (problem.backend.to_numpy(vectors[block]) for block in ("mu", "log_sigma", "factor"))
    return {LOC: mu[order], FACTOR: factor.reshape(problem.dim, -1)[order], SCALE: np.exp(log_sigma)[order]}


def _from_sites(problem, given):
    if LOC in given:  # of an AutoDiagonalNormal
        at = np.argsort(_order(problem))
        return {"mu": given[LOC][at], "log_sigma": jnp.log(given[SCALE][at])}
    ends = {
        end: jnp.concatenate([jnp.ravel(given[f"{site}_auto_{end}"]) for site in problem.sites])
        for end in ("loc", "scale")
    }
    return {"mu": ends["loc"], "log_sigma": jnp.log(ends["scale"])}


def _from_tril(problem, given):
    order, L = _order(problem), given[TRIL]
    at = np.argsort(order)
    if not np.array_equal(at, np.arange(len(at))):  # with rows in another order, another factor is triangular
        r = jnp.linalg.qr(L[at].T, mode="r")
        L = (r * jnp.where(jnp.diag(r) < 0, -1.0, 1.0)[:, None]).T
    sigma = jnp.diag(L)
    lower = jnp.tril(L / sigma[:, None], -1)
    return {"mu": given[LOC][at], "log_sigma": jnp.log(sigma), "lower": lower.ravel()}


def _from_low_rank(problem, given):
    at = np.argsort(_order(problem))
    return {"mu": given[LOC][at], "log_sigma": jnp.log(given[SCALE][at]), "factor": given[FACTOR][at].ravel()}


_FORMS = {
    "AutoNormal": Form(lambda guide: {}, _names, _by_site, _from_sites),
    "AutoMultivariateNormal": Form(lambda guide: {}, lambda problem: [LOC, TRIL], _tril, _from_tril),
    "AutoLowRankMultivariateNormal": Form(
        lambda guide: {"rank": guide.rank}, lambda problem: [LOC, FACTOR, SCALE], _low_rank, _from_low_rank
    ),
}


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


def random_start(problem, centre, log_sigma, joint, near: Iterable[str], key: Any, where: str, check: Any) -> Any:
    """The problem with a start whose means are ``centre`` plus a random part, checked.

    Sites at a saddle point start far from it, unless the density is not finite there.

    Args:
        problem: without a start.
        centre: ``(dim,)``.
        log_sigma: see ``guide_start``; so are ``joint``, ``key`` and ``where``.
        joint: see there.
        near: the sites whose start has a random part, if there is a key and ``joint`` has no means.
        key: see there.
        where: see there.
        check: a ``Check``.
    """

    def at(mu):
        return replace(problem, start=guide_start(problem, mu, log_sigma, joint, key, where))

    near = [] if key is None or LOC in joint else near
    if key is None:
        first = at(centre)
        check(first, centre, near)
        return first
    rng, mu, sites = numpy_generator(key), centre.copy(), problem.sites
    draws = NEAR * rng.standard_normal(len(centre))
    for site in near:
        mu[sites[site]] += draws[sites[site]]
    first = at(mu)
    if not (saddles := check(first, centre, near)):
        return first
    draws = rng.uniform(-FAR, FAR, len(centre))
    for site in saddles:
        mu[sites[site]] = draws[sites[site]]
    far = at(mu)
    try:
        check.density(far)
    except UserError:
        return first
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
