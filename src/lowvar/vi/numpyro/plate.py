"""The data plate of a NumPyro model, whose rows mini-batches are taken from."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers

from lowvar.errors import UserError
from lowvar.vi.numpyro.trace import FixedIndex, each, frame_of, is_latent, log_prob_of, sites_of


def data_plate(model, data, trace, name) -> tuple[str, int, str]:
    """The plate to subsample: its name, its size, and a remark for the user; without one, ``("", 1, remark)``.

    Of several plates around the observations it is the one that has a ``subsample_size``, or else one whose index
    the model uses; the largest, if there are several. The others are evaluated in full in every step.

    Raises:
        UserError: the model observes nothing.
    """
    observed = [site for site in trace.values() if site["type"] == "sample" and site["is_observed"]]
    stacks = [{frame.name for frame in site["cond_indep_stack"]} for site in observed]
    if not stacks:
        raise UserError(f"{name}: the model observes nothing; pass its observations in the data too")
    if all(map(_without_rows, observed)):
        raise UserError(f"{name}: there are no rows: the observations are empty")
    sizes = {site["name"]: site["args"][0] for site in trace.values() if site["type"] == "plate"}
    holding = set().union(*stacks)
    subsampled = {
        s["name"] for s in trace.values() if s["type"] == "plate" and s["args"][1] not in (None, s["args"][0])
    }
    pool = subsampled & holding or {one for one in holding if _is_indexed(model, data, trace, one, sizes[one])}
    if not pool and len(holding) == 1 and max(sizes[one] for one in holding) <= _FEW:
        pool = holding
    if not pool:
        series = all(map(_is_one_draw, observed)) or _is_series(model, data, trace, observed)
        return "", 1, (_ALL_ROWS if series else _ALL_ROWS + _PLATE).format(name=name)
    around = {plate for plate in pool if all(plate in stack for stack in stacks if stack)}
    plate = max(sorted(around or pool), key=sizes.__getitem__)
    apart = {one for stack in stacks if plate not in stack for one in stack}
    full = sorted((pool | apart) - {plate})
    if not full:
        return plate, sizes[plate], ""
    return plate, sizes[plate], _FULL.format(name=name, plate=plate, N=sizes[plate], full=", ".join(map(repr, full)))


def _without_rows(site) -> bool:
    """Whether a site has no values; one of ``numpyro.factor`` has an empty event alone."""
    shape, fn = jnp.shape(site["value"]), site["fn"]
    return 0 in (*shape[: len(shape) - fn.event_dim], *fn.batch_shape)


def _is_one_draw(site) -> bool:
    """Whether a site is one draw of a multivariate distribution, as of a Gaussian process, not of independent rows."""
    fn = site["fn"]
    while isinstance(fn, dist.ExpandedDistribution | dist.MaskedDistribution):
        fn = fn.base_dist
    return (
        fn.event_dim > 0 and not isinstance(fn, dist.Independent | dist.Unit) and math.prod(site["fn"].batch_shape) == 1
    )


def _is_series(model, data, trace, observed) -> bool:
    """Whether observations are in a loop, have latent values of their own, or depend on the data of others."""
    latent = {name: site["value"] for name, site in trace.items() if is_latent(site) or site["type"] == "deterministic"}
    near = {n + more for s in observed for n in jnp.shape(s["value"]) if n > 1 for more in (-1, 0, 1)}
    looped = len(observed) > _SITES or any(site["type"] == "control_flow" for site in trace.values())
    if looped or any(near.intersection(jnp.shape(value)) for value in latent.values()):
        return True

    def densities(data):
        sites = sites_of(handlers.seed(handlers.substitute(model, data=latent), jax.random.key(0)), **data)
        pairs = [(sites[site["name"]]["fn"], sites[site["name"]]["value"]) for site in observed]
        return [(fn.base_dist if isinstance(fn, dist.Independent) else fn).log_prob(value) for fn, value in pairs]

    def moved(_, leaf):  # the data of one row
        floating = isinstance(leaf, jax.Array) and leaf.ndim and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.at[len(leaf) // 2].multiply(1.01) if floating and len(leaf) in near else leaf

    try:
        pairs = zip(densities(data), densities({k: each(moved, k, v) for k, v in data.items()}), strict=True)
        changed = [np.argwhere(np.asarray(one != other)) for one, other in pairs]
    except Exception:  # any error of the model
        return False
    return any(len(np.unique(where[:, 0])) > 1 for where in changed if where.size)


_FEW, _SITES = 2, 8  # rows of a plate too small to find out whether its index is used; sites that no loop makes

_ALL_ROWS = "{name}: there is no data plate whose index the model uses, so every step uses all rows"
_PLATE = (
    "; for mini-batches write `with numpyro.plate('data', N, subsample_size=batch_size) as index:` and index the data "
    "by it"
)
_FULL = (
    "{name}: the rows of mini-batches are those of the plate {plate!r} ({N}); {full} is evaluated in full in every "
    "step. To subsample another plate, give a subsample_size to it alone"
)


def _is_indexed(model, data, trace, plate, size):
    """Whether the model can be run on another number of rows of ``plate``: without its index, shapes disagree."""
    if size == 1:
        return False  # one row broadcasts
    index = jnp.arange(size - 1 if size > 2 else size + 1) % size
    outside = {
        key: site["value"]
        for key, site in trace.items()
        if (is_latent(site) or site["type"] == "param") and frame_of(site, plate) is None
    }
    started = FixedIndex(handlers.substitute(model, data=outside), plate, index)

    def run(key):
        sites = sites_of(handlers.seed(started, key), **data)
        return [log_prob_of(site) for site in sites.values() if site["type"] == "sample"]

    try:
        jax.eval_shape(run, jax.random.key(0))
    except Exception:  # any error: of the model, of NumPyro or of JAX
        return False
    return True
