"""Estimators in a loop of one's own: ``lowvar.problem``, ``lowvar.estimator`` and ``lowvar.batch_noise``."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.errors import UserError, check_known, whole
from lowvar.vi.batches import BATCHES, Batches, Noise
from lowvar.vi.descent import make_estimator
from lowvar.vi.estimators import GRADIENT
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.run.settings import Method
from lowvar.vi.settings import batch_of, problem_of, start_of


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

    >>> import lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> problem = lowvar.problem(model, {"y": np.full(9, 2.0)})
    >>> problem.N, problem.dim, {block: value.shape for block, value in problem.start.items()}
    (9, 1, {'mu': (1,), 'log_sigma': (1,)})
    """
    made = problem_of(model, data, guide=guide, **start_of(model, init, whole("seed", seed, 0)))
    for note in made.notes(1):
        warnings.warn(note, UserWarning, stacklevel=2)
    return made


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

    >>> import jax, lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> problem = lowvar.problem(model, {"y": np.full(9, 2.0)})
    >>> naive = lowvar.estimator("naive", problem, batch_size=3)
    >>> params = problem.start
    >>> noise = lowvar.batch_noise(jax.random.key(0), problem, [0, 1, 2])
    >>> gradient, memory = naive.estimate(naive.init(params), params, noise)
    >>> {block: value.shape for block, value in gradient.items()}
    {'mu': (1,), 'log_sigma': (1,)}
    """
    GRADIENT.entry(name)
    check_known("batches", batches, ("reshuffled", "iid"))
    size = batch_of(problem) if batch_size is None else whole("batch_size", batch_size, 1)
    drawn = BATCHES[batches](problem.N, size)
    return _checked(make_estimator(Method(name, options), problem, drawn), drawn)


def _checked(made: Estimator, batches: Batches) -> Estimator:
    """The estimator, which refuses batches of another size, and with a memory of epochs those without a position."""

    def estimate(state, params, noise):
        if len(noise.index) != batches.size:
            raise UserError(
                f"estimator {made.name!r}: the batch has {len(noise.index)} rows, but batch_size is {batches.size}: "
                f"give batch_noise size={batches.size} for a batch with fewer rows"
            )
        if noise.position is None and made.properties.needs_epochs:
            raise UserError(
                f"estimator {made.name!r} remembers the batches of an epoch by their place: give batch_noise "
                f"position=0, 1, ... up to {batches.steps - 1}; with batches='iid' it needs none"
            )
        return made.estimate(state, params, noise)

    return replace(made, estimate=estimate)


def batch_noise(
    key, problem, index, *, size: int | None = None, particles: int = 1, noise: str = "iid", position: Any = None
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
        position: the batch's place in its epoch: 0 for the first, 1 for the next. Estimators with a memory of
            reshuffled epochs need it, and refuse a batch without one.

    Numbers of rows and positions are checked outside of ``jax.jit``; inside, they have no values yet.

    Raises:
        UserError: no rows, more than ``size``, rows or a position that do not exist, or an unknown noise scheme.

    >>> import jax, lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         numpyro.sample("y", dist.Normal(mu, 1.0), obs=y[i])
    >>> problem = lowvar.problem(model, {"y": np.full(9, 2.0)})
    >>> noise = lowvar.batch_noise(jax.random.key(0), problem, [7, 8], size=3, particles=4)
    >>> noise.index.tolist(), noise.weight.tolist(), noise.eps.shape
    ([7, 8, 7], [0.5, 0.5, 0.0], (4, 1))
    """
    check_known("noise", noise, GAUSSIAN)
    index = np.asarray(index) if isinstance(index, list | tuple) else index
    _check_rows(index, problem)
    backend, rows = problem.backend, len(index)
    size = rows if size is None else whole("size", size, 1)
    if not 0 < rows <= size:
        raise UserError(f"batch_noise: index has {rows} rows; it must have between 1 and {size}")
    if position is not None and not isinstance(position, jax.core.Tracer):
        one = position.item() if getattr(position, "ndim", None) == 0 else position
        position, steps = whole("batch_noise: position", one, 0), -(-problem.N // size)
        if position >= steps:
            raise UserError(
                f"batch_noise: position {position}: an epoch has {steps} batches of {size} rows, at 0 to {steps - 1}"
            )
    weight = np.where(np.arange(size) < rows, 1 / rows, 0).astype(problem.dtype)
    eps = GAUSSIAN[noise](particles).draw(key, problem.noise_dim, problem.dtype)
    xp, index = backend.xp, backend.asarray(index)
    index = xp.astype(xp.concat([index, xp.broadcast_to(index[:1], (size - rows,))]), xp.int32)
    parts = index, weight, np.asarray(rows, problem.dtype), eps
    place = None if position is None else backend.asarray(position)
    return Noise(*(backend.asarray(part) for part in parts), position=place)


def _check_rows(index, problem) -> None:
    """Refuses invalid row numbers; under ``jax.jit``, by shape and type alone."""
    known = not isinstance(index, jax.core.Tracer)
    held = index
    if known and not isinstance(index, np.ndarray):
        held = problem.backend.to_numpy(problem.backend.asarray(index))
    right = f"give the numbers of rows, integers from 0 to {problem.N - 1}, as an array of one axis"
    if held.ndim != 1 or held.dtype.kind not in "iu":
        first = f" that starts with {held.flat[0]}" if known and held.size else ""
        raise UserError(f"batch_noise: index is an array {held.dtype}{list(held.shape)}{first}: {right}")
    if known and (wrong := held[(held < 0) | (held >= problem.N)]).size:
        raise UserError(f"batch_noise: index has row {wrong[0]}, but the model has {problem.N} rows: {right}")
