"""Any NumPyro model as a ``VariationalProblem``.

Finds the model's own ``plate(..., subsample_size=...)`` and substitutes its index. Latent sites get values from R^d,
with the Jacobians of their constraints in the log prior. ``numpyro.param`` sites are further coordinates of the same
vector, without prior and without noise: point estimates.

With ``obs_mask``, NumPyro splits a site into an observed and a latent one; each entry has the one or the other. Where
nothing else depends on the latent one, its density integrates to one: leaving it out integrates it out exactly. It need
not be continuous then, and no guide has to approximate it. Otherwise it is a latent variable of the rows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.infer.util import helpful_support_errors
from numpyro.primitives import Messenger

from lowvar.core.jax import BACKEND, array, unraveled
from lowvar.core.keys import named_key
from lowvar.core.rows import native
from lowvar.errors import UserError
from lowvar.vi.descent import MeanFieldOfRows, OfBatch, Rows
from lowvar.vi.guides import forms as guide_forms
from lowvar.vi.guides.forms import fill, random_start
from lowvar.vi.guides.gaussian import NO_NOISE, MeanField, family, is_amortised
from lowvar.vi.numpyro.trace import (
    AllRows,
    Densities,
    FixedIndex,
    frame_of,
    is_latent,
    jax_arguments,
    leaves,
    log_prob_of,
    plain,
    prototype,
    roundings,
    sites_of,
)
from lowvar.vi.variational import VariationalProblem

_WIDE = 200  # numbers of a data row, from which on it counts for several
_SCALE = 0.1  # standard deviations of the guide at the start, as AutoNormal's


@dataclass(frozen=True, eq=False)
class NumPyroProblem(VariationalProblem):
    """A ``VariationalProblem`` with its NumPyro model.

    Attributes:
        model: the NumPyro model.
        data: its keyword arguments.
        plate: name of the data plate; empty if all rows count as one, without subsampling.
        params: names of the ``numpyro.param`` sites, which are point estimates.
        latent: names of the latent sites, in the order of the model.
        start: start of a fit, the guide's parameters.
        unravel: ``z (dim,) -> {site: unconstrained value}``.
        constrain: ``z (dim,) -> {site: value}``, latent sites and deterministic ones that need no data.
        values: ``z (dim,) -> {param: value}``, constrained.
        log_joint: ``(z (dim,), index (B,)) -> ((B,), ())``, nats: ``log_likelihood`` and ``log_prior`` from one run of
            the model.
        remarks: sentences for the user on how the model is subsampled.
        roundings: sentences on data whose differences single precision rounds.
        densities: the model's, if it has latent variables in the data plate.
        transforms: the bijections from R^d to the supports, by site.
    """

    model: Callable = None  # type: ignore[assignment]
    data: Mapping[str, Any] = field(default_factory=dict)
    plate: str = ""
    params: tuple[str, ...] = ()
    latent: tuple[str, ...] = ()
    start: Mapping[str, np.ndarray] = field(default_factory=dict)
    unravel: Callable = None  # type: ignore[assignment]
    constrain: Callable = None  # type: ignore[assignment]
    values: Callable = None  # type: ignore[assignment]
    log_joint: Callable = None  # type: ignore[assignment]
    remarks: tuple[str, ...] = ()
    roundings: tuple[str, ...] = ()
    densities: Densities | None = None
    transforms: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows_of_pass(self) -> int:
        """As in ``VariationalProblem``; without a data plate, the length of the longest array.

        Where rows are wide, as many as the data have times ``_WIDE`` numbers: a pass takes as long.
        """
        arrays = [np.shape(one) for one in leaves(self.data).values() if np.ndim(one)]
        rows = self.N if self.plate else max([1, *(shape[0] for shape in arrays)])
        return max(rows, sum(map(math.prod, arrays)) // _WIDE)

    @property
    def local(self) -> Rows | None:
        """As in ``VariationalProblem``."""
        return self.densities.layout.rows if self.densities and type(self.guide) is MeanField else None

    def of_batch(self, size: int) -> VariationalProblem:
        """The problem as a step with ``size`` rows sees it: with variables of the rows in the plate, see ``OfBatch``.

        Guides with correlations, which tie the rows together, have no such part, and of a guide of the user's own it
        is not known: they compute with all rows.
        """
        if self.densities is None or not (self.local or self.guide.amortised):
            return self
        rows, noiseless = self.densities.layout.rows, None
        if self.noiseless is not None:
            noiseless = np.append(self.noiseless[rows.shared], np.zeros(rows.dim_of(size) - len(rows.shared), bool))
        return OfBatch(
            self.name, self.backend, self.N, rows.dim_of(size), self.densities.likelihood_of_batch,
            self.densities.prior_of_batch, dtype=self.dtype, noiseless=noiseless, whole=self, rows=rows,
            family=lambda batch: MeanFieldOfRows(batch.dim, batch.backend, batch.noiseless),
        )  # fmt: skip

    def energy(self, z, index, weight):
        """As in ``VariationalProblem``, from one run of the model."""
        likelihood, prior = self.log_joint(z, index)
        return -self.N * jnp.sum(weight * likelihood) - prior

    def named(self, guide_params) -> dict[str, Any]:
        """The guide's parameters under the names of NumPyro's guides, and the model's under their own."""
        vectors = {block: self.backend.asarray(value) for block, value in guide_params.items()}
        values = self.values(self.guide.point(vectors)["mu"]) if self.params else {}
        return guide_forms.form_of(self.guide).written(self, vectors) | jax.tree.map(np.asarray, values)

    @property
    def names(self) -> list[str]:
        """The names of the guide's parameters in ``named``."""
        return guide_forms.form_of(self.guide).names(self)

    def draws(self, z) -> dict[str, np.ndarray]:
        """Values of the sites that need no data, ``{site: (S, ...)}``, at the points ``z (S, dim)``."""
        return {site: np.asarray(value) for site, value in jax.jit(jax.vmap(self.constrain))(z).items()}

    def auto_guide(self, guide_params):
        """The guide of ``numpyro.infer.autoguide`` that accepts the parameters that ``named`` gives."""
        return guide_forms.autoguide(self)


