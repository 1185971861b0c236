"""A small table for each figure, with the columns that its declaration lists."""

import functools
import itertools

import numpy as np
import pandas as pd

from lowvar_studies.jobs.load import FAMILIES

DEFAULTS = {"backend": "jax", "status": "ok", "noise": "iid", "repetitions": 6, "particles": 1, "batch_size": 5, "dim": 100,
            "optimum": 0.0, "diverged": 0, "failed": 0, "unresolved": 0, "derived": False, "truth_error": 0.0}  # fmt: skip
TYPES = {"float64": 1.0, "int64": 1, "bool": True, "string": "some"}


def table(family, name, axes, **values):
    """Rows of a declared table for all combinations of ``axes``.

    A column is a value, or a function of the frame with the columns before it. Intervals extend a tenth of the
    statistic to both sides; other columns have the values of ``DEFAULTS`` and ``TYPES``.
    """
    declared = next(one for one in FAMILIES[family].tables if one.name == name)
    frame = pd.DataFrame(list(itertools.product(*axes.values())), columns=list(axes))
    for column, value in values.items():
        frame[column] = value(frame) if callable(value) else value
    for one in declared.columns:
        if one.name in frame:
            continue
        stem, _, end = one.name.rpartition("_")
        of = (f"{stem}_mean", f"{stem}_median", stem) if stem else ("mean", "variance", "mae")
        middle = next((frame[column] for column in of if column in frame), None)
        if end in ("low", "high") and middle is not None:
            frame[one.name] = middle + (0.1 if end == "high" else -0.1) * middle.abs()
        else:
            frame[one.name] = DEFAULTS.get(one.name, TYPES[one.dtype])
    return frame[[one.name for one in declared.columns]]


# variational ------------------------------------------------------------------------------------------------------

METHODS = ("naive", "stl", "cv", "joint", "joint_svrg")
SOURCES = ("subsampling", "monte_carlo", "interaction")
SONAR = {"naive": (2.02e4, 1.13e4, 0.89e4), "stl": (2.02e4, 1.06e4, 0.90e4), "cv": (2.02e4, 3.5e2, 4.5e2),
         "joint": (1.6e2, 1.1e3, 2.4e2), "joint_svrg": (1.9e2, 1.2e3, -1.1e1)}  # fmt: skip
RATE = {"naive": 1.0, "stl": 1.02, "cv": 1.9, "joint": 14.0, "joint_svrg": 12.0}
STEPS = (7.5e-3, 5e-3, 2.5e-3, 5e-4, 1e-4, 1e-5)
LEVELS = ("mc", "rqmc", "mlmc")
STOPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


@functools.cache
def decomposition(problems=("sonar", "australian"), methods=METHODS, epochs=(0, 1, 2, 4, 8, 16, 32, 64)):
    def variance(row):
        parts = SONAR.get(row["method"], (9e3, 5e3, 2e3))
        early = 1 + 30 / (1 + 3 * row["epoch"]) * (1 if row["method"].startswith("joint") else 0.1)
        value = sum(parts) if row["source"] == "total" else parts[SOURCES.index(row["source"])]
        return value * early * {"all": 1.0, "mu": 0.4}[row["block"]]

    axes = {
        "problem": problems,
        "epoch": epochs,
        "method": methods,
        "block": ("all", "mu"),
        "source": ("total", *SOURCES),
    }
    return table(
        "variational", "decomposition", axes, iteration=lambda frame: 42 * frame["epoch"],
        end=lambda frame: frame["epoch"] == epochs[-1], variance=lambda frame: frame.apply(variance, axis=1),
        share=lambda frame: frame["variance"] / frame.groupby([*list(axes)[:-1]])["variance"].transform("first"),
    )  # fmt: skip


