"""Decomposition of the variance of a gradient estimate: subsampling, Monte Carlo, and their interaction.

For one data row ``n`` and base noise ``eps`` let ``g(n, eps)`` be the estimate. A batch of ``B`` rows, drawn
independently and sharing one ``eps``, has the variance (per coordinate, summed over coordinates)

    V = V_n / B + V_eps + V_int / B,

with ``V_n = V_n[E_eps g]``, ``V_eps = V_eps[E_n g]`` and ``V_int`` the remainder. A crossed design of rows by noise
gives unbiased estimates of the three from mean squares; independent designs give their intervals.
"""

import functools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.intervals import mean_interval, ratio_interval
from lowvar.core.jax import compiled
from lowvar.core.keys import named_key
from lowvar.vi.batches import Noise

SOURCES = ("subsampling", "monte_carlo", "interaction")
_CHUNK, _VALUES = 64, 2**23  # most cells of a design evaluated at once, and most values of their gradients
_ROUNDING = 64  # deviations of an estimate below so many units of rounding of the noisiest one are rounding error


def components(estimator, state, params, index, weight, eps, *, all_rows: bool):
    """Unbiased variance components of single-row estimates from one crossed design.

    Args:
        estimator: a gradient estimator.
        state: its state, held fixed.
        params: the parameters, held fixed.
        index: data rows in cells, ``(chunks, cells per chunk, rows per cell)``.
        weight: 1 for a row of the design, 0 for padding; the same shape.
        eps: base noise, ``(S, points, noise_dim)``.
        all_rows: whether the cells are all ``N`` rows, divided at random, rather than draws with replacement.

    Returns:
        ``(3, parameters)``: ``V_n``, ``V_eps`` and ``V_int`` for a single row, per coordinate of the blocks in
        their order.
        Sums of squares are of cell means, weighted by the cells' rows. With ``M`` cells of all rows, ``SS_int`` has
        the mean ``(M-1) (S-1) V_int N / (N-1)`` and ``SS_columns`` is exact in the rows; with draws, ``SS_int`` has the
        mean ``(M-1) (S-1) V_int``. The main effects are mean squares minus the interaction's share.

    References:
        Cochran, Sampling techniques, 1977, section 2.4: the mean of a simple random sample without replacement.
    """
    backend, xp = estimator.problem.backend, estimator.problem.backend.xp
    columns, rows = eps.shape[0], xp.sum(weight)
    sizes = xp.sum(weight, axis=-1)
    cells = xp.sum(xp.where(sizes > 0, xp.ones_like(sizes), xp.zeros_like(sizes)))

    def single(rows, weight, eps):
        count = xp.sum(weight)
        count = xp.where(count > 0, count, xp.ones_like(count))
        noise = Noise(rows, weight / count, count, eps, xp.zeros_like(rows[0]))
        gradient, _ = estimator.estimate(state, params, noise)
        return xp.concat([gradient[block] for block in estimator.problem.blocks])

    block = backend.vmap(backend.vmap(single, (None, None, 0)), (0, 0, None))

    def add(total, chunk):
        index, weight, counts = chunk
        size = counts * xp.sum(weight, axis=-1)[:, None]
        centre, squares, by_column, row_squares = total
        g = block(index, weight, eps)
        centre = xp.where(counts > 0, centre, xp.mean(g, axis=(0, 1)))
        g = g - centre[None, None, :]
        row_means = xp.mean(g, axis=1)
        return (
            centre,
            squares + xp.sum(size[:, :, None] * g * g, axis=(0, 1)),
            by_column + xp.sum(size[:, :, None] * g, axis=0),
            row_squares + xp.sum(size * row_means * row_means, axis=0),
        )

    zero = backend.asarray(np.zeros(sum(estimator.problem.blocks.values())), like=eps)
    start = (zero, zero, xp.zeros_like(eps[:, 0, :1] * zero[None, :]), zero)
    # the first chunk once more before all others: its mean is any fixed vector that avoids cancellation
    counts = backend.asarray(np.arange(len(index) + 1) > 0, like=eps)
    again = (xp.concat([index[:1], index]), xp.concat([weight[:1], weight]), xp.astype(counts, eps.dtype))
    _, squares, by_column, row_squares = backend.scan_or_loop(add, start, again)
    column_means = by_column / rows
    grand = xp.mean(column_means, axis=0)
    ss_rows = columns * (row_squares - rows * grand**2)
    ss_columns = rows * xp.sum((column_means - grand[None, :]) ** 2, axis=0)
    ss_interaction = squares - rows * columns * grand**2 - ss_rows - ss_columns
    others = xp.where(cells > 1, cells - 1, xp.ones_like(cells))  # a single cell has no variance over rows
    v_int = ss_interaction / (others * (columns - 1))
    v_n = ss_rows / (columns * others) - v_int / columns
    v_eps = ss_columns / (rows * (columns - 1))
    if all_rows:
        v_int, v_n = v_int * (rows - 1) / rows, v_n * (rows - 1) / rows
    else:
        v_eps = v_eps - v_int / rows
    return xp.stack([v_n, v_eps, v_int])


