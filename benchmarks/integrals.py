"""Error and time of every integrator on the borehole function, beside the published table, and growth of the time.

Everything runs in this process, on one core. `benchmarks/README.md` says what is counted and why.
Usage: `python benchmarks/integrals.py [--quick | --smallest] [--only SECTION] [--repetitions 100]`.
"""

import os

# one thread each; before the libraries are imported
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()

import argparse
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from performance_sections import aims
from vi_step import add_sizes, sized, write

SIZES = (10, 20, 50, 100, 150)
# Sun, Barp and Briol, Table 2: mean absolute error and its standard error, by size; seconds from Appendix E.4.1
PUBLISHED = {
    "monte_carlo": ((6.42, 0.44), (4.31, 0.31), (2.63, 0.17), (1.83, 0.15), (1.42, 0.10)),
    "paper_cf": ((2.24, 0.16), (1.96, 0.10), (1.76, 0.07), (1.71, 0.05), (1.67, 0.04)),
    "paper_vv_fixed": ((1.94, 0.15), (1.35, 0.10), (1.77, 0.12), (1.65, 0.14), (1.30, 0.09)),
    "paper_vv": ((3.72, 0.27), (1.29, 0.10), (1.04, 0.06), (1.07, 0.06), (0.85, 0.05)),
}
PUBLISHED_SECONDS = {
    "paper_cf": (0.03, 0.1, 0.7, 2.7, 6),
    "paper_vv_fixed": (1.2, 3, 7.5, 17, 29),
    "paper_vv": (2.6, 5, 13.5, 27.6, 49),
}
METHODS = (
    ("monte_carlo", {}),
    ("zero_variance", {"order": 1}),
    ("control_functional", {}),
    ("vector_valued", {}),
    ("paper_cf", {}),
    ("paper_vv_fixed", {}),
    ("paper_vv", {}),
)
CHUNK = 25  # repetitions at once, as in the experiments


def borehole(repetitions: int):
    """The samples of experiment `vvcv`, and the truth of the high-fidelity model."""
    from lowvar.noise.integrals import draw
    from lowvar.problems.integrals.catalogue import build

    problem = build("borehole", None)
    samples = draw(problem, "iid", (max(SIZES),) * 2, repetitions, 0, "borehole")
    return samples, float(problem.truth(1).value[1])


def table(size: str, repetitions: int) -> list[dict]:
    """Mean absolute error and CPU seconds of a repetition, by method and size."""
    from lowvar.estimators.integral.options import make

    samples, truth = borehole(repetitions)
    rows = []
    print(f"\nBorehole, {repetitions} repetitions: mean absolute error of the good model (standard error)")
    print(f"{'method':20}{'m':>5}{'error':>21}{'published':>16}{'aim':>9}{'seconds':>10}{'published':>11}{'aim':>7}")
    for name, options in METHODS:
        for s, m in enumerate(SIZES[: sized(size, None, 3, 1)]):
            integrator, values, start = make(name, options), [], time.process_time()
            for first in range(0, repetitions, CHUNK):
                chosen = slice(first, min(first + CHUNK, repetitions))
                seeds = 1000 * (s + 1) + np.arange(chosen.start, chosen.stop)
                values.append(integrator.integrate(samples.first((m, m)).repetition(chosen), seeds).value[:, 1])
            seconds = (time.process_time() - start) / repetitions
            error = np.abs(np.concatenate(values) - truth)
            row = {"method": name, "m": m, "mae": error.mean(), "mae_se": error.std(ddof=1) / repetitions**0.5,
                   "seconds": seconds}  # fmt: skip
            rows.append(row)
            said = PUBLISHED.get(name, ())[s : s + 1]
            its = PUBLISHED_SECONDS.get(name, ())[s : s + 1]
            aim = aims.INTEGRAL_ERROR.get(name, {}).get(m)
            aimed = aims.INTEGRAL_SECONDS.get(m) if name == "vector_valued" else None
            print(
                f"{name:20}{m:5}{row['mae']:12.3g} ({row['mae_se']:6.2g}){_pair(said):>16}{_or_blank(aim):>9}"
                f"{seconds:10.4f}{_or_blank(its[0] if its else None):>11}{_or_blank(aimed):>7}"
            )
    return rows


