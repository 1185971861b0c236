"""A user's samples, scores and values as ``Samples``: chains must have mixed, and scores must be their density's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from lowvar.errors import UserError
from lowvar.integrals.base import Samples, each_once
from lowvar.integrals.monte_carlo import effective_size, first_copies, one_after_another, ranks, split_r_hat, stride

_FEWEST = 3  # points of a task
_SMALL = 1e-120  # squares of smaller numbers underflow, or nearly
_FEWEST_DRAWS = 50  # of a chain, to compare chains by R-hat
_ROUNDING = 1e-6  # draws count as equal that agree to this multiple of a coordinate's median absolute deviation
_SHARE, _COMMON = 0.05, 5  # independent chains have no more draws in common than this share, or this number
_MOST = 2.0**62
_TOGETHER = 0.3  # chains move together above this correlation of their steps,
_APART = 5  # lag of the baseline correlation, beyond which it counts
_DEVIATIONS = 5.0  # standard errors by which either is more than chance
DOUBT, DOUBT_EXACT = 1e-2, 1e-3  # significance, all tests of a set of points together; of scores said to be exact
FEWEST_TO_TEST = 8  # (effective) points from which scores are tested: with fewer, right scores fail too often
RELIABLE = 20  # points from which the test detects a mean that is off by a standard deviation in most cases


def is_mcmc(given: Any) -> bool:
    """Whether ``given`` is NumPyro's ``MCMC``."""
    return callable(getattr(given, "get_samples", None)) and hasattr(given, "sampler")


def is_dataset(given: Any) -> bool:
    """Whether ``given`` is ArviZ's ``DataTree`` or ``InferenceData``, or an xarray ``Dataset``."""
    return (hasattr(given, "data_vars") and not is_pymc(given)) or callable(getattr(given, "groups", None))


def is_stan(model: Any) -> bool:
    """Whether ``model`` is BridgeStan's ``StanModel``."""
    return hasattr(model, "param_unconstrain") and hasattr(model, "log_density_gradient")


def is_pymc(model: Any) -> bool:
    """Whether ``model`` is a ``pymc.Model``."""
    return hasattr(model, "free_RVs") and hasattr(model, "rvs_to_transforms")


def is_by_site(given: Any) -> bool:
    """Whether ``given`` has draws by the names of sites."""
    return is_mcmc(given) or is_dataset(given) or isinstance(given, Mapping)


def is_model(given: Any) -> bool:
    """Whether ``given`` is a model, of whatever library, in place of scores."""
    return callable(given) or is_stan(given) or is_pymc(given)


def check_chains(leading: tuple[int, ...]) -> None:
    """Refuses more chains than draws.

    Raises:
        UserError: the first of two axes is the longer one.
    """
    if len(leading) == 2 and leading[0] > leading[1]:
        raise UserError(
            f"draws: these are {leading[0]} chains of {leading[1]} draws; give at least as many draws as chains, with "
            "the axes (chains, draws, ...)"
        )


def refuse_models(scores: Any, values: Any) -> None:
    """Refuses a model, and integrands by name, beside samples that are arrays.

    Raises:
        UserError: either is given, or no scores are.
    """
    if is_model(scores):
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


def labels(samples: Any, scores: Any, values: Any) -> list[str] | None:
    """The integrands' names, where ``values`` are of pandas and have them; rows must be in one order.

    Raises:
        UserError: labels of rows, or of the scores' columns, that do not match.
    """
    inputs = (given if isinstance(given, (list, tuple)) else [given] for given in (samples, scores, values))
    if not any(hasattr(one, "iloc") for given in inputs for one in given):
        return None
    from lowvar.core.frames import check_order, names_in

    check_order(samples, scores, values)
    return names_in(values)