@functools.cache
def convergence(
    problems=("sonar", "australian"), methods=METHODS, backends=("jax",), optimum=-154.13, name="convergence"
):
    rate, cost = {**dict.fromkeys(methods, 4.0), **RATE}, {one: 1 + rank for rank, one in enumerate(methods)}

    def lost(frame):
        apart = frame["step_size"] / (1.2e-3 * frame["method"].map(rate) ** 0.5)
        return np.select([frame["epoch"] == 0, apart > 2, apart > 1], [0, 10, 3])

    def gap(frame):
        floor = 4e3 * frame["step_size"] / frame["method"].map(rate)
        gap = 1e4 * np.exp(-np.minimum(frame["epoch"] * 4e3 * frame["step_size"], 60)) + floor
        return (gap + 2e2 / (1 + frame["epoch"]) ** 2).where(frame["diverged"] < 10)

    axes = {"problem": problems, "method": methods, "backend": backends, "step_size": STEPS,
            "epoch": (0, *(2**k for k in range(8)))}  # fmt: skip
    found = table(
        "variational", name, axes, iteration=lambda frame: 42 * frame["epoch"], repetitions=10, diverged=lost,
        gap_mean=gap, elbo_mean=lambda frame: optimum - frame["gap_mean"],
        passes=lambda frame: frame["epoch"] * frame["method"].map(cost).astype(float),
        oracles=lambda frame: (208 * frame["passes"]).astype(int),
        seconds=lambda frame: 0.02 * frame["passes"],
    )  # fmt: skip
    return with_envelope(found)


def with_envelope(frame):
    """The same with the column ``envelope`` anew: the smallest gap at each epoch, or the largest ELBO."""
    distance = frame["gap_mean"].where(frame["gap_mean"].notna(), -frame["elbo_mean"])
    there = distance[np.isfinite(distance)]
    nearest = there.groupby([frame[name] for name in ("problem", "method", "backend", "epoch")]).idxmin()
    return frame.assign(envelope=frame.index.isin(nearest))


def without_optimum(**options):
    """The same where the optimum is not known."""
    return with_envelope(convergence(**options).assign(gap_mean=np.nan, gap_low=np.nan, gap_high=np.nan))


def schemes(problems=("sonar", "australian"), methods=METHODS):
    factor, rank = {"iid": 1.0, "antithetic": 0.6, "rqmc": 0.25}, {one: 1 + rank for rank, one in enumerate(methods)}
    axes = {"problem": problems, "particles": (8, 64), "noise": tuple(factor), "method": methods, "block": ("all",),
            "source": ("total", *SOURCES)}  # fmt: skip
    return table("variational", "schemes", axes,
                 to_iid=lambda frame: frame["noise"].map(factor) ** (1 / frame["method"].map(rank)))  # fmt: skip