def independent(m: int, tasks: int, dim: int, shared: bool = False):
    """Samples of a normal law, ``m`` of each task, at points of its own unless they are shared."""
    from lowvar.problems.integrals.samples import Samples

    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(1, m, dim)) for _ in range(1 if shared else tasks)]
    points = tuple(sets[0 if shared else t] for t in range(tasks))
    values = tuple(np.sin(x.sum(-1) / dim**0.5) + (1 + 0.1 * t) * x[..., 0] ** 2 for t, x in enumerate(points))
    return Samples(points, tuple(-x for x in points), values, shared=shared)


def growth(size: str, repetitions: int) -> list[dict]:
    """CPU seconds by the number of points, tasks and dimensions, and the fitted exponents."""
    from lowvar.estimators.integral.options import make

    cases = {
        "control_functional": ({}, {"m": (50, 100, 200, 400), "tasks": (1, 2, 4), "dim": (2, 4, 8)}, False),
        "vector_valued": ({}, {"m": (25, 50, 100, 200), "tasks": (2, 4, 8), "dim": (2, 4, 8)}, False),
        "vector_valued, same points": ({}, {"m": (125, 250, 500), "tasks": (2, 5, 10), "dim": (2, 4, 8)}, True),
        "paper_vv": ({"rate": 1e-3},  # the paper's rates are those of its own problems
                     {"m": (25, 50, 100, 200), "tasks": (2, 4, 8), "dim": (2, 4, 8)}, False),
    }  # fmt: skip
    usual, rows = {"m": 100, "tasks": 2, "dim": 4}, []
    print("\nHow time grows: CPU seconds of one repetition, and the exponent of a power law fitted to them")
    for label, (options, axes, shared) in cases.items():
        for axis, values in axes.items() if size != "smallest" else [("m", (10, 20))]:
            seconds = []
            for value in values[: sized(size, None, 2, 2)]:
                setting = usual | {axis: value}
                samples = independent(setting["m"], setting["tasks"], setting["dim"], shared)
                integrator = make(label.split(",")[0], options)
                turns = []
                for _ in range(sized(size, 3, 1, 1)):
                    start = time.process_time()
                    integrator.integrate(samples, np.array([1]))
                    turns.append(time.process_time() - start)
                seconds.append(float(np.median(turns)))
            shown = values[: len(seconds)]
            exponent = float(np.polyfit(np.log(shown), np.log(seconds), 1)[0])
            rows.append({"method": label, "axis": axis, "at": list(shown), "seconds": seconds, "exponent": exponent})
            said = ", ".join(f"{at}: {one:.3f}" for at, one in zip(shown, seconds, strict=True))
            print(f"{label:28}{axis:>6}^{exponent:<6.2f}{said}")
    return rows


def same_points(size: str, repetitions: int) -> list[dict]:
    """Ten tasks at 500 shared points in 8 dimensions, hyper-parameters included."""
    from lowvar.estimators.integral.options import make
    from lowvar.problems.integrals.samples import Samples

    rng, seconds = np.random.default_rng(0), []
    tasks, m, dim = 10, sized(size, 500, 100, 20), 8
    x = rng.normal(size=(1, m, dim))
    values = tuple(np.exp(0.3 * x @ rng.normal(size=dim) * (1 + 0.05 * t)) for t in range(tasks))
    samples = Samples((x,) * tasks, (-x,) * tasks, values, shared=True)
    for _ in range(sized(size, 3, 1, 1)):
        start = time.process_time()
        make("vector_valued", {}).integrate(samples, np.array([1]))
        seconds.append(time.process_time() - start)
    print(f"\nShared points, T = {tasks}, m = {m}, d = {dim}: {np.median(seconds):.2f} s "
          f"[{min(seconds):.2f}, {max(seconds):.2f}] (aim {aims.SHARED_POINTS:g}; published: 3435)")  # fmt: skip
    return [{"tasks": tasks, "m": m, "dim": dim, "seconds": seconds}]


