"""A user's own samples, scores and values: whatever arrays they are, checked and put in the form of ``Samples``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.stats

from lowvar.errors import UserError
from lowvar.problems.integrals.samples import Samples

_FEWEST = 3  # points of a task
_DOUBT = 1e-4  # significance of the Stein check, all tasks and coordinates together


def bring(samples: Any, scores: Any, values: Any, *, chain: bool) -> tuple[Samples, list[str]]:
    """``Samples`` of one repetition, and what the user should know about them.

    Args:
        samples: points ``(m, d)`` or ``(m,)``, or a list of such arrays, one for each task.
        scores: of the same shapes.
        values: ``(m,)`` or ``(m, T)``, or a list of arrays ``(m_t,)``.
        chain: the points are successive states of Markov chains.

    Raises:
        UserError: shapes that do not fit, too few points, values that are not finite.
    """
    apart = isinstance(values, (list, tuple)) and isinstance(samples, (list, tuple)) and _ragged(samples)
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
        one_set, its_scores, value = _points(samples, "samples"), _points(scores, "scores"), _array(values, "values")
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
    found = Samples(
        tuple(x[None] for x in points), tuple(s[None] for s in slopes), tuple(v[None] for v in of_tasks),
        shared=not apart, chain=chain,
    )  # fmt: skip
    return found, doubts(found)


def doubts(samples: Samples) -> list[str]:
    """Tests the scores by Stein's identity: ``E l = 0`` and ``E (x - c) l' + I = 0`` under the density of ``l``.

    Args:
        samples: of one repetition.

    Returns:
        A sentence for each target whose scores seem to be another density's, with the z-score.

    References:
        Stein's identity for ``u = 1`` and ``u = x - c``; a z-score uses the effective sample size where the points
        are a chain.
    """
    found = []
    for t in range(1 if samples.shared else samples.tasks):
        x, score = samples.points[t][0], samples.scores[t][0]
        m, d = x.shape
        centred = (x - x.mean(axis=0)) / np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1)
        scaled = score * np.where(np.ptp(x, axis=0) > 0, x.std(axis=0), 1)
        tests = np.concatenate([scaled, centred * scaled + 1], axis=1)  # (m, 2 d), mean 0
        size = _effective(tests) if samples.chain else np.full(2 * d, float(m))
        spread = tests.std(axis=0, ddof=1)
        z = np.abs(tests.mean(axis=0)) * np.sqrt(size) / np.where(spread > 0, spread, 1)
        limit = scipy.stats.t.isf(_DOUBT / (2 * tests.shape[1]), max(m - 1, 1))
        if m >= 10 and z.max() > limit:
            worst, which = int(z.argmax()) % d, "mean" if z.argmax() < d else "spread"
            where = "" if samples.shared else f"[{t}]"
            found.append(
                f"scores{where}: they look like another density's than the samples' (Stein's identity for the "
                f"{which} of coordinate {worst} is off by {z.max():.1f} standard errors)"
            )
    return found


def without_copies(samples: Samples) -> tuple[Samples, int]:
    """The same without points that occur before (rejected proposals of a chain), and how many those were.

    A kernel method interpolates: a point tells it nothing the second time, and its equations become singular.
    """
    kept = [np.unique(x[0], axis=0, return_index=True)[1] for x in samples.points]
    dropped = sum(x.shape[1] - len(rows) for x, rows in zip(samples.points, kept, strict=True))
    if samples.shared:
        dropped //= samples.tasks
    if not dropped:
        return samples, 0

    def pick(arrays):
        return tuple(array[:, np.sort(rows)] for array, rows in zip(arrays, kept, strict=True))

    return Samples(pick(samples.points), pick(samples.scores), pick(samples.values), samples.shared), dropped


def _ragged(samples: Sequence[Any]) -> bool:
    """Whether a list is one of tasks: of arrays, and not of numbers or of rows."""
    return all(hasattr(one, "shape") or (isinstance(one, (list, tuple)) and np.ndim(one) == 2) for one in samples)


def _array(value: Any, name: str) -> np.ndarray:
    """A NumPy float64 array out of NumPy, JAX or PyTorch."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        array = np.array(value, dtype=np.float64)  # a copy: it is the method's to keep, and others' may be read-only
    except (TypeError, ValueError) as error:
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
        raise UserError(
            f"{name}: the shape is {array.shape}; it must be (m, d): put the draws of all chains below each other"
        )
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


def _effective(tests):
    from numpyro.diagnostics import effective_sample_size

    return np.clip(np.nan_to_num(effective_sample_size(tests[None]), nan=2.0), 2.0, len(tests))