def checked_samples(
    samples: Any, scores: Any, values: Any, *, chain: bool, exact: bool = False
) -> tuple[Samples, list[str]]:
    """``Samples`` of one repetition, and notes on them.

    Args:
        samples: points ``(m, d)`` or ``(m,)``, or a list of such arrays, one for each task.
        scores: arrays of the same shapes.
        values: ``(m,)`` or ``(m, T)``, or a list of arrays ``(m_t,)``.
        chain: the points are successive states of Markov chains.
        exact: the caller vouches for the scores.

    Raises:
        UserError: inconsistent shapes, too few points, values that are not finite.
    """
    lists = isinstance(values, (list, tuple)) and isinstance(samples, (list, tuple))
    separate = lists and _ragged(samples) and all(np.ndim(array) for array in values)
    if separate:
        inputs = {"samples": samples, "scores": scores, "values": values}
        for name, task_values in inputs.items():
            if not isinstance(task_values, (list, tuple)) or len(task_values) != len(samples):
                raise UserError(f"{name}: give a list of {len(samples)} arrays, one for each task, as for samples")
        tasks = [_task(*arrays, f"[{t}]", chain) for t, arrays in enumerate(zip(samples, scores, values, strict=True))]
        points, slopes, task_values, noted = zip(*tasks, strict=True)
        notes = [note for of_task in noted for note in of_task]
        for t, array in enumerate(task_values):
            if array.ndim != 1:
                raise UserError(f"values[{t}]: its shape is {array.shape}; with a list of tasks it must be (m,)")
    else:
        one_set, set_scores, value, notes = _task(samples, scores, values, "", chain)
        if value.ndim not in (1, 2):
            raise UserError(f"values: their shape is {value.shape}; it must be (m,) or (m, T)")
        columns = value[:, None] if value.ndim == 1 else value
        task_values = [np.ascontiguousarray(column) for column in columns.T]
        points, slopes = [one_set] * len(task_values), [set_scores] * len(task_values)
        if not task_values:
            raise UserError("values: the array has no columns; give one for each integrand")
    for t, (x, score, value) in enumerate(zip(points, slopes, task_values, strict=True)):
        where = f"[{t}]" if separate else ""
        if separate or not t:
            _check_size(x, f"samples{where}")
            _check_size(score, f"scores{where}")
        _check_size(value - value[0], f"values{where}")
    if len({x.shape[1] for x in points}) > 1:
        raise UserError(f"samples: tasks have {[x.shape[1] for x in points]} dimensions; they must agree (axis 1)")
    if (
        separate
        and all(np.array_equal(x, points[0]) for x in points)
        and all(np.array_equal(score, slopes[0]) for score in slopes)
    ):
        separate = False  # a list of the same samples
    one_of_each = [each_once(lambda array: array[None], of) for of in (points, slopes, task_values)]
    result = Samples(*one_of_each, shared=not separate, chain=chain)
    return result, notes + _doubts(result, exact)


def _doubts(samples: Samples, exact: bool) -> list[str]:
    """Notes on scores that seem to belong to another density, and on constant coordinates, of one repetition."""
    notes = []
    for t in range(1 if samples.shared else samples.tasks):
        where = "" if samples.shared else f"[{t}]"
        x, score = samples.points[t][0], samples.scores[t][0]
        if (still := np.ptp(x, axis=0) == 0).any():
            notes.append(f"samples{where}: coordinate {int(still.argmax())} does not vary")
        if (doubted := doubt(x, score, samples.chain, exact)) is not None:
            notes.append(f"scores{where}: {doubted}")
        elif len(x) < RELIABLE:
            notes.append(f"scores{where}: {len(x)} samples are too few to test them reliably")
    return notes


def without_copies(samples: Samples) -> tuple[Samples, int]:
    """The samples without duplicate points (rejected proposals of a chain), and the number removed.

    Kernel methods interpolate: a duplicate adds no information and makes their linear system singular.

    Raises:
        UserError: two values or scores at one point, or fewer than three different points.
    """
    kept = []
    for t, (x, score, value) in enumerate(zip(samples.points, samples.scores, samples.values, strict=True)):
        owner = first_copies(x[0])
        kept.append(first := np.unique(owner))
        where = f"[{t}]" if samples.tasks > 1 else ""
        for name, array in (("values", value[0]), ("scores", score[0])):
            differs = np.flatnonzero((array[owner] != array).reshape(len(array), -1).any(axis=1))
            if len(differs):
                row = int(differs[0])
                raise UserError(
                    f"{name}{where}: rows {int(owner[row])} and {row} differ, though their samples are equal; a "
                    "function has one value at each point"
                )
        if len(first) < _FEWEST:
            raise UserError(f"samples{where}: only {len(first)} of {x.shape[1]} are distinct; at least 3 are needed")
    dropped = sum(x.shape[1] - len(rows) for x, rows in zip(samples.points, kept, strict=True))
    if samples.shared:
        dropped //= samples.tasks
    if not dropped:
        return samples, 0

    def pick(arrays):
        return tuple(array[:, rows] for array, rows in zip(arrays, kept, strict=True))

    return Samples(pick(samples.points), pick(samples.scores), pick(samples.values), samples.shared), dropped