def coverage(size: str, repetitions: int) -> list[dict]:
    """How often 95 % intervals contain the truth, also for integrands that do not suit a kernel."""
    import scipy.stats

    from lowvar.estimators.integral.choosing.held_out import with_unseen
    from lowvar.estimators.integral.options import make
    from lowvar.problems.integrals.samples import Samples

    def t_variance(rng):
        x = rng.standard_t(5, size=(100, 1))
        return [x], [-6 * x / (5 + x**2)], [x[:, 0] ** 2], [5 / 3]

    def heavy(rng):
        x = rng.normal(size=(200, 1))
        return [x], [-x], [np.exp(x[:, 0] ** 2 / 3)], [3**0.5]

    def indicator(rng):
        x = rng.normal(size=(100, 2))
        return [x], [-x], [(x[:, 0] > 0.5) * 1.0], [scipy.stats.norm.sf(0.5)]

    def smooth(rng):
        x = rng.normal(size=(100, 2))
        return [x], [-x], [np.exp(0.3 * x[:, 0]) + np.sin(x[:, 1])], [np.exp(0.045)]

    def ladder(rng):
        precision = 1 + 25 * (np.arange(11) / 10) ** 4
        mean = (precision - 1) / precision
        points = [m + rng.normal(size=(20, 1)) / p**0.5 for m, p in zip(mean, precision, strict=True)]
        scores = [-(x - m) * p for x, m, p in zip(points, mean, precision, strict=True)]
        return points, scores, [np.cos(2 * x[:, 0]) for x in points], np.exp(-2 / precision) * np.cos(2 * mean)

    cases = {"smooth, d = 2": (smooth, ()), "variance of t(5)": (t_variance, ()), "exp(x^2 / 3)": (heavy, ()),
             "indicator, d = 2": (indicator, ()), "ladder of 11": (ladder, ("vector_valued",))}  # fmt: skip
    rows, count = [], sized(size, 50, 20, 2)
    print(f"\nShare of 95 % intervals that contain the truth, and the root mean squared error, {count} repetitions")
    for label, (draw, more) in cases.items():
        drawn = [draw(np.random.default_rng(r)) for r in range(count)]
        stacked = [[np.stack([one[i][t] for one in drawn]) for t in range(len(drawn[0][2]))] for i in range(3)]
        samples = Samples(*map(tuple, stacked), shared=len(stacked[2]) == 1)
        exact = np.array(drawn[0][3])
        shown = (*METHODS[:2], ("zero_variance", {"order": 2}), METHODS[2], *((one, {}) for one in more), ("auto", {}))
        for name, options in shown:
            found = make(name, options).integrate(samples, np.arange(count))
            if name not in ("monte_carlo", "auto"):
                found = with_unseen(found, samples)  # as `integrate` does
            error = found.value - exact
            covered = float((np.abs(error) < found.half).mean())
            row = {"case": label, "method": name, "options": options, "coverage": covered,
                   "rmse": float(np.sqrt((error**2).mean()))}  # fmt: skip
            rows.append(row)
            order = f" {options['order']}" if options else ""
            print(f"{label:20}{name + order:22}{covered:6.2f}{row['rmse']:11.2g}")
    return rows


