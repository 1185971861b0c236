"""What ``integrate`` takes besides arrays: draws by site, a model for their scores, integrands by name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError, check_known, kind_of
from lowvar.integrals.draws import (
    by_site,
    check_chains,
    divergences,
    is_by_site,
    is_dataset,
    is_mcmc,
    is_pymc,
    is_stan,
)  # fmt: skip
from lowvar.integrals.inputs import chain_notes, real_array


def arrays(samples: Any, scores: Any, values: Any, chain: bool | None, names: Any) -> tuple[tuple, list[str]]:
    """``samples, scores, values, chain, names`` with arrays in place of draws by site, and notes.

    The sixth entry says whether the scores were derived from a model. Arrays and lists of arrays are returned as they
    are.

    Raises:
        UserError: inputs that do not go together; see ``lowvar.scores`` and ``by_site``.
    """
    model = callable(scores) or is_stan(scores) or is_pymc(scores)
    if not is_by_site(samples):
        _refuse_names(scores, values, model)
        return (samples, scores, values, bool(chain), names, False), []
    sites, notes, derived = by_site(samples), [], model or scores is None
    if not sites:
        raise UserError("samples: there are no sites")
    if isinstance(samples, Mapping) and not is_dataset(samples) and not model:
        leading = 2 if chain else 1
        points, slopes = _blocks(sites, scores, leading)
        if chain is None:
            _refuse_ambiguous(sites)
    else:
        if scores is None and not is_mcmc(samples):
            raise UserError(
                "scores: draws by site need their model: a pymc.Model, BridgeStan's StanModel, or a NumPyro model with "
                "its data (functools.partial(model, **data))"
            )
        points, slopes = _from_model(samples, scores, model)
        leading = points.ndim - 1
        notes = _of_divergences(divergences(samples))
    check_chains(points.shape[:leading])
    if leading == 2:
        notes += chain_notes(np.asarray(points))
    m = int(np.prod(points.shape[:leading]))
    found, labels = _integrands(values, sites, points.shape[:leading])
    flat = points.reshape(m, -1), slopes.reshape(m, -1)
    chain = leading == 2 if chain is None else bool(chain)
    return (*flat, found, chain, labels if names is None else names, derived), notes


def _refuse_names(scores: Any, values: Any, model: bool) -> None:
    if model:
        raise UserError(
            "scores: a model needs draws by site; give samples as NumPyro's MCMC, ArviZ's DataTree or a dict of sites. "
            "With samples as an array, scores are an array too, such as jax.vmap(jax.grad(logp))(samples)"
        )
    if scores is None:
        raise UserError("scores: give the gradient of the log density at each sample, an array of the samples' shape")
    if values is None or callable(values) or isinstance(values, str):
        raise UserError(
            "values: with samples as an array, give an array of the integrand's values at them; names and functions of "
            "sites need samples by site"
        )


def _from_model(samples: Any, scores: Any, model: bool) -> tuple[np.ndarray, np.ndarray]:
    from lowvar.integrals.scores import scores as scores_of  # JAX, which arrays do not need

    if scores is None:
        return scores_of(samples)
    if model:
        return scores_of(scores, None, samples)
    points = np.asarray(scores_of(samples)[0]) if is_mcmc(samples) else None
    if points is None:
        raise UserError(
            f"scores: with draws by site, give their model, not {kind_of(scores)}; or give the unconstrained "
            "points and their scores as arrays"
        )
    slopes = np.asarray(scores, float)
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
    columns: tuple[list, list] = ([], [])
    axes = {}
    for key, value in sites.items():
        shapes = _shape(value, f"samples[{key!r}]"), _shape(scores[key], f"scores[{key!r}]")
        if shapes[0] != shapes[1]:
            raise UserError(f"scores: {key!r} has shape {shapes[1]}, but its samples have {shapes[0]}; they must agree")
        axes[key] = shapes[0][:leading]
        if len(axes[key]) < leading:
            wanted = "(chains, draws, ...)" if leading == 2 else "(m, ...)"
            raise UserError(f"samples: {key!r} has shape {shapes[0]}; it must be {wanted}")
        for column, array, name in zip(columns, (value, scores[key]), ("samples", "scores"), strict=True):
            column.append(real_array(array, f"{name}[{key!r}]").reshape(*axes[key], -1))
    if len(set(axes.values())) > 1:
        raise UserError(f"samples: sites have different numbers of draws: {axes}")
    return np.concatenate(columns[0], axis=-1), np.concatenate(columns[1], axis=-1)


def _shape(value: Any, name: str) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError as error:  # a ragged list
        raise UserError(
            f"{name}: it is not an array of numbers; give one row for each draw, all of one shape"
        ) from error


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


def _of_divergences(found: tuple[int, int] | None) -> list[str]:
    if not found or not found[0]:
        return []
    return [f"{found[0]} of {found[1]} transitions diverged: the draws may miss a part of the posterior"]


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
        values = _called(values, {name: _rows(name, array, axes) for name, array in sites.items()})
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


def _called(function: Callable, rows: dict[str, np.ndarray]) -> Any:
    try:
        return function(rows)
    except KeyError as error:
        raise UserError(f"values: the function asks for {error}; the sites are {', '.join(rows)}") from error
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"values: the function of the sites raised {type(error).__name__}: {error}; it gets a dict of arrays"
        ) from error


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