@functools.cache
def diagnostics(problems=("hlr", "blr"), methods=LEVELS):
    """Of a method with carryover: a conditional variance that falls with the schedule, and an error that does not."""
    conditional = {**dict.fromkeys(methods, 1e-3), "mc": 1.0, "rqmc": 0.1, "mlmc": 1e-4}
    true = {**dict.fromkeys(methods, 5.0), "mc": 1.0, "rqmc": 0.1, "mlmc": 70.0}

    def mean(row):
        t, method = row["epoch"], row["method"]
        eta = 0.5 ** (t // 200) if method.startswith("mlmc") else 1.0
        variance, error = (400 * (kind[method] if t else 1.0) for kind in (conditional, true))
        variance, signal = variance * eta**2, 2e5 * np.exp(-min(2 * row["step_size"] * t**0.5, 6))
        return {"variance": variance, "squared_error": error, "snr_conditional": signal / variance**0.5,
                "snr_true": signal / error**0.5, "particles": np.ceil(100 * eta),
                "test_log_likelihood": -0.6 - np.exp(-30 * row["step_size"] * t**0.5) - 1e-4 * error}[row["quantity"]]  # fmt: skip

    quantities = ("variance", "squared_error", "snr_conditional", "snr_true", "particles", "test_log_likelihood")
    axes = {"problem": problems, "method": methods, "step_size": (0.01, 0.001), "epoch": STOPS, "quantity": quantities}
    return table("variational", "diagnostics", axes, best=lambda frame: frame["step_size"] == 0.01,
                 iteration=lambda frame: frame["epoch"], mean=lambda frame: frame.apply(mean, axis=1))  # fmt: skip


def fractions():
    worth = {"mc": 0.0, "rqmc": 0.004, "mlmc": 0.02}
    return table(
        "variational", "fractions", {"fraction": (1.0, 0.8, 0.6, 0.4, 0.2, 0.1), "method": LEVELS},
        problem=lambda frame: frame["fraction"].map("fashion_{}".format), task="blr_softmax on fashion_mnist",
        mean=lambda frame: -0.5 - 0.08 / frame["fraction"] ** 0.5 + frame["method"].map(worth),
        low=lambda frame: frame["mean"] - 0.004, high=lambda frame: frame["mean"] + 0.004,
    )  # fmt: skip


def sensitivity(problems=("hlr", "blr")):
    def below(frame):
        step, drop = np.log10(frame["step_size"] / 0.01), np.log(frame["r"] / 100) / 3
        far = 40 * ((frame["beta"] - 0.7) ** 2 + drop**2 + step**2) ** 2
        return far.where((frame["beta"] < 1) | (frame["step_size"] < 1), np.inf)

    axes = {"problem": problems, "step_size": (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "beta": (0.1, 0.4, 0.7, 1.0),
            "r": (10, 50, 100, 250, 500)}  # fmt: skip
    return table("variational", "sensitivity", axes, below=below, elbo_mean=lambda frame: -100 - frame["below"],
                 elbo_low=lambda frame: frame["elbo_mean"] - 0.1, elbo_high=lambda frame: frame["elbo_mean"] + 0.1)  # fmt: skip


# search -----------------------------------------------------------------------------------------------------------

NEEDED = {"fast_ingo": 5e4, "igo": 1e12, "reinforce_gd": 1e12, "pycma": 3e5}  # evaluations to the target 1e-10
STALL = {
    "ellipsoid": dict.fromkeys(NEEDED, 0.0),
    "rastrigin10": {"fast_ingo": 9.0, "igo": 300.0, "reinforce_gd": 9.0, "pycma": 200.0},
}
BUDGET = 1.4e6


@functools.cache
def curves(problems=tuple(STALL), methods=tuple(NEEDED), name="curves"):
    """Gaps that fall by 16 decades in the needed evaluations or stall; one method diverges, one ends at the target."""
    generations = np.unique(np.r_[0, np.geomspace(1, BUDGET // 18, 60).astype(int)])

    def gap(row):
        if row["diverged"]:
            return np.inf
        stall = STALL.get(row["problem"], {}).get(row["method"], 1.0)
        return max(10 ** (6 - 16 * row["evaluations"] / NEEDED.get(row["method"], 2e5)), 1e-15) + stall

    found = table(
        "search", name, {"problem": problems, "method": methods, "iteration": generations},
        evaluations=lambda frame: 18 * frame["iteration"], budget=int(BUDGET),
        diverged=lambda frame: 6 * ((frame["method"] == "reinforce_gd") & (frame["iteration"] > 50)),
        f_median=lambda frame: frame.apply(gap, axis=1), seconds=lambda frame: 1e-6 * frame["evaluations"],
    )  # fmt: skip
    met = (found["f_median"] <= 1e-10).groupby([found["problem"], found["method"]]).cumsum()
    return found[met < 2].reset_index(drop=True)


def returns():
    """Of policies, whose optimum is not known."""
    axes = {"problem": ("swimmer", "half_cheetah"), "method": ("fast_ingo", "es"), "iteration": np.arange(0, 500, 25)}
    return table("search", "curves", axes, evaluations=lambda frame: 40 * frame["iteration"], optimum=np.nan,
                 f_median=lambda frame: -300 * (1 - np.exp(-frame["iteration"] / 120)) * (1 + (frame["method"] == "es")))  # fmt: skip


def discrete():
    """Gaps that become zero."""
    axes = {
        "problem": ("binary_100", "binary_500"),
        "method": ("ingo_binary", "pymoo_ga"),
        "iteration": np.arange(0, 400, 20),
    }
    return table("search", "curves", axes, evaluations=lambda frame: 72 * frame["iteration"],
                 f_median=lambda frame: np.maximum(80 * np.exp(-frame["evaluations"] / 2e3) - 0.02, 0))  # fmt: skip


@functools.cache
def targets(problems=tuple(STALL), methods=tuple(NEEDED)):
    def evaluations(row):
        needed = (
            np.inf
            if STALL.get(row["problem"], {}).get(row["method"], 0.0) > row["target"]
            else NEEDED.get(row["method"], 2e5)
        )
        needed *= (6 - np.log10(row["target"])) / 16
        return needed if needed < BUDGET else np.inf

    axes = {"problem": problems, "method": methods, "of": ("mean", "best"), "target": 10.0 ** np.arange(2, -11, -2)}
    return table("search", "targets", axes, evaluations_median=lambda frame: frame.apply(evaluations, axis=1), budget=int(BUDGET),
                 reached=lambda frame: 6 * np.isfinite(frame["evaluations_median"]))  # fmt: skip


def scaling(dims=(10, 100, 1000)):
    power = {"fast_ingo": 1.0, "ingo": 2.1, "pycma": 1.8}
    axes = {"dim": dims, "method": tuple(power), "target": (1e-10,)}
    return table(
        "search", "targets", axes, problem=lambda frame: frame["dim"].map("ellipsoid_{}".format), of="mean", budget=int(1e8),
        evaluations_median=lambda frame: (500 * frame["dim"] ** frame["method"].map(power)).where(lambda each: each < 2e8, np.inf),
        reached=lambda frame: 6 * np.isfinite(frame["evaluations_median"]),
    )  # fmt: skip


def profiles(name, of, problems):
    axes = {
        "problem": problems,
        "method": ("fast_ingo", "pycma"),
        "evaluations_per_dim": 10.0 ** np.arange(-1, 4.1, 0.2),
    }
    return table("search", name, axes, of=of, budget_per_dim=1e4,
                 share=lambda frame: np.clip(np.log10(frame["evaluations_per_dim"]) / 4, 0, 1))  # fmt: skip


def regret():
    """Errors that are powers of the number of generations."""
    axes = {"problem": ("sphere", "elastic_net"), "method": ("ingo_first_order", "ingo_zeroth_order"),
            "of": ("average", "last"), "iteration": np.unique(np.geomspace(1, 1e5, 60).astype(int))}  # fmt: skip
    power = {"average": -1.0, "last": -1.75}
    return table("search", "regret", axes, gap_mean=lambda frame: 2.0 * frame["iteration"] ** frame["of"].map(power),
                 fitted=lambda frame: frame["iteration"] >= 1000)  # fmt: skip


def gradients():
    """Of a function that is odd for the most part."""
    ratio, share = {"iid": 1.0, "antithetic": 1.8, "orthogonal": 0.4, "rqmc": 0.6}, {"mu": 0.9, "sigma": 0.15}
    axes = {"problem": ("ellipsoid", "levy"), "sigma": (0.1, 0.5), "population": (4, 18, 100), "scheme": tuple(ratio),
            "baseline": ("none", "mean"), "block": ("mu", "sigma"), "source": ("total", "odd", "even")}  # fmt: skip

    def variance(frame):
        odd, source = frame["block"].map(share), frame["source"]
        return (
            frame["to_iid"] / frame["population"] * np.select([source == "odd", source == "even"], [odd, 1 - odd], 1.0)
        )

    return table("search", "decomposition", axes, to_iid=lambda frame: frame["scheme"].map(ratio), variance=variance)


# integral ---------------------------------------------------------------------------------------------------------

MAE = {"monte_carlo": 6.4, "control_functional": 2.2, "vector_valued": 0.27, "paper_vv": 3.7}
POWER = {"monte_carlo": 0.5, "control_functional": 2.0, "vector_valued": 2.5, "paper_vv": 0.6}
INTEGRALS = {"problem": ("borehole",), "task": ("f_L", "f_H"), "method": tuple(MAE), "sizes": ("10", "20", "50", "150")}


def mae(frame):
    """Mean absolute errors that fall with the number of points."""
    start, power = (frame["method"].map(known).fillna(1.0) for known in (MAE, POWER))
    return start * (10 / frame["m"]) ** power


def integral(name, axes, **values):
    """A table of errors by sizes."""
    return table("integral", name, axes, m=lambda frame: frame["sizes"].astype(int), points=lambda frame: 2 * frame["m"],
                 backend="torch", mae=mae, **values)  # fmt: skip


@functools.cache
def errors(methods=tuple(MAE)):
    return integral("errors", INTEGRALS | {"method": methods})


def coverage():
    """Of one method without standard errors."""
    share = dict(zip(MAE, (0.95, 0.9, 1.0, np.nan), strict=True))
    return integral("errors", INTEGRALS, coverage=lambda frame: frame["method"].map(share),
                    coverage_high=lambda frame: np.minimum(frame["coverage"] + 0.02, 1))  # fmt: skip


@functools.cache
def estimates(methods=tuple(MAE), problems=("borehole",), tasks=("f_L", "f_H")):
    axes = INTEGRALS | {"problem": problems, "task": tasks, "method": methods, "repetition": range(12)}
    return integral(
        "estimates", axes, truth=72.8786,
        error=lambda frame: (0.3 + np.random.default_rng(0).standard_normal(len(frame))) * frame["mae"],
        value=lambda frame: frame["truth"] + frame["error"],
    )  # fmt: skip


def split():
    return integral("decomposition", INTEGRALS, variance=lambda frame: frame["mae"] ** 2,
                    bias2=lambda frame: 0.2 * frame["variance"], mse=lambda frame: 1.2 * frame["variance"])  # fmt: skip


def seconds():
    axes = {name: values for name, values in INTEGRALS.items() if name != "task"}
    return integral(
        "seconds", axes, task="f_H", seconds_per_repetition=lambda frame: 1e-4 * frame["points"] / POWER["paper_vv"]
    )


def fits():
    axes = {
        "problem": ("step",),
        "task": ("f_L", "f_H"),
        "method": ("control_functional", "vector_valued"),
        "x": np.linspace(-4, 4, 81),
    }
    curve = table("integral", "fits", axes, kind="curve", f=lambda frame: np.where(frame["x"] >= 0, 2.0, -1.0),
                  fitted=lambda frame: 0.5 + np.tanh(frame["x"]), density=lambda frame: np.exp(-(frame["x"] ** 2) / 2))  # fmt: skip
    point = curve.groupby(["task", "method"]).head(60).groupby(["task", "method"]).tail(20)
    return pd.concat([curve, point.assign(kind="point", fitted=np.nan, density=np.nan)], ignore_index=True)


def kernels():
    grid = np.linspace(-3, 3, 21)
    return table("integral", "kernels", {"kernel": ("squared exponential", "polynomial, degree 1"), "x": grid, "y": grid},
                 value=lambda frame: np.exp(-((frame["x"] - frame["y"]) ** 2)) * frame["x"] * frame["y"])  # fmt: skip


def scores():
    return table("integral", "scores", {"target": range(7), "x": np.linspace(0.3, 3.0, 20)},
                 temperature=lambda frame: (frame["target"] / 6) ** 5,
                 score=lambda frame: -1 / frame["x"] + 300 * frame["temperature"] * (1 - frame["x"]))  # fmt: skip


def predictive():
    return table("integral", "predictive", {"series": ("hare", "lynx"), "time": np.arange(1900, 1921, 0.5)},
                 mean=lambda frame: 30 * np.exp(np.sin(frame["time"] / 2)),
                 observed=lambda frame: frame["mean"].where(frame["time"] % 1 == 0),
                 task=lambda frame: (frame["series"] == "hare") & (frame["time"] > 1915))  # fmt: skip


def epochs():
    axes = {"problem": ("step, polynomial", "step, squared exponential"), "method": ("paper_cf", "paper_vv"),
            "part": np.arange(1, 41) / 40}  # fmt: skip
    return table("integral", "epochs", axes, mae=lambda frame: 0.03 + 0.1 * np.exp(-10 * frame["part"]))


# the tables that figures are drawn from
TABLES = {
    **{("variational", name): decomposition for name in ("shares", "along", "split_along")},
    **{("variational", name): convergence for name in ("convergence", "iterations", "steps", "work")},
    **{("variational", name): diagnostics for name in ("variance", "snr", "particles", "test", "rates")},
    **{("variational", name): functools.partial(convergence, name="seconds") for name in ("cost", "seconds")},
    ("variational", "schemes"): schemes,
    ("variational", "sizes"): fractions,
    ("variational", "sensitivity"): sensitivity,
    ("search", "effort"): targets,
    ("search", "curves"): curves,
    ("search", "profiles"): functools.partial(profiles, "profiles", "mean", ("all", "ellipsoid", "levy")),
    ("search", "groups"): functools.partial(profiles, "groups", "best", ("all", "smooth")),
    ("search", "scaling"): scaling,
    ("search", "rates"): regret,
    ("search", "gradients"): gradients,
    ("search", "seconds"): functools.partial(curves, name="seconds"),
    ("integral", "errors"): errors,
    ("integral", "coverage"): coverage,
    ("integral", "boxes"): estimates,
    ("integral", "split"): split,
    ("integral", "fits"): fits,
    ("integral", "stein_kernels"): kernels,
    ("integral", "epochs"): epochs,
    ("integral", "power_scores"): scores,
    ("integral", "predictive"): predictive,
    ("integral", "seconds"): seconds,
}