def _task(samples: Any, scores: Any, values: Any, where: str, chain: bool) -> tuple[Any, Any, np.ndarray, list[str]]:
    """Points and scores ``(m, d)``, values ``(m,)`` or ``(m, T)``, with concatenated chains, and notes on these."""
    inputs, notes = {"samples": samples, "scores": scores, "values": values}, []
    samples, scores, values = (finite_array(given, f"{name}{where}") for name, given in inputs.items())
    samples, scores = (array[:, None] if array.ndim == 1 else array for array in (samples, scores))
    if chain and samples.ndim == 2 and samples.shape == values.shape and values.shape[0] < values.shape[1]:
        raise UserError(
            f"samples{where}: with shape {values.shape} they are {values.shape[0]} points of {values.shape[1]} "
            f"coordinates; for chains of a scalar give samples{where}[..., None] and scores{where}[..., None]"
        )
    if samples.ndim not in ((2, 3) if chain else (2,)) or not samples.shape[-1]:
        several = f": set chain=True, or give samples.reshape(-1, {samples.shape[-1]})" if samples.ndim == 3 else ""
        raise UserError(f"samples{where}: the shape is {samples.shape}; it must be (m, d){several}")
    if scores.shape != samples.shape:
        raise UserError(
            f"scores{where}: their shape is {scores.shape}, but samples{where} have {samples.shape}; there must be a "
            "score for each coordinate of each sample"
        )
    if samples.ndim == 3:
        leading = samples.shape[:2]
        check_chains(leading)
        notes = chain_notes(samples, where)
        if values.shape[:2] == leading:
            values = values.reshape(-1, *values.shape[2:])
    points, slopes = (array.reshape(-1, array.shape[-1]) for array in (samples, scores))
    if values.shape[:1] != points.shape[:1]:
        raise UserError(
            f"values{where}: their shape is {values.shape}, but samples{where} have {samples.shape}; there must be a "
            "value for each sample"
        )
    if len(points) < _FEWEST:
        raise UserError(f"samples{where}: {len(points)} points are too few; at least {_FEWEST} are needed")
    return points, slopes, values, notes


def _ragged(samples: Sequence[Any]) -> bool:
    """Whether a list has an array for each task, rather than numbers or rows."""
    return all(
        (hasattr(one, "shape") and len(one.shape)) or (isinstance(one, (list, tuple)) and np.ndim(one) == 2)
        for one in samples
    )


