"""Decomposition of the variance of a gradient estimate: subsampling, Monte Carlo, and their interaction.

For one data row ``n`` and base noise ``eps`` let ``g(n, eps)`` be the estimate. A batch of ``B`` rows, drawn
independently and sharing one ``eps``, has the variance (per coordinate, summed over coordinates)

    V = V_n / B + V_eps + V_int / B,

with ``V_n = V_n[E_eps g]``, ``V_eps = V_eps[E_n g]`` and ``V_int`` the remainder. A crossed design of rows by noise
gives unbiased estimates of the three from mean squares; independent designs give their intervals.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.analysis.intervals import mean_interval, ratio_interval
from lowvar.noise import GAUSSIAN, Noise, named_key

SOURCES = ("subsampling", "monte_carlo", "interaction")
_CHUNK = 64  # data rows of a design evaluated at once


def components(estimator, state, params, index, weight, eps, *, all_rows: bool):
    """Unbiased variance components of single-row estimates from one crossed design.

    Args:
        estimator: a gradient estimator.
        state: its state, held fixed.
        params: the parameters, held fixed.
        index: data rows, ``(chunks, rows per chunk)``.
        weight: 1 for a row of the design, 0 for padding; the same shape.
        eps: base noise, ``(S, points, dim)``.
        all_rows: whether the design has all ``N`` rows, rather than ``R`` draws with replacement.

    Returns:
        ``(3, parameters)``: ``V_n``, ``V_eps`` and ``V_int`` for a single row, per coordinate of the blocks in
        their order.
        With all rows ``V_int = SS_int / (N (S-1))``, else ``SS_int / ((R-1)(S-1))``; the main effects are mean
        squares minus the interaction's share.
    """
    backend, xp = estimator.problem.backend, estimator.problem.backend.xp
    one = eps[0, 0, 0] * 0 + 1
    columns, rows = eps.shape[0], xp.sum(weight)

    def single(row, eps):
        noise = Noise(row[None], xp.ones_like(eps[:1, 0]), one, eps, xp.zeros_like(row))
        gradient, _ = estimator.estimate(state, params, noise)
        return xp.concat([gradient[block] for block in estimator.problem.blocks])

    block = backend.vmap(backend.vmap(single, (None, 0)), (0, None))
    centre = xp.mean(block(index[0], eps), axis=(0, 1))  # any fixed vector; this one avoids cancellation

    def add(total, chunk):
        index, weight = chunk
        g = (block(index, eps) - centre[None, None, :]) * weight[:, None, None]
        squares, by_column, row_squares = total
        row_means = xp.mean(g, axis=1)
        return (
            squares + xp.sum(g * g, axis=(0, 1)),
            by_column + xp.sum(g, axis=0),
            row_squares + xp.sum(row_means * row_means, axis=0),
        )

    zero = xp.zeros_like(centre)
    start = (zero, xp.zeros_like(eps[:, 0, :1] * zero[None, :]), zero)
    squares, by_column, row_squares = backend.scan_or_loop(add, start, (index, weight))
    column_means = by_column / rows
    grand = xp.mean(column_means, axis=0)
    ss_rows = columns * (row_squares - rows * grand**2)
    ss_columns = rows * xp.sum((column_means - grand[None, :]) ** 2, axis=0)
    ss_interaction = squares - rows * columns * grand**2 - ss_rows - ss_columns
    if all_rows:
        v_int = ss_interaction / (rows * (columns - 1))
        v_n = ss_rows / (columns * rows) - v_int / columns
        v_eps = ss_columns / (rows * (columns - 1))
    else:
        v_int = ss_interaction / ((rows - 1) * (columns - 1))
        v_n = ss_rows / (columns * (rows - 1)) - v_int / columns
        v_eps = ss_columns / (rows * (columns - 1)) - v_int / rows
    return xp.stack([v_n, v_eps, v_int])


def designs(problem, *, replicates: int, columns: int, rows: int | None, noise: str, particles: int, key):
    """The noise of ``replicates`` independent crossed designs, shared by all estimators.

    Returns:
        ``(index (replicates, chunks, rows), weight (the same), eps (replicates, columns, particles, dim))``,
        NumPy arrays.
    """
    for_rows, for_eps = jax.random.split(key)
    count = problem.N if rows is None else rows
    if rows is None:
        index = np.broadcast_to(np.arange(count, dtype=np.int32), (replicates, count))
    else:
        index = np.asarray(jax.random.randint(for_rows, (replicates, count), 0, problem.N, jnp.int32))
    chunks = -(-count // _CHUNK)
    size = -(-count // chunks)
    padding = chunks * size - count
    index = np.pad(index, ((0, 0), (0, padding))).reshape(replicates, chunks, size)
    weight = np.broadcast_to(np.arange(chunks * size) < count, (replicates, chunks * size))
    draw = GAUSSIAN[noise](particles).draw
    keys = jax.random.split(for_eps, replicates * columns)
    eps = np.asarray(jax.jit(jax.vmap(lambda key: draw(key, problem.dim, problem.dtype)))(keys))
    return (
        index,
        weight.reshape(index.shape).astype(problem.dtype),
        eps.reshape(replicates, columns, particles, problem.dim),
    )


def decomposer(estimator, *, all_rows: bool):
    """``(state, params, *designs) -> (replicates, 3, parameters)`` NumPy, compiled once if the backend compiles."""
    backend = estimator.problem.backend

    def replicate(state, params, design):
        return components(estimator, state, params, *design, all_rows=all_rows)

    @backend.jit
    def every(state, params, design):
        return backend.map(lambda one: replicate(state, params, one), design)

    def decompose(state, params, *design):
        return backend.to_numpy(every(state, params, tuple(backend.asarray(np.array(part)) for part in design)))

    return decompose


def table(problem, found: Mapping[str, np.ndarray], batch_size: int, *, replacement: bool = True):
    """Variances of a batch's gradient by estimator, block and source, with 95 % intervals.

    Args:
        problem: defines the blocks: ``mu``, ``log_sigma``, and both for each latent site if there are several.
        found: ``{estimator: (replicates, 3, parameters)}`` single-row components, on the same designs.
        batch_size: ``B``.
        replacement: whether a batch is drawn with replacement, as in the papers. Without it (reshuffled batches,
            ``numpyro.plate``), subsampling and interaction are smaller by the factor ``(N - B) / (N - 1)``.

    Returns:
        A pandas table with the columns ``method, block, source, variance, low, high, share, share_low,
        share_high, batch_size, replicates``. Shares are of the estimator's total in the block.
    """
    import pandas as pd

    share = 1.0 if replacement or problem.N == 1 else (problem.N - batch_size) / (problem.N - 1)
    scale = np.array([share / batch_size, 1.0, share / batch_size])
    rows = []
    for method, values in found.items():
        for block, where in blocks(problem).items():
            parts = values[:, :, where].sum(-1) * scale  # (replicates, 3)
            total = parts.sum(1)
            for source, sample in (*zip(SOURCES, parts.T, strict=True), ("total", total)):
                rows.append(
                    {"method": method, "block": block, "source": source,
                     **dict(zip(("variance", "low", "high"), mean_interval(sample), strict=True)),
                     **dict(zip(("share", "share_low", "share_high"), ratio_interval(sample, total), strict=True)),
                     "batch_size": batch_size, "replicates": len(sample)}
                )  # fmt: skip
    return pd.DataFrame(rows)


def blocks(problem) -> dict[str, Any]:
    """Coordinates of the gradient by block: all, each parameter block, and each latent site within it."""
    slices, offset, sites = {"all": slice(0, sum(problem.blocks.values()))}, 0, {}
    for block, size in problem.blocks.items():
        slices[block] = slice(offset, offset + size)
        if len(problem.sites) > 1:
            for site, where in problem.sites.items():
                sites[f"{block}:{site}"] = slice(offset + where.start, offset + where.stop)
        offset += size
    return slices | sites


def along_run(engine, estimators, *, moments, spec, batch_size, key, progress=None):
    """The decomposition of several estimators at moments of one run.

    Args:
        engine: one run (one step size, one repetition) of ``following(leader, estimators)``.
        estimators: ``{name: Estimator}``, the same as the engine's.
        moments: epochs at which to decompose, increasing.
        spec: a ``DecompositionSpec``.
        batch_size: ``B``.
        key: key of the designs, which are the same at all moments.
        progress: called with the number of epochs just completed.

    Returns:
        A table as from ``table``, with columns ``epoch``, ``iteration``, ``end``, ``noise`` and ``particles``. Measured
        between epochs, when tables are complete and SVRG snapshots are at their oldest.
    """
    import pandas as pd

    problem = engine.problem
    noises = [(noise.noise, noise.particles) for noise in (spec.noises or {"": engine.solver}).values()]
    drawn = {
        (noise, particles): designs(
            problem,
            replicates=spec.replicates,
            columns=spec.columns,
            rows=spec.rows,
            noise=noise,
            particles=particles,
            key=key,
        )
        for noise, particles in noises
    }
    decompose = {name: decomposer(one, all_rows=spec.rows is None) for name, one in estimators.items()}
    state, done, tables = engine.init(), 0, []
    for moment in moments:
        state = engine.advance(state, done, moment - done)
        if progress:
            progress(moment - done)
        done = moment
        params, states = engine.backend.tree_map(lambda leaf: leaf[0, 0], (state[0].params, state[0].estimator))
        for (noise, particles), design in drawn.items():
            values = {name: decompose[name](states[name], params, *design) for name in estimators}
            rows = table(problem, values, batch_size)
            where = {"epoch": moment, "iteration": moment * engine.steps, "end": moment == moments[-1]}
            for position, (name, value) in enumerate({**where, "noise": noise, "particles": particles}.items()):
                rows.insert(position, name, value)
            tables.append(rows)
    return pd.concat(tables, ignore_index=True)


def moments(epochs: int, points: int) -> list[int]:
    """The start, ``points`` epochs spaced geometrically, and the end.

    >>> moments(100, 3)
    [0, 1, 10, 100]
    """
    return sorted({0, epochs, *(round(e) for e in np.geomspace(1, epochs, points))})


def design_key(seed: int, name: str):
    """The key of a problem's designs."""
    return named_key(seed, name, "decomposition")
