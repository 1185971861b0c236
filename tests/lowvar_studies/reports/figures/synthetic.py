"""Tables such as the analysis makes them, with the magnitudes of sonar and australian, exactly."""

import numpy as np
import pandas as pd

METHODS = ("naive", "stl", "cv", "joint", "joint_svrg")
# method -> (subsampling, Monte Carlo, interaction) at the end, for sonar
SONAR = {
    "naive": (2.02e4, 1.13e4, 0.89e4),
    "stl": (2.02e4, 1.06e4, 0.90e4),
    "cv": (2.02e4, 3.5e2, 4.5e2),
    "joint": (1.6e2, 1.1e3, 2.4e2),
    "joint_svrg": (1.9e2, 1.2e3, -1.1e1),
    "full_batch": (0.0, 1.13e4, 0.0),
    "mine": (9.0e3, 5.0e3, 2.0e3),
    "her_own": (4.0e2, 3.0e2, 1.0e2),
}
SOURCES = ("subsampling", "monte_carlo", "interaction")


def decomposition(problems=("sonar", "australian"), methods=METHODS, moments=(0, 1, 2, 4, 8, 16, 32, 64), batch=5):
    rows = []
    for rank, problem in enumerate(problems):
        size = (208, 690, 569, 6000, 17000, 10000)[rank % 6]
        scale = np.array([(1, 1, 1), (4.2, 0.2, 0.5), (0.5, 0.5, 0.5), (1e4, 1e3, 1e3), (1, 3, 1), (4e3, 10, 1e2)])[
            rank % 6
        ]
        for epoch in moments:
            for method in methods:
                early = 1 + 30 / (1 + 3 * epoch) * (1 if method.startswith(("joint", "her")) else 0.1)
                for block, part in (("all", 1.0), ("mu", 0.9 if method in ("naive", "stl", "cv") else 0.08)):
                    parts = np.array(SONAR[method]) * scale * early * part
                    total = parts.sum()
                    for source, value in zip(("total", *SOURCES), (total, *parts), strict=True):
                        half = 0.06 * abs(value) + 0.004 * total
                        low, high = value - half, value + half
                        rows.append(
                            {"problem": problem, "epoch": epoch, "iteration": epoch * -(-size // batch),
                             "end": epoch == moments[-1], "method": method, "block": block, "source": source,
                             "variance": value, "low": low, "high": high, "share": value / total,
                             "share_low": low / total, "share_high": high / total, "batch_size": batch}
                        )  # fmt: skip
    return pd.DataFrame(rows)


RATE = {"naive": 1.0, "stl": 1.02, "cv": 1.9, "joint": 14.0, "joint_svrg": 12.0, "mine": 4.0, "her_own": 7.0,
        "full_batch": 2.5}  # fmt: skip
COST = {"naive": 1, "stl": 1, "cv": 2, "joint": 3, "joint_svrg": 4, "mine": 2, "her_own": 3, "full_batch": 6}
STEPS = (7.5e-3, 5e-3, 2.5e-3, 1e-3, 5e-4, 1e-4, 5e-5, 2.5e-5, 1e-5)


def convergence(problems=("sonar", "australian"), methods=METHODS, backends=("jax",), optimum=-154.13, epochs=128):
    moments = [0, *(2**k for k in range(int(np.log2(epochs)) + 1))]
    rows = []
    for rank, problem in enumerate(problems):
        size = (208, 690, 569, 6000, 17000, 10000)[rank % 6]
        for method in methods:
            for backend in backends:
                for step in STEPS:
                    limit = 1.2e-3 * RATE[method] ** 0.5
                    lost = 10 if step > 2 * limit else 3 if step > limit else 0
                    for epoch in moments:
                        floor = 4e3 * step / RATE[method]
                        gap = 1e4 * (1 + rank) * np.exp(-min(epoch * 4e3 * step, 60)) + floor + 2e2 / (1 + epoch) ** 2
                        gap = np.nan if lost == 10 and epoch else gap
                        width = 1.35
                        rows.append(
                            {"problem": problem, "method": method, "backend": backend, "step_size": step,
                             "epoch": epoch, "iteration": epoch * -(-size // 5), "oracles": epoch * size * COST[method],
                             "passes": float(epoch * COST[method]), "gap_mean": gap, "gap_low": gap / width,
                             "gap_high": gap * width, "elbo_mean": optimum - gap, "elbo_low": optimum - gap * width,
                             "elbo_high": optimum - gap / width, "repetitions": 10, "diverged": lost if epoch else 0,
                             "seconds": 0.02 * epoch * COST[method] ** 0.5}
                        )  # fmt: skip
    table = pd.DataFrame(rows)
    last = table[table["epoch"] == moments[-1]]
    keys = ["problem", "method", "backend"]
    best = last.loc[last.groupby(keys)["gap_mean"].idxmin().dropna(), [*keys, "step_size"]].assign(best=True)
    table = table.merge(best, how="left", on=[*keys, "step_size"])
    return with_envelope(table.assign(best=table["best"].notna()))


def with_envelope(table):
    """The same with the column ``envelope`` anew: the smallest gap at each epoch, or the largest ELBO."""
    distance = table["gap_mean"].where(table["gap_mean"].notna(), -table["elbo_mean"])
    there = distance[np.isfinite(distance)]
    nearest = there.groupby([table[name] for name in ("problem", "method", "backend", "epoch")]).idxmin()
    return table.assign(envelope=table.index.isin(nearest))


def without_optimum(**options):
    """The same where the optimum is not known."""
    return with_envelope(convergence(**options).assign(gap_mean=np.nan, gap_low=np.nan, gap_high=np.nan))


def some_diverged(methods, **options):
    """The same with every run of `methods` diverged after the start, at every step size."""
    table = convergence(**options)
    late = (table["epoch"] > 0) & table["method"].isin(methods)
    table.loc[late, [name for name in table if name.startswith(("gap_", "elbo_"))]] = np.nan
    table.loc[late, "diverged"] = table["repetitions"]
    return with_envelope(table.assign(best=table["best"] & ~table["method"].isin(methods)))


def schemes(problems=("sonar", "australian"), methods=METHODS):
    """Variances under three schemes, with 8 and 64 points."""
    factor = {"iid": 1.0, "antithetic": 0.6, "rqmc": 0.25}
    rows = []
    for problem in problems:
        for samples in (1, 8, 64):
            for eps in ("iid",) if samples == 1 else tuple(factor):
                for rank, method in enumerate(methods):
                    ratio = factor[eps] ** (1 / (1 + rank))
                    for source in ("total", *SOURCES):
                        rows.append(
                            {"problem": problem, "noise": eps, "particles": samples, "method": method, "block": "all",
                             "source": source, "variance": 1e4 * ratio / samples, "low": 0.9e4 * ratio / samples,
                             "high": 1.1e4 * ratio / samples, "to_iid": ratio, "to_iid_low": 0.8 * ratio,
                             "to_iid_high": 1.25 * ratio}
                        )  # fmt: skip
    return pd.DataFrame(rows)
