"""Scores at the draws of a NumPyro, Stan or PyMC model, the second input of ``integrate``."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lowvar.errors import UserError, check_known
from lowvar.integrals.inputs import is_dataset, is_mcmc, is_pymc, is_stan
from lowvar.integrals.sites import by_site, place, rows_of, stored
from lowvar.vi.fit import Fit


def scores(
    model: Any,
    data: Mapping[str, Any] | None = None,
    draws: Any = None,
    *,
    params: "Mapping[str, Any] | Fit | None" = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior draws of a model as unconstrained points, and the gradient of the log density at them.

    The density is that of the unconstrained coordinates, with the Jacobian of each site's transformation, as NUTS
    samples it; for NumPyro on all rows of the data, whatever the ``subsample_size`` of a plate. Deterministic sites,
    transformed parameters and generated quantities in ``draws`` are left out.

    Args:
        model: a NumPyro model; BridgeStan's ``StanModel``; a ``pymc.Model``; or a NumPyro ``MCMC`` that has run, with
            its own model, data and draws. Or draws whose sampler stored the gradients, without a model: nutpie's, with
            ``store_gradient=True`` and ``store_unconstrained=True``; an ``MCMC`` of a ``potential_fn`` that ran with
            ``extra_fields=("z_grad",)``.
        data: keyword arguments of a NumPyro model, as ``MCMC.run(key, **data)`` takes them. The others hold theirs.
        draws: what a sampler returns: NumPyro's ``MCMC``, ArviZ's ``DataTree`` or ``InferenceData`` (its posterior), or
            a mapping of latent sites to arrays ``(m, ...)`` or ``(chains, draws, ...)``, e.g. ``MCMC.get_samples()``.
        params: values of the model's ``numpyro.param`` sites, by name: a ``Fit`` or its ``params``, whose parameters of
            the guide are left out.

    Returns:
        Points and scores, ``(m, d)``, or ``(chains, draws, d)`` if the draws have chains. Those of NumPyro are in the
        precision of JAX: enable float64 before sampling (``numpyro.enable_x64()``), since a control variate is only as
        exact as its inputs.

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
    if is_mcmc(model) or is_dataset(model):
        kind = "an MCMC has its own model, data and draws" if is_mcmc(model) else "these draws are no model"
        if data is not None or draws is not None:
            raise UserError(f"scores: {kind}; give scores({'mcmc' if is_mcmc(model) else 'draws'}) alone")
        if (own := stored(model)) is not None:
            return own
        if not is_mcmc(model):
            raise UserError(
                "scores: these draws have no stored gradients (nutpie stores them with store_gradient=True and "
                "store_unconstrained=True); give their model, with draws=..."
            )
        model, data, draws = _of_mcmc(model)
    elif (stan := is_stan(model)) or is_pymc(model):
        if data is not None or params is not None:
            given, kind = "data" if params is None else "params", "a StanModel" if stan else "a PyMC model"
            raise UserError(f"{given}: {kind} has its own data; give the draws alone, with draws=...")
        return (stan_scores if stan else pymc_scores)(model, by_site(draws))
    return _numpyro_scores(model, {} if data is None else data, by_site(draws), params)


def _of_mcmc(mcmc: Any) -> tuple[Callable, dict[str, Any], Any]:
    """The model, the keyword arguments that it ran with, and the draws of an ``MCMC``."""
    model = getattr(mcmc.sampler, "model", None)
    if not callable(model):
        raise UserError(
            f"scores: the sampler of this MCMC ({type(mcmc.sampler).__name__}) has no model; give the model, data and "
            "draws, or arrays of draws and of their scores"
        )
    by_site(mcmc)  # refuses one that has not run
    try:
        bound = inspect.signature(model).bind(*mcmc._args, **mcmc._kwargs)
        data = dict(bound.arguments)
        for parameter in inspect.signature(model).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                data.update(data.pop(parameter.name, {}))
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) and parameter.name in data:
                raise TypeError(f"{parameter.name} cannot be given by name")
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"scores: the arguments that this MCMC ran with are not known by name ({error}); give lowvar.scores(model, "
            "data, mcmc)"
        ) from error
    return model, data, mcmc


def _numpyro_scores(model, data, draws: dict[str, Any], params) -> tuple[np.ndarray, np.ndarray]:
    from numpyro import handlers
    from numpyro.infer.util import potential_energy, unconstrain_fn

    from lowvar.vi.numpyro.trace import RUNNING, AllRows, jax_arguments, plain, prototype, run_on

    name = getattr(getattr(model, "func", model), "__name__", "model")
    model, data = plain(model), jax_arguments(model, data, name)
    trace = prototype(AllRows(model), data, name)
    model = handlers.substitute(AllRows(model), data=_values(trace, params, name))
    sites, leading = _sites(trace, draws, name)

    def at(one):
        with RUNNING:  # where this is traced
            free = unconstrain_fn(model, (), data, one)
            point, unravel = ravel_pytree(free)
            slope = jax.grad(lambda x: -potential_energy(model, (), data, unravel(x)))(point)
        return free, point, slope, unravel(slope)

    with run_on(name):
        free, points, slope, of_sites = jax.jit(jax.vmap(at))(sites)
    _check_finite(free, leading, "the value is outside its support, or not finite")
    _check_finite(of_sites, leading, "the gradient of the log density is not finite; check the draw and the data")
    shape = (*leading, points.shape[1])
    return np.asarray(points, np.float64).reshape(shape), np.asarray(slope, np.float64).reshape(shape)


def _values(trace, params, name) -> dict[str, Any]:
    """The values of the ``numpyro.param`` sites of ``trace``, out of ``params``."""
    from lowvar.vi.guides.forms import JOINT
    from lowvar.vi.numpyro.model import transform
    from lowvar.vi.numpyro.trace import as_array

    given = params.params if isinstance(params, Fit) else {} if params is None else params
    if not isinstance(given, Mapping):
        raise UserError(
            f"params: give a mapping of numpyro.param sites to values, or a Fit, not {type(params).__name__}"
        )
    own = {key: site["value"] for key, site in trace.items() if site["type"] == "param"}
    of_guide = {f"{key}_auto_{end}" for key in _latent(trace) for end in ("loc", "scale")} | set(JOINT)
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
    from lowvar.vi.numpyro.trace import is_latent

    return [key for key, site in trace.items() if is_latent(site)]


def _sites(trace, draws, name) -> tuple[dict[str, jax.Array], tuple[int, ...]]:
    """The draws of the latent sites of ``trace``, floating, one row for each, and their axes."""
    from lowvar.vi.numpyro.trace import as_array

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
    for key in draws:
        if key in trace and trace[key]["type"] == "param":
            raise UserError(f"draws: {key!r} is a parameter (numpyro.param); give its value in params")
        check_known("site", key, [*latent, *(k for k in trace if trace[k]["type"] == "deterministic")], where="draws")
    return rows_of(sites, {key: np.shape(trace[key]["value"]) for key in sites})


def _check_finite(values, leading, problem) -> None:
    """Rejects the first row of ``{site: (m, ...)}`` that is not finite."""
    for key, value in values.items():
        bad = np.flatnonzero(~np.isfinite(value).reshape(len(value), -1).all(axis=1))
        if bad.size:
            raise UserError(f"draws: site {key!r}, {place(int(bad[0]), leading)}: {problem}")


def stan_scores(model: Any, draws: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Unconstrained points and scores of the draws of a Stan model.

    The density includes the Jacobian of the constraining transforms (``jacobian=True``), as Stan samples it.

    Args:
        model: ``bridgestan.StanModel``, with its data.
        draws: parameter -> ``(m, ...)`` or ``(chains, draws, ...)``, in Stan's own shapes. Transformed parameters and
            generated quantities are left out.

    Returns:
        Points and scores, ``(m, d)`` or ``(chains, draws, d)``.

    Raises:
        UserError: the draws lack a parameter, have an unknown one or another shape; or Stan rejects a draw.

    References:
        Roualdes, Ward, Carpenter, Seyboldt and Axen, "BridgeStan: efficient in-memory access to the methods of a Stan
        model", 2023.
    """
    entries = [_entry(name) for name in model.param_names()]
    shapes: dict[str, tuple[int, ...]] = {}
    for site, index in entries:
        largest = shapes.get(site, (0,) * len(index))
        shapes[site] = tuple(max(size, at + 1) for size, at in zip(largest, index, strict=True))
    everything = dict.fromkeys(_entry(name)[0] for name in model.param_names(include_tp=True, include_gq=True))
    rows, leading = rows_of(_needed(draws, shapes, everything, "parameter"), shapes)
    flat = np.stack([rows[site][(slice(None), *index)] for site, index in entries], axis=1)
    points = np.empty((len(flat), model.param_unc_num()))
    slopes = np.empty_like(points)
    for r, one in enumerate(np.ascontiguousarray(flat)):
        try:
            points[r] = model.param_unconstrain(one)
            slopes[r] = model.log_density_gradient(points[r], propto=True, jacobian=True)[1]
        except RuntimeError as error:
            raise UserError(f"draws: {place(r, leading)}: Stan rejects this draw: {error}") from error
    return _all_finite(points, slopes, leading)