def from_numpyro(
    model: Callable,
    data: Mapping[str, Any],
    *,
    name: str | None = None,
    init: Callable | Mapping[str, Any] | None = None,
    init_is: str = "init",
    key=None,
    guide: Any = "mean_field",
) -> NumPyroProblem:
    """The negative ELBO of ``model(**data)``.

    Args:
        model: a NumPyro model. The plate that its data are indexed by is subsampled, see ``data_plate``; other plates
            may lie around the observations too, and their sums belong to the row. Latent sites in the data plate have
            values for all its rows, of which a batch uses its own.
        data: the model's keyword arguments, as ``MCMC.run(key, **data)`` takes them.
        name: name in reports.
        init: start of a fit: one of NumPyro's strategies, such as ``init_to_median``; or values of sites, or the
            parameters of an ``AutoNormal`` or of a joint guide of NumPyro's, by name. Latent sites that it leaves out
            start near 0 in their unconstrained space, or far if 0 is a saddle point, see ``random_start``;
            ``numpyro.param`` sites at their own values.
        init_is: name of ``init`` in error messages.
        key: JAX key of that start; exactly 0 if not given.
        guide: see ``guides.gaussian.family``.

    Raises:
        UserError: a model without observations, rows whose log-likelihood depends on the other rows of a batch, random
            numbers or mutable state outside sample statements, or a density that is not finite at the start.
    """
    from lowvar.vi.numpyro.checks import NumPyroCheck

    name = str(name or getattr(model, "__name__", "model"))
    given = data
    model, data = plain(model), jax_arguments(model, data, name)
    if not isinstance(init, Callable | Mapping | None):
        raise UserError(
            f"init: give a strategy such as numpyro.infer.init_to_median, a dict of values by site, or a Fit, "
            f"not {type(init).__name__}"
        )
    trace = prototype(model, data, name, init if callable(init) else None, key)
    model, unused = without_unused(model, data, trace)
    plate, N, remark = data_plate(model, data, trace, name)
    subsample_size = trace[plate]["args"][1] if plate else None
    # with all rows, for the values of latent sites in the plate
    whole = FixedIndex(model, plate, array(np.arange(N, dtype=np.int32))) if plate else AllRows(model)
    sizes = {site["name"]: site["args"][0] for site in trace.values() if site["type"] == "plate"}
    frames = {frame for site in trace.values() if is_latent(site) for frame in site["cond_indep_stack"]}
    if any(frame.name == plate or frame.size != sizes[frame.name] for frame in frames):
        trace = prototype(whole, data, name, init if callable(init) else None, key)
    trace = {key: site for key, site in trace.items() if key not in unused}
    latent = {site["name"]: site for site in trace.values() if is_latent(site)}
    params = {site["name"]: site for site in trace.values() if site["type"] == "param"}
    _check_sites(trace, latent, params, plate, N, name)

    transforms = {key: transform(site, name) for key, site in (latent | params).items()}
    # only the shapes, where the start has no values of the prototype
    free = {
        key: transforms[key].inv(site["value"]) if key in params or callable(init)
        else jax.tree.map(lambda of: np.zeros(of.shape, of.dtype), jax.eval_shape(transforms[key].inv, site["value"]))
        for key, site in (latent | params).items()
    }  # fmt: skip
    # use the data's precision: under x64, NumPyro draws its first values in float64 for data of any precision
    arrays = [leaf for leaf in leaves(data).values() if isinstance(leaf, jax.Array)]
    floating = [leaf.dtype for leaf in arrays if jnp.issubdtype(leaf.dtype, jnp.floating)]
    dtype = jnp.result_type(*floating) if floating else jnp.result_type(*jax.tree.leaves(free))
    dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.zeros(()).dtype
    free = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), free)
    first = np.concatenate([np.zeros(0, dtype), *map(np.ravel, jax.tree.leaves(free))])
    unravel = unraveled(free)
    sites, offset = {}, 0
    for site in sorted(free):  # ravel_pytree lays dicts out in sorted order
        size = sum(leaf.size for leaf in jax.tree.leaves(free[site]))
        sites[site] = slice(offset, offset + size)
        offset += size
    sites = {site: where for site, where in sites.items() if where.start < where.stop}
    params = {site: params[site] for site in params if site in sites}
    point = np.zeros(first.size, bool)
    for site in params:
        point[sites[site]] = True

    def values(z):
        sites_at = unravel(z)
        return {site: transforms[site](sites_at[site]) for site in params}

    local = {
        key: frame.dim - transforms[key].domain.event_dim
        for key, site in latent.items()
        if (frame := frame_of(site, plate)) is not None
    }
    where = f"{name}: {init_is}"
    guide, init = guide_forms.with_encoder(guide, init, sites, local, where)
    densities = Densities(model, data, plate, N, transforms, dtype, local, free)

    names = frozenset(latent)  # the sites themselves hold a trace

    def constrain(z):
        sites_at = densities.traced(z, jnp.arange(N if local else 1, dtype=jnp.int32))
        return {
            key: site["value"]
            for key, site in sites_at.items()
            if key in names or (site["type"] == "deterministic" and frame_of(site, plate) is None)
        }

    problem = NumPyroProblem(
        name, BACKEND, N, first.size, densities.log_likelihood,
        lambda z: densities.log_prior(z, jnp.zeros(1, jnp.int32)),
        sites=sites, dtype=np.dtype(dtype), noiseless=point if params else None, model=model, data=data, plate=plate,
        params=tuple(params), latent=tuple(site for site in latent if site in sites), unravel=unravel,
        constrain=constrain, values=values, log_joint=densities.log_joint, family=family(guide),
        remarks=(remark,) if remark else (), roundings=roundings(given, data, name),
        subsample_size=None if subsample_size == N else subsample_size,
        densities=densities if local else None, transforms=transforms,
    )  # fmt: skip
    init, joint = guide_forms.split(init, sites, where)
    centre, log_sigma, near = _start(name, transforms, first, point, sites, init, init_is)
    encoded = local if is_amortised(guide) else {}
    near = [site for site in near if site not in encoded]
    return random_start(problem, centre, log_sigma, joint, near, key, where, NumPyroCheck(densities))


