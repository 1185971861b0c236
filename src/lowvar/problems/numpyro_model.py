"""Any NumPyro model with one data plate, as a ``VariationalProblem``.

The model's own ``plate(..., subsample_size=...)`` is found and its index substituted; latent sites are
substituted by their values in R^d, with the Jacobians of their constraints in the log prior.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.util import _unconstrain_reparam
from numpyro.primitives import Messenger

from lowvar.backends import get
from lowvar.errors import UserError
from lowvar.problems.variational import VariationalProblem


@dataclass(frozen=True, eq=False)
class NumPyroProblem(VariationalProblem):
    """A ``VariationalProblem`` that remembers its model.

    Attributes:
        model: the NumPyro model.
        data: its keyword arguments.
        plate: name of the data plate.
        unravel: ``z (dim,) -> {site: unconstrained value}``.
        constrain: ``z (dim,) -> {site: value}``, latent sites and deterministic ones that need no data.
    """

    model: Callable = None  # type: ignore[assignment]
    data: Mapping[str, Any] = field(default_factory=dict)
    plate: str = ""
    unravel: Callable = None  # type: ignore[assignment]
    constrain: Callable = None  # type: ignore[assignment]


class _FixedIndex(Messenger):
    """Gives the data plate ``index`` instead of a random one."""

    def __init__(self, fn, plate, index):
        self.plate, self.index = plate, index
        super().__init__(fn)

    def process_message(self, msg):
        if msg["type"] == "plate" and msg["name"] == self.plate:
            size, _ = msg["args"]
            msg["args"] = (size, self.index.shape[0])
            msg["value"] = self.index


def from_numpyro(model: Callable, data: Mapping[str, Any], *, name: str | None = None) -> NumPyroProblem:
    """The negative ELBO of ``model(**data)``.

    Args:
        model: a NumPyro model whose observations lie in one ``numpyro.plate``, indexed by it.
        data: the model's keyword arguments, as ``MCMC.run(key, **data)`` takes them.
        name: what reports call it.

    Raises:
        UserError: no data plate or several, latent variables inside it, a plate whose index the model does
            not use, or a density that is not finite at the start.
    """
    name = str(name or getattr(model, "__name__", "model"))
    if not callable(model):
        raise UserError(f"{name}: the model must be a function, not {type(model).__name__}")
    if not isinstance(data, Mapping):
        raise UserError(f"{name}: data must be a dict of the model's keyword arguments, not {type(data).__name__}")
    data = {key: _array(key, value) for key, value in data.items()}
    trace = _prototype(model, data, name)
    plate, N = _data_plate(trace, name)
    latent = {site["name"]: site for site in trace.values() if _is_latent(site)}
    for site in latent.values():
        if jnp.issubdtype(jnp.result_type(site["value"]), jnp.integer):
            raise UserError(f"{name}: latent site {site['name']!r} is discrete; marginalise it out of the model")
        if any(frame.name == plate for frame in site["cond_indep_stack"]):
            raise UserError(
                f"{name}: latent site {site['name']!r} is inside the data plate {plate!r}; a mean-field guide "
                "over all rows at once needs it outside"
            )
    if not latent:
        raise UserError(f"{name}: the model has no latent site to infer")

    free = {key: biject_to(site["fn"].support).inv(site["value"]) for key, site in latent.items()}
    start, unravel = jax.flatten_util.ravel_pytree(free)
    sites, offset = {}, 0
    for key in sorted(free):  # ravel_pytree lays dicts out in sorted order
        sites[key] = slice(offset, offset + free[key].size)
        offset += free[key].size
    dim = start.size
    # the data's precision rules: under x64 NumPyro draws its first values in float64 whatever the data are
    floating = [v.dtype for v in data.values() if isinstance(v, jax.Array) and jnp.issubdtype(v.dtype, jnp.floating)]
    dtype = jnp.result_type(*floating) if floating else start.dtype

    def traced(z, index):
        substituted = handlers.substitute(model, substitute_fn=partial(_unconstrain_reparam, unravel(z)))
        seeded = handlers.seed(_FixedIndex(substituted, plate, index), jax.random.key(0))
        return handlers.trace(seeded).get_trace(**data)

    def log_likelihood(z, index):
        rows = index.shape[0]
        if rows == N > 1:  # numpyro.subsample takes no rows when there are as many as data: ask in two parts
            return jnp.concatenate([log_likelihood(z, index[: rows // 2]), log_likelihood(z, index[rows // 2 :])])
        total = jnp.zeros(index.shape, dtype)
        for site in traced(z, index).values():
            frame = _frame(site, plate)
            if site["type"] == "sample" and frame is not None:
                # the model's own scale of the site, without the plate's N / B
                scale = 1.0 if site["scale"] is None else site["scale"] * (rows / N)
                total = total + _by_row(_log_prob(site) * scale, frame.dim, rows)
        return total

    def log_prior(z):
        # the data plate's sites are traced too, and dropped by the compiler
        total = jnp.zeros((), dtype)
        for site in traced(z, jnp.zeros(1, jnp.int32)).values():
            if site["type"] == "sample" and _frame(site, plate) is None:
                scale = site["scale"]
                total = total + jnp.sum(_log_prob(site)) * (1.0 if scale is None else scale)
        return total

    def constrain(z):
        found = traced(z, jnp.zeros(1, jnp.int32))
        return {
            key: site["value"]
            for key, site in found.items()
            if key in latent or (site["type"] == "deterministic" and _frame(site, plate) is None)
        }

    problem = NumPyroProblem(
        name, get("jax"), N, dim, log_likelihood, log_prior, sites=sites, dtype=np.dtype(dtype),
        model=model, data=data, plate=plate, unravel=unravel, constrain=constrain,
    )  # fmt: skip
    _check_density(problem)
    return problem


def _array(key, value):
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iub":
        return value.item()  # a size, as an npz file keeps it
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()  # pandas
    try:
        return jnp.asarray(value) if isinstance(value, np.ndarray | list | jax.Array) else value
    except TypeError as error:
        raise UserError(f"data: {key!r} is not an array of numbers: {error}") from error


def _is_latent(site):
    return site["type"] == "sample" and not site["is_observed"]


def _frame(site, plate):
    return next((f for f in site.get("cond_indep_stack", ()) if f.name == plate), None)


def _log_prob(site):
    return site["fn"].log_prob(site["value"]) if not site["intermediates"] else site["fn"].log_prob(
        site["value"], site["intermediates"]
    )  # fmt: skip


def _by_row(log_prob, dim, rows):
    """Sums a site's log density over everything but the plate's axis ``dim`` (negative)."""
    log_prob = jnp.moveaxis(log_prob, dim, 0)
    if log_prob.shape[0] != rows:
        log_prob = jnp.broadcast_to(log_prob, (rows, *log_prob.shape[1:]))
    return sum_rightmost(log_prob, log_prob.ndim - 1)


def _prototype(model, data, name):
    """One trace of the model, with latent values drawn as NumPyro's ``init_to_uniform`` does."""
    from numpyro.infer import init_to_uniform

    def run():
        started = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_uniform(radius=0.1))  # type: ignore[arg-type]
        return handlers.trace(started).get_trace(**data)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run()
    except TypeError as error:
        if "argument" in str(error):
            raise UserError(f"{name}: the model does not take these data ({', '.join(data)}): {error}") from error
        raise UserError(_RAISED.format(name=name, error=_one_line(error))) from error
    except ValueError as error:
        if "got invalid" in str(error):  # NumPyro's own check of a distribution's parameters
            raise UserError(f"{name}: {error} Check the priors and the data.") from error
        raise UserError(_RAISED.format(name=name, error=_one_line(error))) from error
    except Exception as error:
        raise UserError(_RAISED.format(name=name, error=_one_line(error))) from error