def scores(size: str, repetitions: int) -> list[dict]:
    """How often the test of the scores rejects them."""
    import scipy.stats

    from lowvar.estimators.integral.choosing.score_check import doubt

    def normal(factor=1.0, shift=0.0):
        def draw(rng, m, dim):
            x = rng.normal(size=(m, dim))
            return x, -factor * (x - shift)

        return draw

    def gamma(shape, jacobian):
        def draw(rng, m, dim):
            u = np.log(rng.gamma(shape, size=(m, dim)))
            return u, shape - 1 + jacobian - np.exp(u)

        return draw

    def truncated(at):
        """N(0, I) with one coordinate truncated from above, where its density does not vanish."""

        def draw(rng, m, dim):
            x = rng.normal(size=(m, dim))
            x[:, 0] = scipy.stats.truncnorm.rvs(-np.inf, at, size=m, random_state=rng)
            return x, -x

        return draw

    cases = {"right: N(0, I)": normal(), "right: log gamma(2)": gamma(2, 1),
             "1.1 times too large": normal(1.1), "1.3 times too large": normal(1.3), "twice too large": normal(2),
             "shifted by 0.1 sd": normal(shift=0.1), "shifted by 0.3 sd": normal(shift=0.3),
             "truncated above 2 sd": truncated(2), "truncated above 1 sd": truncated(1),
             "no Jacobian, gamma(2)": gamma(2, 0), "no Jacobian, gamma(20)": gamma(20, 0)}  # fmt: skip
    dims, numbers = ((2, 20), (60, 120, 1000, 4000)) if size != "smallest" else ((2,), (60, 120))
    rows, count = [], sized(size, 400, 100, 3)
    print(f"\nShare of {count} sets of samples whose scores are suspected")
    print(f"{'':26}{'d':>4}" + "".join(f"{f'm = {m}':>10}" for m in numbers))
    for label, draw in cases.items():
        for dim in dims:
            shares = {}
            for m in numbers:
                found = [doubt(*draw(np.random.default_rng((r, m)), m, dim)) is not None for r in range(count)]
                shares[m] = float(np.mean(found))
            rows.append({"case": label, "dim": dim, "shares": shares})
            print(f"{label:26}{dim:4}" + "".join(f"{share:10.3f}" for share in shares.values()))
    return rows


def published(size: str, repetitions: int) -> list[dict]:
    """The published tables beside lowvar's, from finished experiments (`snakemake vvcv_table2 vvcv_lotka ...`)."""
    import pandas as pd

    rows = []
    for scale in ("paper", "quick"):
        found = sorted(Path("results", scale).glob("vvcv*/claims.csv"))
        if found:
            break
    else:
        print("\nNo finished experiments here: snakemake --cores 2 vvcv_table2 vvcv_lotka --config scale=paper")
        return rows
    for path in found:
        claims = pd.read_csv(path)
        claims = claims[claims["published"].notna()]
        print(f"\n{path.parent.name}, scale {scale}: published numbers and aims, and ours [95 % interval]")
        for row in claims.itertuples():
            rows.append({"experiment": path.parent.name, "id": row.id, "published": row.published, "ours": row.ours,
                         "low": row.low, "high": row.high, "verdict": row.verdict})  # fmt: skip
            interval = f"[{row.low:.3g}, {row.high:.3g}]"
            said = f"{row.source[:28]:30}{row.statement[:78]:80}"
            print(f"{said}{row.published:9.4g}{row.ours:10.3g} {interval:22}{row.verdict}")
    return rows


SECTIONS = {
    "table": table, "same_points": same_points, "coverage": coverage, "scores": scores, "growth": growth,
    "published": published,
}  # fmt: skip


def _pair(said):
    return f"{said[0][0]:.2f} ({said[0][1]:.2f})" if said else ""


def _or_blank(value):
    return "" if value is None else f"{value:g}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(parser, "few repetitions, small sizes (about a minute)")
    parser.add_argument("--repetitions", type=int, help="of the table (default: 100, 20 or 2)")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section (may be repeated)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/integrals.json"), help="JSON file")
    args = parser.parse_args(argv)
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    versions = {name: version(name) for name in ("lowvar", "torch", "numpy", "jax")}
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    result: dict = {"versions": versions, "platform": platform.platform(), "sections": {}}
    for name in args.only or SECTIONS:
        result["sections"][name] = SECTIONS[name](args.size, args.repetitions or sized(args.size, 100, 20, 2))
        write(args.out, result)
    print(f"\nwrote {args.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