def finite_array(value: Any, name: str) -> np.ndarray:
    """The finite real numbers of an array of NumPy, JAX or PyTorch, as a copy in NumPy and float64.

    Raises:
        UserError: anything else, or an entry that is not finite.
    """
    if isinstance(value, (list, tuple)):
        value = [one.detach().cpu() if hasattr(one, "detach") else one for one in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    if value is None:
        raise UserError(f"{name}: None is not an array of numbers")
    if np.ma.isMaskedArray(value):
        raise UserError(f"{name}: the array is masked; remove the masked samples")
    try:
        if np.iscomplexobj(value):
            advice = "integrate real and imaginary parts as two integrands"
            raise UserError(f"{name}: the numbers are complex; {advice if 'values' in name else 'they must be real'}")
        if (dtype := np.asarray(value).dtype).kind in "USmM":
            raise UserError(f"{name}: cannot be converted to an array of numbers: its entries are {dtype}")
        array = np.array(value, dtype=np.float64)  # a copy: the method may keep it, and the original may be read-only
    except UserError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{name}: cannot be converted to an array of numbers: {error}") from error
    bad = ~np.isfinite(array)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UserError(f"{name}: {array[at]} at {list(at)}; all {array.size} numbers must be finite")
    return array


def _check_size(array: np.ndarray, name: str) -> None:
    size = np.abs(array).max()
    if size and not _SMALL < size < 1 / _SMALL:
        raise UserError(
            f"{name}: squares of numbers of size {size:.0e} overflow or underflow: divide the numbers by a constant, "
            "and multiply the results by it"
        )


def chain_notes(points: np.ndarray, where: str = "") -> list[str]:
    """Notes on chains that do not move or have not mixed.

    R-hat is noted above ``1.05 + 2.5 / draws``, which chains of independent draws exceed in less than one of a thousand
    coordinates (two chains of 50 draws in 0.08 % of 4000, four or longer ones in none); not below 50 draws.

    Args:
        points: ``(chains, draws, d)``.
        where: index of the task, for messages.

    Raises:
        UserError: two chains have draws in common, or move together, see ``_draws_in_common`` and ``_together``. Of
            13 000 sets of independent chains (autocorrelated, heavy-tailed, drifting, often standing still; 30 to 400
            draws, 1 to 4 coordinates) none was refused; of 1000 of 30 to 400 draws rounded to a hundredth of their
            standard deviation, two.
    """
    chains, draws, _ = points.shape
    if chains < 2 or not np.isfinite(points).all():
        return []
    at = f"samples{where}: " if where else ""
    still = ~(points != points[:, :1]).any(axis=(1, 2))
    if dependent := _draws_in_common(points, np.flatnonzero(~still)) or _together(points):
        raise UserError(
            f"samples{where}: {dependent}, so that they do not count as independent: give each chain its own seed"
        )
    if still.any():
        which = np.flatnonzero(still)
        named = f"chain {which[0]} does" if len(which) == 1 else f"chains {_and(which)} do"
        return [f"{at}{named} not move: all draws of a chain are equal"]
    if draws < _FEWEST_DRAWS:
        return []
    r_hat = split_r_hat(points)
    if not (r_hat > 1.05 + 2.5 / draws).any():
        return []
    worst = int(np.nanargmax(r_hat))
    return [
        f"{at}the chains have not mixed (R-hat of coordinate {worst} is {r_hat[worst]:.2f}): neither the averages nor "
        "their standard errors are reliable; run the chains longer, or look for separate modes"
    ]


def _draws_in_common(points: np.ndarray, chosen: np.ndarray) -> str:
    """Words on two of the ``chosen`` chains with equal draws, at any positions: copies, delayed or mixed; or ``""``.

    Repeated draws of a chain that stands still count once. Draws of low resolution, such as those rounded to a few
    digits in one dimension, coincide by chance: a chain then returns to its own draws, too, which tells how often.
    """
    if len(chosen) < 2:
        return ""
    points = points[chosen]
    chains, _, dim = points.shape
    shifted = points / 2 - np.median(points.reshape(-1, dim), axis=0) / 2
    width = np.median(np.abs(shifted.reshape(-1, dim)), axis=0)
    with np.errstate(over="ignore"):
        cells = np.rint(np.clip(shifted / (_ROUNDING * np.where(width > 0, width, 1.0)), -_MOST, _MOST))
    keys = cells.astype(np.int64) @ np.random.default_rng(0).integers(1, 2**62, dim)  # a hash: products may overflow
    _, same, copies = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    if copies.max() > 1:
        return f"chains {_and(chosen[same.ravel() == copies.argmax()])} are equal"
    distinct = [np.unique(chain) for chain in keys]
    sizes = np.array([len(one) for one in distinct])
    _, back, counts = np.unique(np.concatenate(distinct), return_inverse=True, return_counts=True)
    shared = np.bincount(np.repeat(np.arange(chains), sizes)[counts[back] > 1], minlength=chains)
    one = int(np.argmax(shared / sizes))
    common = np.array([len(np.intersect1d(distinct[one], distinct[c])) if c != one else 0 for c in range(chains)])
    other = int(np.argmax(common))
    size = max(sizes[one], sizes[other])
    returns = 1 - sizes.sum() / (chains + (keys[:, 1:] != keys[:, :-1]).sum())
    chance = 2 * returns * size  # a draw meets all draws of another chain, but only the earlier half of its own
    if common[other] < max(_COMMON, _SHARE * size + chance + _DEVIATIONS * np.sqrt(chance)):
        return ""
    return f"chains {_and(np.sort(chosen[[one, other]]))} have {common[other] / size:.0%} of their draws in common"


def _together(points: np.ndarray) -> str:
    """Words on two chains whose steps are correlated, draw by draw; or ``""``.

    Ranks of steps, since a few large steps may coincide; and only by how much more than five draws apart, since chains
    that have not yet converged drift alike. The correlation is the average over the coordinates.
    """
    steps = np.diff(points, axis=1)
    chains, number, _ = steps.shape
    if number <= _APART:
        return ""
    centred = ranks(steps)
    sizes = np.sqrt((centred**2).mean(axis=1, keepdims=True))
    centred /= np.where(sizes > 0, sizes, 1.0)
    moving = max(int((sizes > 0).any(axis=(0, 1)).sum()), 1)
    flat = centred.reshape(chains, -1)
    for pair in np.argwhere(np.triu(flat @ flat.T / (number * moving), 1) > _TOGETHER):
        one, other = centred[pair]
        products = (one * other).sum(axis=1) / moving
        apart = max((a[:-_APART] * b[_APART:]).sum() / (number * moving) for a, b in ((one, other), (other, one)))
        correlation = products.mean() - max(apart, 0.0)
        size = min(effective_size(products[None])[0], number)
        if correlation > max(_TOGETHER, _DEVIATIONS * max(1.0, products.std()) / np.sqrt(size)):
            return f"the steps of chains {_and(pair)} have a correlation of {products.mean():.2f}"
    return ""


def _and(numbers: np.ndarray) -> str:
    """``0, 1 and 3``."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def doubt(points: np.ndarray, scores: np.ndarray, chain: bool = False, exact: bool = False) -> str | None:
    """Tests Stein's identity ``E (u' + u l) = 0``, for ``u = 1`` and ``u = tanh`` of each coordinate.

    ``u = 1`` sees a wrong mean and ``tanh``, which is bounded, a wrong spread; the sum of the latter over the
    coordinates sees a wrong temperature, which is a little wrong in each of them.

    Args:
        points: ``(m, d)``.
        scores: ``(m, d)``.
        chain: the points are successive states of a Markov chain; its effective size takes the place of ``m``.
            Points that depend on their neighbours are taken for one.
        exact: the caller vouches for the scores, which are then doubted by chance in one of a thousand samples only.

    Returns:
        A sentence on the test that fails most clearly; None where the scores pass, or where there are too few points.

    References:
        Johnson, "Modified t tests and confidence intervals for asymmetrical populations", 1978, since the terms are
        skew.
    """
    apart = stride(points)
    chain = chain or apart > 0
    rows = one_after_another(len(points), apart)
    points, scores = points[rows], scores[rows]
    moving = np.flatnonzero(np.ptp(points, axis=0) > 0)
    if not len(moving):
        return None
    x, score = points[:, moving], scores[:, moving]
    if len(x) >= FEWEST_TO_TEST and (constant := np.ptp(score, axis=0) == 0).any():
        return (
            f"coordinate {moving[constant.argmax()]} of the scores is constant, which no density that vanishes at the "
            "boundary of its support has"
        )
    scale = x.std(axis=0)
    u = np.tanh((x - np.median(x, axis=0)) / scale)
    spread = (1 - u**2) + u * score * scale
    tests = np.concatenate([score * scale, spread, spread.sum(axis=1, keepdims=True)], axis=1)
    size = effective_size(tests[None])[0] if chain else np.full(tests.shape[1], float(len(x)))
    if size.min() < FEWEST_TO_TEST:
        return None
    level = DOUBT_EXACT if exact else DOUBT
    share = np.full(tests.shape[1], level / 2 / (tests.shape[1] - 1))
    share[-1] = level / 2
    limit = -stdtrit(size - 1, share / 2)
    z = np.abs(_johnson(tests, size))
    worst = int((z / limit).argmax())
    if z[worst] <= limit[worst]:
        return None
    number = len(moving)
    place = "all coordinates together" if worst == 2 * number > 2 else f"coordinate {moving[worst % number]}"
    moment = "mean" if worst < number else "spread"
    return (
        f"they do not match the density of the samples (Stein's identity for the {moment} of {place} is off by "
        f"{z[worst]:.1f} standard errors), or this density has an edge where it is not zero"
    )


def _johnson(tests: np.ndarray, size: np.ndarray) -> np.ndarray:
    """``t`` statistics of the hypothesis that means are zero, corrected for skewness."""
    mean, spread = tests.mean(axis=0), tests.std(axis=0, ddof=1)
    spread = np.where(spread > 0, spread, 1.0)
    third = ((tests - mean) ** 3).mean(axis=0)
    corrected = mean + third / (6 * spread**2 * size) + third * mean**2 / (3 * spread**4)
    return corrected * np.sqrt(size) / spread
