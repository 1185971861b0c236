"""A user's own samples, scores and values, checked and converted to ``Samples``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.estimators.integral.choosing.score_check import doubt
from lowvar.problems.integrals.samples import Samples

_FEWEST = 3  # points of a task
_SMALL = 1e-120  # the square of a smaller number is nearly nothing


def bring(samples: Any, scores: Any, values: Any, *, chain: bool) -> tuple[Samples, list[str]]:
    """``Samples`` of one repetition, and notes on them.

    Args:
        samples: points ``(m, d)`` or ``(m,)``, or a list of such arrays, one for each task.
        scores: arrays of the same shapes.
        values: ``(m,)`` or ``(m, T)``, or a list of arrays ``(m_t,)``.
        chain: the points are successive states of Markov chains.

    Raises:
        UserError: inconsistent shapes, too few points, values that are not finite.
    """
    lists = isinstance(values, (list, tuple)) and isinstance(samples, (list, tuple))
    apart = lists and _ragged(samples) and all(np.ndim(one) for one in values)
    if apart:
        given = {"samples": samples, "scores": scores, "values": values}
        for name, of_tasks in given.items():
            if not isinstance(of_tasks, (list, tuple)) or len(of_tasks) != len(samples):
                raise UserError(f"{name}: a list of {len(samples)} arrays is needed, one for each task, as samples are")
        points = [_points(one, f"samples[{t}]") for t, one in enumerate(samples)]
        slopes = [_points(one, f"scores[{t}]") for t, one in enumerate(scores)]
        of_tasks = [_array(one, f"values[{t}]") for t, one in enumerate(values)]
        for t, one in enumerate(of_tasks):
            if one.ndim != 1:
                raise UserError(f"values[{t}]: its shape is {one.shape}; with a list of tasks it must be (m,)")
    else:
        value = _array(values, "values")
        if chain:
            samples, scores, value = _of_chains(_array(samples, "samples"), _array(scores, "scores"), value)
        one_set, its_scores = _points(samples, "samples"), _points(scores, "scores")
        if value.ndim not in (1, 2):
            raise UserError(f"values: their shape is {value.shape}; it must be (m,) or (m, T)")
        columns = value[:, None] if value.ndim == 1 else value
        of_tasks = [np.ascontiguousarray(column) for column in columns.T]
        points, slopes = [one_set] * len(of_tasks), [its_scores] * len(of_tasks)
        if not of_tasks:
            raise UserError("values: there are no columns; give one for each integrand")
    for t, (x, score, value) in enumerate(zip(points, slopes, of_tasks, strict=True)):
        _check_task(x, score, value, f"[{t}]" if apart else "")
    if len({x.shape[1] for x in points}) > 1:
        raise UserError(f"samples: tasks have {[x.shape[1] for x in points]} dimensions; they must agree (axis 1)")
    if (
        apart
        and all(np.array_equal(x, points[0]) for x in points)
        and all(np.array_equal(score, slopes[0]) for score in slopes)
    ):
        apart = False  # a list of the same samples
    found = Samples(
        tuple(x[None] for x in points), tuple(s[None] for s in slopes), tuple(v[None] for v in of_tasks),
        shared=not apart, chain=chain,
    )  # fmt: skip
    return found, doubts(found)


def doubts(samples: Samples) -> list[str]:
    """A sentence for each target whose scores seem to belong to another density, and for constant coordinates.

    Args:
        samples: of one repetition.
    """
    found = []
    for t in range(1 if samples.shared else samples.tasks):
        where = "" if samples.shared else f"[{t}]"
        x, score = samples.points[t][0], samples.scores[t][0]
        if (still := np.ptp(x, axis=0) == 0).any():
            found.append(f"samples{where}: coordinate {int(still.argmax())} does not vary")
        if (doubted := doubt(x, score, samples.chain)) is not None:
            found.append(f"scores{where}: {doubted}")
    return found


def without_copies(samples: Samples) -> tuple[Samples, int]:
    """The samples without duplicate points (rejected proposals of a chain), and the number removed.

    A kernel method interpolates: a duplicate adds no information and makes its equations singular.

    Raises:
        UserError: two values or scores at one point, or fewer than three different points.
    """
    kept = []
    for t, (x, score, value) in enumerate(zip(samples.points, samples.scores, samples.values, strict=True)):
        _, first, back = np.unique(x[0], axis=0, return_index=True, return_inverse=True)
        kept.append(first)
        owner = first[back.ravel()]
        where = f"[{t}]" if samples.tasks > 1 else ""
        for name, of in (("values", value[0]), ("scores", score[0])):
            differs = np.flatnonzero((of[owner] != of).reshape(len(of), -1).any(axis=1))
            if len(differs):
                row = int(differs[0])
                raise UserError(
                    f"{name}{where}: rows {int(owner[row])} and {row} differ, though their samples are the same; a "
                    "function has one value at a point"
                )
        if len(first) < _FEWEST:
            raise UserError(f"samples{where}: only {len(first)} of {x.shape[1]} are different; 3 are needed")
    dropped = sum(x.shape[1] - len(rows) for x, rows in zip(samples.points, kept, strict=True))
    if samples.shared:
        dropped //= samples.tasks
    if not dropped:
        return samples, 0

    def pick(arrays):
        return tuple(array[:, np.sort(rows)] for array, rows in zip(arrays, kept, strict=True))

    return Samples(pick(samples.points), pick(samples.scores), pick(samples.values), samples.shared), dropped


def _of_chains(samples: np.ndarray, scores: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Draws ``(chains, draws, d)`` as one array, with concatenated chains."""
    if samples.ndim != 3 or scores.shape != samples.shape:
        return samples, scores, values
    chains, draws, dim = samples.shape
    if values.ndim in (2, 3) and values.shape[:2] == (chains, draws):
        values = values.reshape(chains * draws, *values.shape[2:])
    elif len(values) != chains * draws:
        raise UserError(
            f"values: their shape is {values.shape}; with samples {samples.shape} it must be {(chains, draws)} or "
            f"{(chains, draws)} + (T,)"
        )
    return samples.reshape(-1, dim), scores.reshape(-1, dim), values