def transform(site, name):
    """The bijection from R^d to a site's support."""
    if site["type"] == "param":
        return biject_to(site["kwargs"].get("constraint", constraints.real))
    try:
        with helpful_support_errors(site, raise_warnings=True):
            return biject_to(site["fn"].support)
    except NotImplementedError as error:
        raise UserError(f"{name}: latent site {site['name']!r}: {' '.join(str(error).split())}") from error


def _check_sites(trace, latent, params, plate, N, name):
    """Rejects sites that a guide cannot represent."""
    if mutable := [site["name"] for site in trace.values() if site["type"] == "mutable"]:
        raise UserError(
            f"{name}: {mutable[0]!r} is mutable state, such as batch statistics, which changes from batch to batch; "
            "use a layer without it, such as layer normalisation"
        )
    for site in latent.values():
        if jnp.issubdtype(jnp.result_type(site["value"]), jnp.integer) or site["fn"].support.is_discrete:
            raise UserError(f"{name}: latent site {site['name']!r} is discrete; marginalise it out of the model")
    for site in params.values():
        frame = frame_of(site, plate)
        if frame is not None and site["kwargs"].get("event_dim") is not None and frame.size != N:
            raise UserError(
                f"{name}: the parameter {site['name']!r} has values for the rows of one batch only; give it one for "
                f"each row of the data: subsample_size=None in plate {plate!r} if no batch_size is given"
            )
    if not latent and not params:
        raise UserError(f"{name}: the model has no latent site to infer")
    if not latent:
        raise UserError(
            f"{name}: the model has parameters (numpyro.param) but no latent site, so there is no posterior; maximise "
            "its likelihood with an optimizer, or give a parameter a prior: numpyro.sample"
        )