_RAISED = "{name}: the model cannot be run on these data: {error}"


def _one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _data_plate(trace, name):
    observed = [site for site in trace.values() if site["type"] == "sample" and site["is_observed"]]
    sizes = {site["name"]: site["args"][0] for site in trace.values() if site["type"] == "plate"}
    holding = {frame.name for site in observed for frame in site["cond_indep_stack"]}
    subsampled = {
        s["name"] for s in trace.values() if s["type"] == "plate" and s["args"][1] not in (None, s["args"][0])
    }
    plates = sorted(holding | subsampled)
    if sizes and not observed:
        raise UserError(f"{name}: the model observes nothing; pass its observations in the data too")
    if len(plates) != 1:
        found = "none" if not plates else "several: " + ", ".join(map(repr, plates))
        raise UserError(
            f"{name}: the model needs exactly one data plate around its observations and has {found}; write "
            "`with numpyro.plate('data', N, subsample_size=batch_size) as index:` and index the data by it"
        )
    return plates[0], sizes[plates[0]]


def _check_density(problem):
    """The density is finite at the start for every row, and the data really are indexed by the plate."""
    z = jnp.full(problem.dim, 0.1, problem.dtype)
    N = problem.N
    rows = np.unique(np.linspace(0, N - 1, min(7, max(1, N // 2))).astype(np.int32))
    likelihood = jax.jit(problem.log_likelihood)
    try:
        forward = likelihood(z, jnp.asarray(rows))
        backward = likelihood(z, jnp.asarray(rows[::-1]))
    except jax.errors.ConcretizationTypeError as error:
        raise UserError(
            f"{problem.name}: the model branches in Python on a value that JAX traces; use jnp.where or jax.lax.cond"
        ) from error
    except (ValueError, TypeError) as error:
        message = _NOT_INDEXED.format(name=problem.name, plate=problem.plate)
        raise UserError(f"{message} ({str(error).splitlines()[0]})") from error
    prior = float(jax.jit(problem.log_prior)(z))
    if not np.isfinite(prior):
        raise UserError(f"{problem.name}: the log prior is {prior} at the start; check the priors' parameters")
    if not np.allclose(forward, backward[::-1], rtol=1e-4, atol=1e-6, equal_nan=True):
        raise UserError(_NOT_INDEXED.format(name=problem.name, plate=problem.plate))
    for index in problem.chunks["index"]:
        values = np.asarray(likelihood(z, index))
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise UserError(
                f"{problem.name}: the log-likelihood of row {int(index[bad[0]])} is {values[bad[0]]} at the start; "
                "check that row and the likelihood's support"
            )
    _check_lengths(problem)


def _check_lengths(problem):
    """Every array that the plate indexes has its N rows: JAX itself would repeat the last row of a shorter one."""
    data = {key: np.asarray(value) if isinstance(value, jax.Array) else value for key, value in problem.data.items()}
    start = handlers.substitute(
        problem.model,
        substitute_fn=partial(_unconstrain_reparam, problem.unravel(jnp.zeros(problem.dim, problem.dtype))),
    )
    last = jnp.full(1, problem.N - 1, jnp.int32)
    try:
        handlers.trace(handlers.seed(_FixedIndex(start, problem.plate, last), jax.random.key(0))).get_trace(**data)
    except IndexError as error:
        lengths = ", ".join(f"{key} {value.shape[0]}" for key, value in data.items() if np.ndim(value))
        raise UserError(
            f"{problem.name}: the plate {problem.plate!r} has {problem.N} rows, an array has fewer: {lengths}"
        ) from error
    except Exception:  # a model that needs JAX arrays, not NumPy's, cannot be asked this way
        return


_NOT_INDEXED = (
    "{name}: the data are not indexed by the plate {plate!r}; write "
    "`with numpyro.plate({plate!r}, N, subsample_size=batch_size) as index:` and use `x[index]`, `obs=y[index]`"
)