def _ragged(samples: Sequence[Any]) -> bool:
    """Whether a list is one of tasks: of arrays, and not of numbers or of rows."""
    return all(
        (hasattr(one, "shape") and len(one.shape)) or (isinstance(one, (list, tuple)) and np.ndim(one) == 2)
        for one in samples
    )


def _array(value: Any, name: str) -> np.ndarray:
    """A NumPy float64 array from NumPy, JAX or PyTorch."""
    if isinstance(value, (list, tuple)):
        value = [one.detach().cpu() if hasattr(one, "detach") else one for one in value]
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    if value is None:
        raise UserError(f"{name}: None is not an array of numbers")
    if np.ma.isMaskedArray(value):
        raise UserError(f"{name}: the array is masked; leave the masked samples out")
    try:
        if np.iscomplexobj(value):
            raise UserError(
                f"{name}: the numbers are complex; integrate their real and imaginary parts as two integrands"
            )
        array = np.array(value, dtype=np.float64)  # a copy: the method may keep it, and the original may be read-only
    except UserError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{name}: it cannot be read as an array of numbers: {error}") from error
    bad = ~np.isfinite(array)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UserError(f"{name}: {array[at]} at {list(at)}; all {array.size} numbers must be finite")
    return array


def _points(value: Any, name: str) -> np.ndarray:
    array = _array(value, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        several = f": say chain=True, or give {name}.reshape(-1, {array.shape[-1]})" if array.ndim == 3 else ""
        raise UserError(f"{name}: the shape is {array.shape}; it must be (m, d){several}")
    if array.shape[1] < 1:
        raise UserError(f"{name}: the shape is {array.shape}; there must be at least one dimension (axis 1)")
    return array


def _check_task(x, score, value, where):
    if score.shape != x.shape:
        axis = 0 if score.shape[0] != x.shape[0] else 1
        raise UserError(
            f"scores{where}: axis {axis} has {score.shape[axis]} entries, samples{where} have {x.shape[axis]}; "
            "there must be a score for each coordinate of each sample"
        )
    if value.shape[0] != x.shape[0]:
        raise UserError(
            f"values{where}: axis 0 has {value.shape[0]} entries, samples{where} have {x.shape[0]}; "
            "there must be a value for each sample"
        )
    if len(x) < _FEWEST:
        raise UserError(f"samples{where}: {len(x)} points are too few; at least {_FEWEST} are needed")
    for name, of in (("samples", x), ("scores", score), ("values", value)):
        size = np.abs(of - of[0] if name == "values" else of).max()
        if size and not _SMALL < size < 1 / _SMALL:
            raise UserError(
                f"{name}{where}: numbers of size {size:.0e}, whose squares no floating-point number can hold: divide "
                "them by a constant, and multiply the results by it"
            )
