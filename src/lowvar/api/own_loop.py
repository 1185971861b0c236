"""Estimators in a loop of one's own: ``lowvar.problem``, ``lowvar.estimator`` and ``lowvar.batch_noise``."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lowvar.api.fit import start_of
from lowvar.api.models import problem_of
from lowvar.api.settings import batch_of, check_estimator
from lowvar.errors import UserError, check_known, whole
from lowvar.estimators.gradient.base import Estimator
from lowvar.noise import BATCHES, GAUSSIAN, Noise
from lowvar.studies.variational.methods import make_estimator
from lowvar.studies.variational.spec import MethodSpec


def problem(
    model: Any, data: Mapping[str, Any] | None = None, *, init: Any = None, seed: int = 0, guide: Any = "mean_field"
):  # fmt: skip
    """The negative ELBO of a model, as ``fit`` makes it: checked, with a start.

    Args:
        model: a NumPyro model, or a ``TorchModel``, as for ``fit``.
        data: the NumPyro model's keyword arguments.
        init: as for ``fit``.
        seed: seed of the start.
        guide: as for ``fit``.

    Returns:
        A ``VariationalProblem``: ``start``, parameters ``{"mu": (dim,), "log_sigma": (dim,)}`` and the guide's other
        blocks; ``N``, ``dim``; ``elbo(params, eps)``, nats; ``named(params)``, the parameters under the names of
        NumPyro's guide.

    Raises:
        UserError: as ``fit``.
    """
    return problem_of(model, data, guide=guide, **start_of(model, init, whole("seed", seed, 0)))


def estimator(
    name: str | Callable[..., Estimator], problem, batch_size: int | None = None, *, batches: str = "reshuffled",
    **options: Any,
) -> Estimator:  # fmt: skip
    """A gradient estimator for a problem.

    Args:
        name: as for ``fit``.
        problem: from ``lowvar.problem``.
        batch_size: rows of a batch; as for ``lowvar.fit`` if not given.
        batches: ``"reshuffled"``, epochs that visit every row once; or ``"iid"``, rows drawn with replacement.
        options: options of the estimator.

    Returns:
        An ``Estimator`` of pure functions: ``init(params)``, ``estimate(state, params, noise)``, ``begin_epoch(state,
        params)`` and ``end_epoch(state, index (steps, B))``. See docs/own-loop.md.

    Raises:
        UserError: an unknown name or option, or a batch size out of range.
    """
    check_estimator(name)
    check_known("batches", batches, ("reshuffled", "iid"))
    size = batch_of(problem) if batch_size is None else whole("batch_size", batch_size, 1)
    return make_estimator(MethodSpec.of(name, options, where="estimator"), problem, BATCHES[batches](problem.N, size))


def batch_noise(
    key, problem, index, *, size: int | None = None, particles: int = 1, noise: str = "iid", position: int = 0
) -> Noise:
    """The randomness of one estimate: given rows, and base noise drawn by ``key``.

    Args:
        key: a JAX key.
        problem: from ``lowvar.problem``.
        index: row numbers, ``(B,)``, in any array.
        size: batch size, for a batch that may have fewer rows: it is padded with its first row at weight zero, so
            that shapes stay the same.
        particles: particles, shared by the rows.
        noise: their noise scheme, as for ``fit``.
        position: the batch's place in its epoch; memories of reshuffled epochs depend on it.

    Raises:
        UserError: no rows, more than ``size``, or an unknown noise scheme.
    """
    check_known("noise", noise, GAUSSIAN)
    backend, rows = problem.backend, index.shape[0]
    size = rows if size is None else whole("size", size, 1)
    if not 0 < rows <= size:
        raise UserError(f"batch_noise: index has {rows} rows; it must have between 1 and {size}")
    weight = np.where(np.arange(size) < rows, 1 / rows, 0).astype(problem.dtype)
    eps = GAUSSIAN[noise](particles).draw(key, problem.noise_dim, problem.dtype)
    xp, index = backend.xp, backend.asarray(index)
    index = xp.astype(xp.concat([index, xp.broadcast_to(index[:1], (size - rows,))]), xp.int32)
    parts = index, weight, np.asarray(rows, problem.dtype), eps, position
    return Noise(*(backend.asarray(part) for part in parts))