def _start(name, transforms, first, point, sites, init, init_is):
    """The start without its random part: means and logarithms of standard deviations, each ``(dim,)``.

    Also the names of the latent sites that have such a part: those whose means ``init`` does not set.
    """
    mu, log_sigma = np.where(point, first, 0).astype(float), np.where(point, NO_NOISE, np.log(_SCALE))

    def unconstrained(site, value):
        value = transforms[site].inv(jax.tree.map(lambda leaf: jnp.asarray(native(leaf)), value)) if site else value
        return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(value)])

    if callable(init):
        return np.asarray(first, float), log_sigma, []
    given = fill(
        mu, log_sigma, init or {}, sites, unconstrained, free=lambda entries: not point[entries].any(),
        where=f"{name}: {init_is}",
    )  # fmt: skip
    return mu, log_sigma, [site for site, where in sites.items() if site not in given and not point[where].any()]


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
        return "", 1, _ALL_ROWS.format(name=name)
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


_FEW = 1  # a single row broadcasts, so that nobody can find out whether its index is used
_ALL_ROWS = (
    "{name}: there is no data plate whose index the model uses, so every step uses all rows; if the rows are "
    "independent, `with numpyro.plate('data', N, subsample_size=batch_size) as index:`, with data indexed by it, makes "
    "mini-batches"
)
_FULL = (
    "{name}: the rows of mini-batches are those of the plate {plate!r} ({N}); {full} is evaluated in full in every "
    "step. To subsample another plate, give a subsample_size to it alone"
)


def _is_indexed(model, data, trace, plate, size):
    """Whether the model can be run on another number of rows of ``plate``: without its index, shapes disagree."""
    if size == 1:
        return False  # one row broadcasts
    index = array(np.arange(size - 1 if size > 2 else size + 1) % size)
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
        jax.eval_shape(run, named_key(0))
    except Exception:  # any error: of the model, of NumPyro or of JAX
        return False
    return True


_SEEDS = 3  # draws of the imputed values that are compared


class Unused(Messenger):
    """A model without some latent sites: they have a value within their support, and no density."""

    def __init__(self, fn, names):
        self.names = names
        super().__init__(fn)

    def process_message(self, msg):
        """Gives the value and hides the site."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            shape = jnp.zeros(msg["fn"].shape(), jnp.result_type(float))
            msg["value"] = msg["fn"].support.feasible_like(shape)
            msg["stop"] = True


def without_unused(model, data, trace):
    """``model`` without the imputed sites that no other density depends on, and their names."""
    imputed = {
        name
        for name, site in trace.items()
        if is_latent(site) and name.endswith("_unobserved") and f"{name.removesuffix('_unobserved')}_observed" in trace
    }
    unused = {name for name in imputed if not _is_used(model, data, trace, name)}
    return (Unused(model, unused) if unused else model), unused


def _is_used(model, data, trace, name) -> bool:
    """Whether a density of the model changes with the value of a latent site, all others being equal."""
    fixed = {key: site["value"] for key, site in trace.items() if is_latent(site) and key != name}
    fixed |= {key: site["value"] for key, site in trace.items() if site["type"] in ("param", "plate")}

    def densities(seed):
        seeded = handlers.seed(handlers.substitute(model, data=fixed), jax.random.key(seed))
        sites = sites_of(seeded, **data)
        return [
            np.asarray(log_prob_of(site)) for key, site in sites.items() if site["type"] == "sample" and key != name
        ]

    first, *others = (densities(seed) for seed in range(_SEEDS))
    return not all(np.array_equal(a, b, equal_nan=True) for other in others for a, b in zip(first, other, strict=True))