def designs(
    problem, *, replicates: int, columns: int, rows: int | None, noise: str, particles: int, key, cell: int = 1
):
    """The noise of ``replicates`` independent crossed designs, shared by all estimators.

    Args:
        problem: an objective.
        replicates: independent designs.
        columns: noise draws of a design.
        rows: data rows of a design, drawn with replacement; all rows, in random order, if None.
        noise: noise scheme.
        particles: particles of a draw.
        key: a JAX key.
        cell: rows that share an evaluation, as in ``DecompositionSpec``; cells differ by at most one row.

    Returns:
        ``(index (replicates, chunks, cells, rows), weight (the same), eps (replicates, columns, particles,
        noise_dim))``, NumPy arrays.
    """
    count = problem.N if rows is None else rows
    draw = _drawer(noise, particles, problem.noise_dim, problem.dtype, replicates, columns, problem.N, rows)
    index, eps = map(np.asarray, draw(key))
    cells = -(-count // cell)
    chunk = int(np.clip(_VALUES // (columns * sum(problem.blocks.values())), 1, _CHUNK))
    chunks = -(-cells // chunk)
    size = -(-cells // chunks)
    sizes = np.zeros(chunks * size, int)
    sizes[:cells] = count // cells + (np.arange(cells) < count % cells)
    weight = np.arange(sizes.max()) < sizes[:, None]
    into = np.zeros((replicates, *weight.shape), np.int32)
    into[:, weight] = index
    shape = (replicates, chunks, size, weight.shape[1])
    return (
        into.reshape(shape),
        np.broadcast_to(weight, into.shape).reshape(shape).astype(problem.dtype),
        eps.reshape(replicates, columns, particles, problem.noise_dim),
    )


@functools.lru_cache(maxsize=16)
def _drawer(noise, particles, dim, dtype, replicates, columns, N, rows):
    """``key -> rows (replicates, count), base noise (replicates * columns, particles, dim)``, compiled for all runs."""
    draw = GAUSSIAN[noise](particles).draw

    def drawn(key):
        for_rows, for_eps = jax.random.split(key)
        if rows is None:
            order = jax.vmap(lambda key: jax.random.permutation(key, N))(jax.random.split(for_rows, replicates))
        else:
            order = jax.random.randint(for_rows, (replicates, rows), 0, N, jnp.int32)
        eps = jax.vmap(lambda key: draw(key, dim, dtype))(jax.random.split(for_eps, replicates * columns))
        return order.astype(jnp.int32), eps

    return compiled(drawn, brief=True)


def decomposer(estimators: Mapping[str, Any], *, all_rows: bool):
    """``({estimator: state}, params, *designs) -> {estimator: (replicates, 3, parameters) NumPy}``.

    Estimators share a program, which evaluates what they have in common once, unless their gradients are so long that
    a chunk of all of them takes too much memory.
    """
    lengths = {name: sum(estimator.problem.blocks.values()) for name, estimator in estimators.items()}
    backend = next(iter(estimators.values())).problem.backend
    programs: dict[tuple[str, ...], Any] = {}

    def program(names):
        joined = _joined({name: estimators[name] for name in names})
        return backend.jit(
            lambda state, params, designs: backend.map(
                lambda design: components(joined, state, params, *design, all_rows=all_rows), designs
            )
        )

    def decompose(states, params, *design):
        columns, found = design[-1].shape[1], {}
        fit = columns * sum(lengths.values()) * _CHUNK <= _VALUES
        arrays = tuple(backend.asarray(np.array(part)) for part in design)
        for names in [tuple(lengths)] if fit else [(name,) for name in lengths]:
            if names not in programs:
                programs[names] = program(names)
            values = backend.to_numpy(programs[names]({name: states[name] for name in names}, params, arrays))
            ends = np.cumsum([lengths[name] for name in names])[:-1]
            found |= dict(zip(names, np.split(values, ends, axis=-1), strict=True))
        return found

    return decompose


def _joined(estimators):
    """Estimators as one, whose gradient has the blocks of all of them."""
    problem = next(iter(estimators.values())).problem
    blocks = {(name, block): size for name, one in estimators.items() for block, size in one.problem.blocks.items()}

    def estimate(states, params, noise):
        gradients = {name: one.estimate(states[name], params, noise)[0] for name, one in estimators.items()}
        return {(name, block): gradients[name][block] for name, block in blocks}, states

    return SimpleNamespace(problem=SimpleNamespace(backend=problem.backend, blocks=blocks), estimate=estimate)


def samples(problem, found: Mapping[str, np.ndarray], run: int = 0):
    """Single-row components by estimator, block and design: the values behind means and intervals.

    Args:
        problem: defines the blocks: the guide's, and each of them for each latent site if there are several.
        found: ``{estimator: (replicates, 3, parameters)}`` single-row components, on the same designs.
        run: number of the run at whose parameters they were evaluated.

    Returns:
        A pandas table with the columns ``method, block, run, replicate`` and a column for each source, nats^2. Where
        all deviations of an estimator are rounding error, its components are zero.
    """
    import pandas as pd

    tables, noisiest = [], np.max([values.sum(1).mean(0) for values in found.values()], axis=0)
    for method, values in found.items():
        least = (_ROUNDING * np.finfo(values.dtype).eps) ** 2 * noisiest  # of the terms that cancel in each parameter
        values = np.where(np.isfinite(least) & (np.abs(values).sum(1).mean(0) <= least), 0, values)
        for block, where in blocks(problem).items():
            parts = values[:, :, where].sum(-1, dtype=np.float64)
            index = {"method": method, "block": block, "run": run, "replicate": np.arange(len(parts))}
            tables.append(pd.DataFrame({**index, **dict(zip(SOURCES, parts.T, strict=True))}))
    return pd.concat(tables, ignore_index=True)


def batch_variances(samples, batch_size: int, rows: int | None = None):
    """Variances of a batch's gradient by source, from one estimator's ``samples`` in one block.

    Args:
        samples: rows of the table ``samples``.
        batch_size: ``B``.
        rows: ``N``, for batches drawn without replacement (reshuffled ones, ``numpyro.plate``): subsampling and
            interaction are then smaller by the factor ``(N - B) / (N - 1)``. Without it, with replacement, as in the
            papers.

    Returns:
        ``{source: values}``, with their sum as ``total``: a value for each run if there are several, averaged over
        its designs; else for each design. These values are independent.
    """
    smaller = 1.0 if rows is None or rows == 1 else (rows - batch_size) / (rows - 1)
    scale = {"subsampling": smaller / batch_size, "monte_carlo": 1.0, "interaction": smaller / batch_size}
    unit = "run" if samples["run"].nunique() > 1 else "replicate"
    means = samples.groupby(unit)[list(SOURCES)].mean()
    parts = {source: means[source].to_numpy(float) * scale[source] for source in SOURCES}
    return {**parts, "total": np.sum(list(parts.values()), axis=0)}


def table(samples, batch_size: int, rows: int | None = None):
    """Variances of a batch's gradient by estimator, block and source, with 95 % intervals.

    Args:
        samples: a table as from ``samples``, of one or more runs.
        batch_size: ``B``.
        rows: as for ``batch_variances``.

    Returns:
        A pandas table with the columns ``method, block, source, variance, low, high, share, share_low,
        share_high, batch_size, runs, replicates``. Shares are of the estimator's total in the block. Intervals are over
        runs if there are several, so that they include what differs from run to run; else over designs.
    """
    import pandas as pd

    out = []
    for (method, block), group in samples.groupby(["method", "block"], sort=False):
        values = batch_variances(group, batch_size, rows)
        for source, sample in values.items():
            out.append(
                {"method": method, "block": block, "source": source,
                 **dict(zip(("variance", "low", "high"), mean_interval(sample), strict=True)),
                 **dict(zip(("share", "share_low", "share_high"), ratio_interval(sample, values["total"]),
                            strict=True)),
                 "batch_size": batch_size, "runs": group["run"].nunique(),
                 "replicates": group["replicate"].nunique()}
            )  # fmt: skip
    return pd.DataFrame(out)


def worth(
    samples, times: Mapping[str, np.ndarray], carried: Mapping[str, float], batch_size: int, rows: int
) -> dict[str, tuple[float, float, float]]:
    """Variance of a step's gradient times the time of a step, relative to ``naive`` or the first, by estimator.

    Args:
        samples: a table as from ``samples``, of one run.
        times: of a step, ``(rounds,)``, relative to the same estimator.
        carried: squared errors carried over from earlier steps, which count as variance.
        batch_size: as for ``batch_variances``.
        rows: as there.

    Returns:
        ``{method: (value, low, high)}``: the variances are means over designs, which estimators share, and the time is
        the median of rounds; the 95 % interval of the product's logarithm adds the errors of both.
    """
    of_all = samples[samples["block"] == "all"]
    totals = {
        method: batch_variances(group, batch_size, rows)["total"] + max(0.0, carried.get(method, 0.0))
        for method, group in of_all.groupby("method", sort=False)
    }
    base, found = "naive" if "naive" in totals else next(iter(totals)), {}
    for method, total in totals.items():
        ratio, low, high = ratio_interval(total, totals[base])
        _, early, late = mean_interval(np.log(times[method]))
        value = float(ratio * np.median(times[method]))
        if not ratio > 0:
            found[method] = value, float("nan"), float("nan")
            continue
        half = float(np.hypot((high - low) / 2 / ratio, (late - early) / 2))
        found[method] = value, value * float(np.exp(-half)), value * float(np.exp(half))
    return found


def blocks(problem) -> dict[str, Any]:
    """Coordinates of the gradient by block: all, each parameter block, and each latent site within it."""
    slices, offset, sites = {"all": slice(0, sum(problem.blocks.values()))}, 0, {}
    for block, size in problem.blocks.items():
        slices[block] = slice(offset, offset + size)
        if len(problem.sites) > 1:
            for site, where in problem.sites.items():
                part = problem.part(block, where)
                sites[f"{block}:{site}"] = slice(offset + part.start, offset + part.stop)
        offset += size
    return slices | sites


def along_run(engine, estimators, *, moments, spec, seed, name, progress=None):
    """The decomposition of several estimators at moments of one or more runs.

    Args:
        engine: runs (one step size, one or more repetitions) of ``following(leader, estimators)``.
        estimators: ``{name: Estimator}``, the same as the engine's.
        moments: epochs at which to decompose, increasing.
        spec: a ``DecompositionSpec``.
        seed: the experiment's.
        name: the problem's name, from which the keys of designs derive: each run has its own designs, the same at
            all moments and for all estimators.
        progress: called with the number of epochs just completed.

    Returns:
        A table as from ``samples``, with columns ``epoch``, ``iteration``, ``end``, ``noise`` and ``particles``.
        Measured between epochs, when tables are complete and SVRG snapshots are at their oldest.
    """
    import pandas as pd

    noises = [(noise.noise, noise.particles) for noise in (spec.noises or {"": engine.settings}).values()]

    def drawn(run, noise, particles):
        return designs(engine.problem, replicates=spec.replicates, columns=spec.columns, rows=spec.rows, cell=spec.cell,
                       noise=noise, particles=particles, key=design_key(seed, name, run))  # fmt: skip

    decompose = decomposer(estimators, all_rows=spec.rows is None)
    state, done, tables = engine.init(), 0, []
    for moment in moments:
        state = engine.advance(state, done, moment - done)
        if progress:
            progress(moment - done)
        done = moment
        where = {"epoch": moment, "iteration": moment * engine.steps, "end": moment == moments[-1]}
        for run, (params, states) in enumerate(_each_run(engine, state)):
            for noise, particles in noises:
                design = drawn(run, noise, particles)
                rows = samples(engine.problem, decompose(states, params, *design), run)
                for position, (key, value) in enumerate({**where, "noise": noise, "particles": particles}.items()):
                    rows.insert(position, key, value)
                tables.append(rows)
    return pd.concat(tables, ignore_index=True)


def _each_run(engine, state):
    """Parameters and states of the estimators of every repetition, at the engine's only step size."""
    for part, (_, repetitions) in zip(state, engine.parts, strict=True):
        for at in range(repetitions.stop - repetitions.start):
            yield engine.backend.tree_map(lambda leaf, at=at: leaf[0, at], (part.params, part.estimator))


def moments(epochs: int, points: int) -> list[int]:
    """The start, ``points`` epochs spaced geometrically, and the end; the end alone without points.

    >>> moments(100, 3), moments(100, 0)
    ([0, 1, 10, 100], [100])
    """
    return [epochs] if not points else sorted({0, epochs, *(round(e) for e in np.geomspace(1, epochs, points))})


def design_key(seed: int, name: str, run: int = 0):
    """The key of a problem's designs at the parameters of a run."""
    return named_key(seed, name, "decomposition", *([run] if run else []))
