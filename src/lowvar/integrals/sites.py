"""Draws by site in place of arrays: of NumPyro's ``MCMC``, of ArviZ, of dicts; their model; integrands by name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known, kind_of
from lowvar.integrals.inputs import chain_notes, check_chains, finite_array, is_dataset, is_mcmc, is_model

# of the group sample_stats, and the option of nutpie that stores it
STORED = {"unconstrained_draw": "store_unconstrained=True", "gradient": "store_gradient=True"}


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
        if stored(mcmc) is not None and hasattr(samples, "shape"):
            return {"z": samples}
        raise UserError(
            "draws: this MCMC samples a potential_fn, which has no sites; run it with extra_fields=('z_grad',), or "
            "give arrays (chains, draws, d) of its draws and of their scores"
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
    """How many transitions diverged, and of how many; None if none did, or where the sampler does not say."""
    if is_mcmc(given):
        diverging = given.get_extra_fields().get("diverging")
    else:
        diverging = getattr(getattr(given, "sample_stats", None), "diverging", None)
    return None if diverging is None or not np.any(diverging) else (int(np.sum(diverging)), int(np.size(diverging)))


def stored(given: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Unconstrained draws and their scores, ``(chains, draws, d)``, where the sampler stored both; else None.

    nutpie stores them in ``sample_stats`` with ``store_gradient=True`` and ``store_unconstrained=True``. NumPyro's HMC
    and NUTS of a ``potential_fn`` keep its gradient, minus the score, with ``extra_fields=("z_grad",)``; their draws
    are unconstrained.

    Raises:
        UserError: one without the other, or shapes that do not go with each other or with the draws.
    """
    if is_mcmc(given):
        potential = getattr(given.sampler, "model", None) is None and getattr(given, "_states", None) is not None
        slope = given.get_extra_fields(group_by_chain=True).get("z_grad") if potential else None
        if slope is None or getattr(given.sampler, "_postprocess_fn", None) is not None:
            return None
        import jax

        draws = given.get_samples(group_by_chain=True)
        parts = [[np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (draws, slope)]
        points, slopes = (
            np.concatenate([leaf.reshape(*leaf.shape[:2], int(np.prod(leaf.shape[2:]))) for leaf in part], -1)
            for part in parts
        )
        return finite_array(points, "samples"), -finite_array(slopes, "scores (z_grad)")
    stats: Any = getattr(given, "sample_stats", None) if is_dataset(given) else None
    found = {name: stats[name] for name in STORED if name in getattr(stats, "data_vars", ())}
    if not found:
        return None
    for name, option in STORED.items():
        if name not in found:
            raise UserError(f"scores: sample_stats have {next(iter(found))!r}, but no {name!r}; set nutpie's {option}")
        if found[name].ndim != 3 or not {"chain", "draw"} <= set(found[name].dims):
            raise UserError(
                f"scores: {name!r} of sample_stats has the dimensions {', '.join(map(str, found[name].dims))}; it must "
                "have chain, draw and one of unconstrained coordinates"
            )
    points, slopes = (
        finite_array(found[name].transpose("chain", "draw", ...).to_numpy(), f"sample_stats[{name!r}]")
        for name in STORED
    )
    if points.shape != slopes.shape:
        raise UserError(f"scores: 'gradient' has shape {slopes.shape}, but 'unconstrained_draw' has {points.shape}")
    for name, draws in by_site(given).items():
        if draws.shape[:2] != points.shape[:2]:
            raise UserError(
                f"scores: the site {name!r} has {draws.shape[:2]} chains and draws, but the gradients of sample_stats "
                f"have {points.shape[:2]}"
            )
    return points, slopes


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
        rows[key] = value.reshape(int(np.prod(shape[:outer])), *event)
    if len(set(leading.values())) > 1:
        raise UserError(f"draws: sites have different numbers of draws: {leading}")
    first = next(iter(leading))
    if not len(rows[first]):
        raise UserError(f"draws: the site {first!r} has no rows; give at least one draw")
    check_chains(leading[first])
    return rows, leading[first]


def place(row: int, leading: tuple[int, ...]) -> str:
    """Where a row is, for messages."""
    if len(leading) == 1:
        return f"row {row}"
    return "chain {}, draw {}".format(*np.unravel_index(row, leading))


def arrays(samples: Any, scores: Any, values: Any, chain: bool | None, names: Any) -> tuple[tuple, list[str]]:
    """``samples, scores, values, chain, names`` with arrays in place of draws by site, and notes.

    The sixth entry says whether the scores were derived from a model.

    Raises:
        UserError: inputs that do not go together; see ``lowvar.scores`` and ``by_site``.
    """
    model = is_model(scores)
    sites, notes, own = by_site(samples), [], stored(samples) if scores is None else None
    derived = own is None and (model or scores is None)
    if not sites:
        raise UserError("samples: there are no sites")
    if isinstance(samples, Mapping) and not is_dataset(samples) and not model:
        leading = 2 if chain else 1
        points, slopes = _blocks(sites, scores, leading)
        if chain is None:
            _refuse_ambiguous(sites)
    else:
        if scores is None and own is None and not is_mcmc(samples):
            raise UserError(
                "scores: draws by site need their model: a pymc.Model, BridgeStan's StanModel, or a NumPyro model with "
                "its data (functools.partial(model, **data)); or gradients that the sampler stored, as nutpie does "
                "with store_gradient=True and store_unconstrained=True"
            )
        points, slopes = own or _from_model(samples, scores, model)
        leading = points.ndim - 1
        if found := divergences(samples):
            notes.append(f"{found[0]} of {found[1]} transitions diverged: the draws may miss a part of the posterior")
    check_chains(points.shape[:leading])
    if leading == 2:
        notes += chain_notes(np.asarray(points))
    m = int(np.prod(points.shape[:leading]))
    found, labels = _integrands(values, sites, points.shape[:leading])
    flat = points.reshape(m, -1), slopes.reshape(m, -1)
    chain = leading == 2 if chain is None else bool(chain)
    return (*flat, found, chain, labels if names is None else names, derived), notes


def _from_model(samples: Any, scores: Any, model: bool) -> tuple[np.ndarray, np.ndarray]:
    from lowvar.integrals.scores import scores as scores_of  # JAX, which arrays do not need

    if scores is None:
        return scores_of(samples)
    if model:
        return scores_of(scores, None, samples)
    if not is_mcmc(samples):
        raise UserError(
            f"scores: with draws by site, give their model, not {kind_of(scores)}; or give the unconstrained "
            "points and their scores as arrays"
        )
    points, slopes = scores_of(samples)[0], np.asarray(scores, float)
    if slopes.shape != points.shape:
        raise UserError(f"scores: their shape is {slopes.shape}, that of the unconstrained points is {points.shape}")
    return points, slopes


def _blocks(sites: Mapping[str, Any], scores: Any, leading: int) -> tuple[np.ndarray, np.ndarray]:
    """Unconstrained coordinates by name, and their scores by the same names, side by side."""
    if not isinstance(scores, Mapping):
        raise UserError(
            "scores: with samples by site, give the model; or, if the samples are unconstrained, a dict of scores with "
            "the same names"
        )
    for key in sites:
        if key not in scores:
            raise UserError(f"scores: there is none for {key!r}; give one of the same shape for each site of samples")
    for key in scores:
        check_known("site", key, list(sites), where="scores")
    columns, axes = [], {}
    for key in sites:
        both = tuple(finite_array(of[key], f"{name}[{key!r}]") for name, of in (("samples", sites), ("scores", scores)))
        shape, other = (array.shape for array in both)
        if shape != other:
            raise UserError(f"scores: {key!r} has shape {other}, but its samples have {shape}; they must agree")
        axes[key] = shape[:leading]
        if len(axes[key]) < leading:
            wanted = "(chains, draws, ...)" if leading == 2 else "(m, ...)"
            raise UserError(f"samples: {key!r} has shape {shape}; it must be {wanted}")
        columns.append([array.reshape(*axes[key], int(np.prod(shape[leading:]))) for array in both])
    if len(set(axes.values())) > 1:
        raise UserError(f"samples: sites have different numbers of draws: {axes}")
    points, slopes = (np.concatenate(of, axis=-1) for of in zip(*columns, strict=True))
    return points, slopes


def _refuse_ambiguous(sites: Mapping[str, Any]) -> None:
    """Refuses arrays ``(chains, draws, ...)`` that could be few draws of vectors, unless the user says which."""
    shapes = [np.shape(value) for value in sites.values()]
    axes = {shape[:2] for shape in shapes}
    if all(len(shape) > 1 for shape in shapes) and len(axes) == 1 and (first := axes.pop())[0] < first[1]:
        raise UserError(
            f"samples: all sites have the shape ({first[0]}, {first[1]}, ...): set chain=True if these are "
            f"{first[0]} chains of {first[1]} draws, and chain=False if they are {first[0]} draws of "
            "vectors"
        )


def _integrands(values: Any, sites: Mapping[str, Any], axes: tuple[int, ...]) -> tuple[Any, list[str] | None]:
    """Values ``(m, T)`` and names of the integrands; arrays as they are."""
    m = int(np.prod(axes))
    if values is None:
        values = list(sites)
    if isinstance(values, str):
        values = [values]
    if isinstance(values, (list, tuple)) and values and all(isinstance(one, str) for one in values):
        for name in values:
            check_known("site", name, list(sites), where="values")
        return _columns({name: sites[name] for name in values}, axes)
    if callable(values):
        values = _values_from(values, {name: _rows(name, array, axes) for name, array in sites.items()})
        axes = (m,)
    if is_dataset(values):
        values = by_site(values)
    if isinstance(values, Mapping):
        return _columns(values, axes)
    if {"chain", "draw"} <= set(getattr(values, "dims", ())):  # an xarray DataArray
        array: Any = values
        return _columns({str(array.name or "f"): array.transpose("chain", "draw", ...).to_numpy()}, axes)
    if len(axes) == 2 and np.shape(values)[:2] == axes:
        values = np.asarray(values)
        values = values.reshape(m, *values.shape[2:])
    return values, None


def _values_from(function: Callable, rows: dict[str, np.ndarray]) -> Any:
    try:
        return function(rows)
    except KeyError as error:
        raise UserError(f"values: the function asks for {error}; the sites are {', '.join(rows)}") from error


def _rows(name: str, array: Any, axes: tuple[int, ...]) -> np.ndarray:
    if np.ma.isMaskedArray(array):
        raise UserError(f"values: {name!r} is masked; remove the masked draws")
    array = np.asarray(array)
    if array.shape[: len(axes)] != axes:
        raise UserError(f"values: {name!r} has shape {array.shape}; its first axes must be {axes}, those of the draws")
    return array.reshape(int(np.prod(axes)), *array.shape[len(axes) :])


def _columns(of: Mapping[str, Any], axes: tuple[int, ...]) -> tuple[np.ndarray, list[str]]:
    """Each entry of each array as a column, named as ArviZ names it: ``w[0, 1]``."""
    columns, names = [], []
    for name, array in of.items():
        rows = _rows(str(name), array, axes)
        if rows.dtype.kind not in "fiub":
            raise UserError(f"values: {name!r} is of type {rows.dtype}; it must be real numbers")
        for index in np.ndindex(rows.shape[1:]):
            columns.append(rows[(slice(None), *index)].astype(float))
            names.append(f"{name}[{', '.join(map(str, index))}]" if index else str(name))
    if not columns:
        raise UserError("values: there are no integrands")
    return np.stack(columns, axis=1), names