def _needed(draws: dict[str, Any], sites: Collection[str], known: Collection[str], kind: str) -> dict[str, np.ndarray]:
    """The draws of the ``sites`` that a model has, without those that are ``known`` besides."""
    for key in draws:
        check_known(kind, key, known, where="draws")
    for key in sites:
        if key not in draws:
            raise UserError(f"draws: there is no {kind} {key!r}; the model has {', '.join(sites)}")
    return {key: np.asarray(draws[key], float) for key in sites}


def _all_finite(
    points: np.ndarray, slopes: np.ndarray, leading: tuple[int, ...], entries: Collection[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Points and scores with the axes that the draws had; ``entries`` has the site of each coordinate."""
    bad = np.flatnonzero(~(np.isfinite(points) & np.isfinite(slopes)).all(axis=1))
    if bad.size:
        for site, value in zip(entries, points[bad[0]], strict=False):
            if not np.isfinite(value):
                raise UserError(
                    f"draws: {site!r}, {place(int(bad[0]), leading)}: the value is outside its support or not finite"
                )
        raise UserError(
            f"draws: {place(int(bad[0]), leading)}: the draw is outside its support or not finite, or the gradient of "
            "the log density there is not"
        )
    return points.reshape(*leading, -1), slopes.reshape(*leading, -1)


def _entry(name: str) -> tuple[str, tuple[int, ...]]:
    """The site of an entry of ``param_names`` and its index, from 0.

    >>> _entry("Sigma.2.1"), _entry("tau")
    (('Sigma', (1, 0)), ('tau', ()))
    """
    site, *index = name.split(".")
    if ":" in site or not all(part.isdigit() for part in index):
        raise UserError(
            f"draws: the Stan parameter {name!r} is a tuple or complex; give integrate arrays of "
            "model.param_unconstrain_json and model.log_density_gradient"
        )
    return site, tuple(int(part) - 1 for part in index)


def pymc_scores(model: Any, draws: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Unconstrained points and scores of the draws of a PyMC model.

    The density is that of PyMC's value variables, with the Jacobian of their transforms, as ``pm.sample`` samples it.

    Args:
        model: ``pymc.Model``, with its data.
        draws: free random variable -> ``(m, ...)`` or ``(chains, draws, ...)``. Deterministics are left out.

    Returns:
        Points and scores, ``(m, d)`` or ``(chains, draws, d)``, in the order of ``model.value_vars``.

    Raises:
        UserError: the draws lack a variable, have an unknown one or another shape; a variable is discrete; or a draw
            is outside its support.
    """
    from pymc.pytensorf import compile as compiled
    from pytensor.graph.replace import graph_replace

    variables = {rv.name: rv for rv in model.free_RVs}
    if not variables:
        raise UserError("the PyMC model has no free random variable")
    known = [*variables, *(of.name for of in model.deterministics), *(value.name for value in model.value_vars)]
    for key, rv in variables.items():
        if rv.dtype.startswith(("int", "uint", "bool")):
            raise UserError(f"draws: the variable {key!r} is discrete and has no score: marginalise it in the model")
    sizes = model.eval_rv_shapes()
    shapes = {key: tuple(int(size) for size in sizes[key]) for key in variables}
    rows, leading = rows_of(_needed(draws, variables, known, "variable"), shapes)

    constrained = {rv: rv.type(name=f"{key}_draw") for key, rv in variables.items()}
    free = []
    for rv, value in constrained.items():
        transform = model.rvs_to_transforms[rv]
        free.append(value if transform is None else transform.forward(value, *rv.owner.inputs))
    # the bounds of a transform may depend on other variables: at their draws, not at random
    free = graph_replace(free, list(constrained.items()), strict=False)
    unconstrain = compiled(list(constrained.values()), free, on_unused_input="ignore")
    values = [model.rvs_to_values[rv] for rv in variables.values()]
    slope = compiled(values, model.dlogp(vars=list(variables.values())), on_unused_input="ignore")
    points, slopes, one = [], [], []
    for r in range(len(next(iter(rows.values())))):
        one = unconstrain(*(rows[key][r].astype(rv.dtype) for key, rv in variables.items()))
        points.append(np.concatenate([np.ravel(part) for part in one]))
        slopes.append(slope(*one))
    entries = [key for key, part in zip(variables, one, strict=False) for _ in range(np.size(part))]
    return _all_finite(np.array(points, float), np.array(slopes, float), leading, entries)
