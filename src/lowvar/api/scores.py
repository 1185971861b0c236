"""Scores at the draws of a NumPyro model, the second input of ``integrate``."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from lowvar.errors import UserError


def scores(model: Callable, data: Mapping[str, Any], draws: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Posterior draws of a NumPyro model as unconstrained points, and the gradient of the log density at them.

    The density is that of the unconstrained coordinates, with the Jacobian of each site's transformation, as NUTS
    samples it. Deterministic sites in ``draws`` are left out.

    Args:
        model: a NumPyro model.
        data: its keyword arguments, as ``MCMC.run(key, **data)`` takes them.
        draws: latent site -> ``(m, ...)``, e.g. ``MCMC.get_samples()``.

    Returns:
        Points ``(m, d)`` and scores ``(m, d)``, in the precision of JAX: enable float64 before sampling
        (``numpyro.enable_x64()``), since a control variate is only as exact as its inputs.

    Raises:
        UserError: the draws lack a latent site, or have other shapes than the model's; a site is discrete.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> def model(y): numpyro.sample("y", dist.Normal(numpyro.sample("z", dist.Normal(0.0, 1.0)), 1.0), obs=y)
    >>> points, score = scores(model, {"y": jnp.array(2.0)}, {"z": np.array([0.0, 1.0])})
    >>> points.shape, score[:, 0].tolist()
    ((2, 1), [2.0, 0.0])
    """
    from numpyro import handlers
    from numpyro.infer.util import potential_energy, unconstrain_fn

    if not isinstance(draws, Mapping):
        raise UserError(f"draws: give a mapping of sites to arrays (mcmc.get_samples()), not a {type(draws).__name__}")
    if not isinstance(data, Mapping):
        raise UserError(f"data: give a mapping of the model's keyword arguments, not a {type(data).__name__}")
    kwargs = dict(data)
    trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(**kwargs)
    latent = [name for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]]
    for name in latent:
        if name not in draws:
            raise UserError(
                f"draws: there is no site {name!r}; the model draws {', '.join(latent)} (observed sites belong in data)"
            )
        if trace[name]["fn"].support.is_discrete:
            raise UserError(f"draws: the site {name!r} is discrete and has no score: marginalise it in the model")
    sites = {name: np.asarray(draws[name]) for name in latent}
    for name, value in sites.items():
        shape = np.shape(trace[name]["value"])
        if value.shape[1:] != shape or value.ndim < 1:
            raise UserError(
                f"draws: the site {name!r} has shape {value.shape}; it must be (m, ...) with {shape} after m, with the "
                "chains concatenated"
            )
    rows = {name: len(value) for name, value in sites.items()}
    if len(set(rows.values())) > 1:
        raise UserError(f"draws: sites have different numbers of rows: {rows}")
    free = jax.jit(jax.vmap(lambda one: unconstrain_fn(model, (), kwargs, one)))(sites)
    unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], free))[1]
    points = jax.vmap(lambda one: ravel_pytree(one)[0])(free)
    slope = jax.jit(jax.vmap(jax.grad(lambda x: -potential_energy(model, (), kwargs, unravel(x)))))
    return np.asarray(points, np.float64), np.asarray(slope(points), np.float64)
