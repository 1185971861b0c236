"""Scores at the draws of a NumPyro model, the second input of ``integrate``."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lowvar.api.fit import Fit
from lowvar.errors import UserError, check_known


def scores(
    model: Callable,
    data: Mapping[str, Any],
    draws: Mapping[str, Any],
    *,
    params: "Mapping[str, Any] | Fit | None" = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior draws of a NumPyro model as unconstrained points, and the gradient of the log density at them.

    The density is that of the unconstrained coordinates, with the Jacobian of each site's transformation, as NUTS
    samples it, on all rows of the data, whatever the ``subsample_size`` of a plate. Deterministic sites in ``draws``
    are left out.

    Args:
        model: a NumPyro model.
        data: its keyword arguments, as ``MCMC.run(key, **data)`` takes them.
        draws: latent site -> ``(m, ...)``, e.g. ``MCMC.get_samples()``.
        params: values of the model's ``numpyro.param`` sites, by name: a ``Fit`` or its ``params``, whose parameters of
            the guide are left out.

    Returns:
        Points ``(m, d)`` and scores ``(m, d)``, in the precision of JAX: enable float64 before sampling
        (``numpyro.enable_x64()``), since a control variate is only as exact as its inputs.

    Raises:
        UserError: the draws lack a latent site, have an unknown one, or other shapes than the model's; a draw lies
            outside its support; a site is discrete; ``numpyro.param`` sites without values; or a model that cannot be
            run on these data.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> def model(y): numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal(0.0, 1.0)), 1.0), obs=y)
    >>> points, score = scores(model, {"y": jnp.array(2.0)}, {"z": np.array([0.0, 1.0])})
    >>> points.shape, score[:, 0].tolist()
    ((2, 1), [2.0, 0.0])
    """
    from numpyro import handlers
    from numpyro.infer.util import potential_energy, unconstrain_fn

    from lowvar.problems.numpyro_trace import AllRows, converted, plain, prototype, run_on

    if not isinstance(draws, Mapping):
        raise UserError(f"draws: give a mapping of sites to arrays (mcmc.get_samples()), not a {type(draws).__name__}")
    name = getattr(model, "__name__", "model")
    model, data = plain(model), converted(model, data, name)
    trace = prototype(AllRows(model), data, name)
    model = handlers.substitute(AllRows(model), data=_values(trace, params, name))
    sites = _sites(trace, draws, name)
    with run_on(name):
        free = jax.jit(jax.vmap(lambda one: unconstrain_fn(model, (), data, one)))(sites)
    _check_finite(free, "the value is outside its support, or not finite")
    unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], free))[1]
    points = jax.vmap(lambda one: ravel_pytree(one)[0])(free)
    with run_on(name):
        slope = jax.jit(jax.vmap(jax.grad(lambda x: -potential_energy(model, (), data, unravel(x)))))(points)
    _check_finite(
        jax.vmap(unravel)(slope), "the gradient of the log density is not finite; check the draw and the data"
    )
    return np.asarray(points, np.float64), np.asarray(slope, np.float64)


def _values(trace, params, name) -> dict[str, Any]:
    """The values of the ``numpyro.param`` sites of ``trace``, out of ``params``."""
    from lowvar.problems.numpyro_model import transform
    from lowvar.problems.numpyro_trace import as_array

    given = params.params if isinstance(params, Fit) else {} if params is None else params
    if not isinstance(given, Mapping):
        raise UserError(
            f"params: give a mapping of numpyro.param sites to values, or a Fit, not {type(params).__name__}"
        )
    own = {key: site["value"] for key, site in trace.items() if site["type"] == "param"}
    of_guide = {f"{key}_auto_{end}" for key in _latent(trace) for end in ("loc", "scale")}
    for key in given:
        check_known("parameter", key, sorted({*own, *of_guide}), where="params")
    if missing := [key for key in own if key not in given]:
        raise UserError(
            f"{name}: the model has parameters (numpyro.param) without values: {', '.join(missing)}; give the fitted "
            "ones: params=fit.params"
        )
    values = {}
    for key in own:
        plain = jax.tree_util.all_leaves([own[key]])  # not the tree of a network
        value = jax.tree.map(
            lambda leaf, key=key: jnp.asarray(as_array(key, np.asarray(leaf), "params")), given[key],
            is_leaf=lambda one, plain=plain: plain and isinstance(one, list | tuple),
        )  # fmt: skip
        if jax.tree.map(jnp.shape, value) != (shape := jax.tree.map(jnp.shape, own[key])):
            raise UserError(f"params: {key!r} has shape {jax.tree.map(jnp.shape, value)}; the model's has {shape}")
        free = transform(trace[key], name).inv(value)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(free)):
            raise UserError(f"params: {key!r} is outside its constraint, or not finite")
        values[key] = value
    return values


def _latent(trace) -> list[str]:
    from lowvar.problems.numpyro_trace import is_latent

    return [key for key, site in trace.items() if is_latent(site)]


def _sites(trace, draws, name) -> dict[str, jax.Array]:
    """The draws of the latent sites of ``trace``, floating."""
    from lowvar.problems.numpyro_trace import as_array

    latent = _latent(trace)
    if not latent:
        raise UserError(f"{name}: the model has no latent site")
    sites = {}
    for key in latent:
        if key not in draws:
            raise UserError(
                f"draws: there is no site {key!r}; the model draws {', '.join(latent)} (observed sites belong in data)"
            )
        if trace[key]["fn"].support.is_discrete:
            raise UserError(f"draws: the site {key!r} is discrete and has no score: marginalise it in the model")
        value = jnp.asarray(as_array(key, list(draws[key]) if isinstance(draws[key], tuple) else draws[key], "draws"))
        if jnp.issubdtype(value.dtype, jnp.complexfloating):
            raise UserError(f"draws: the site {key!r} is complex; it must be real")
        sites[key] = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
        shape = np.shape(trace[key]["value"])
        if value.shape[1:] != shape or value.ndim < 1:
            raise UserError(
                f"draws: the site {key!r} has shape {value.shape}; it must be (m, ...) with {shape} after m, with the "
                "chains concatenated"
            )
    for key in draws:
        if key in trace and trace[key]["type"] == "param":
            raise UserError(f"draws: {key!r} is a parameter (numpyro.param); give its value in params")
        check_known("site", key, [*latent, *(k for k in trace if trace[k]["type"] == "deterministic")], where="draws")
    rows = {key: len(value) for key, value in sites.items()}
    if len(set(rows.values())) > 1:
        raise UserError(f"draws: sites have different numbers of rows: {rows}")
    if not rows[latent[0]]:
        raise UserError(f"draws: the site {latent[0]!r} has no rows; give at least one draw")
    return sites


def _check_finite(values, problem) -> None:
    """Rejects the first row of ``{site: (m, ...)}`` that is not finite."""
    for key, value in values.items():
        bad = np.flatnonzero(~np.isfinite(value).reshape(len(value), -1).all(axis=1))
        if bad.size:
            raise UserError(f"draws: site {key!r}, row {bad[0]}: {problem}")
