"""Error and time of integrators on the borehole function, and how often intervals cover and wrong scores are found.

``table``: m points of each of two models of the borehole function (Sun, Barp and Briol, Table 2): mean absolute error
of the good model over 100 repetitions, and CPU seconds of one, among 25 at once. ``same_points``: ten tasks at 500
shared points in eight dimensions, hyper-parameters included. ``coverage`` and ``scores`` fill the tables of
``docs/integrating-samples.md``. One thread of one core, float64.
"""

import time

import common  # noqa: F401  first: it limits the libraries to one thread
import numpy as np
from common import REPOSITORY, arguments, fill, finish, one_core, sized, table

PAGE = REPOSITORY / "docs/integrating-samples.md"
SIZES, CHUNK = (10, 20, 50, 100, 150), 25  # points; repetitions at once
METHODS = ("control_functional", "vector_valued", "paper_vv")
ERRORS = {  # upper limits by m
    "control_functional": {10: 2.4, 50: 0.011, 150: 0.0005},
    "vector_valued": {10: 0.35, 50: 0.0025, 150: 0.0001},
}
SECONDS = {"vector_valued": {10: 0.1, 50: 0.2, 150: 2.0}}
SHARED = 1.0  # seconds of ten tasks at 500 shared points


def borehole(size: str) -> list[dict]:
    """Error and time by method and number of points."""
    from lowvar.integrals.base import make
    from lowvar_studies.integrals.catalogue import build
    from lowvar_studies.integrals.samplers import draw

    repetitions, sizes = sized(size, 100, 20, 2), SIZES[: sized(size, None, 3, 1)]
    problem = build("borehole", None)
    samples, truth = draw(problem, "iid", (max(SIZES),) * 2, repetitions, 0, "borehole"), problem.truth(1).value[1]
    errors, seconds = ({m: {} for m in sizes} for _ in range(2))
    for name in METHODS:
        for s, m in enumerate(sizes):
            integrator, values, start = make(name, {}), [], time.process_time()
            for first in range(0, repetitions, CHUNK):
                chosen = slice(first, min(first + CHUNK, repetitions))
                seeds = 1000 * (s + 1) + np.arange(chosen.start, chosen.stop)
                values.append(integrator.integrate(samples.first((m, m)).repetition(chosen), seeds).value[:, 1])
            spent, off = time.process_time() - start, np.abs(np.concatenate(values) - truth)
            errors[m][name] = {"value": float(off.mean())} | bound(ERRORS, name, m)
            seconds[m][name] = {"value": spent / repetitions} | bound(SECONDS, name, m)
    rows = [{"case": f"borehole, m = {m}", "unit": "mean absolute error", "numbers": errors[m]} for m in sizes]
    return rows + [{"case": f"borehole, m = {m}: a repetition", "unit": "CPU s", "numbers": seconds[m]} for m in sizes]


def bound(limits: dict, name: str, m: int) -> dict:
    """The aim of a method at a number of points."""
    limit = limits.get(name, {}).get(m)
    return {} if limit is None else {"most": limit}


def same_points(size: str) -> list[dict]:
    """Ten tasks at shared points."""
    from lowvar.integrals.base import Samples, make

    rng, seconds, tasks, dim = np.random.default_rng(0), [], 10, 8
    m = sized(size, 500, 100, 20)
    x = rng.normal(size=(1, m, dim))
    values = tuple(np.exp(0.3 * x @ rng.normal(size=dim) * (1 + 0.05 * t)) for t in range(tasks))
    samples = Samples((x,) * tasks, (-x,) * tasks, values, shared=True)
    for _ in range(sized(size, 3, 1, 1)):
        start = time.process_time()
        make("vector_valued", {}).integrate(samples, np.array([1]))
        seconds.append(time.process_time() - start)
    numbers = {"vector_valued": {"value": float(np.median(seconds)), "most": SHARED}}
    return [{"case": f"ten tasks at {m} shared points", "unit": "CPU s", "numbers": numbers}]


def coverage(size: str) -> list[dict]:
    """How often 95 % intervals contain the truth, also for integrands that do not suit a kernel."""
    import scipy.stats

    from lowvar.integrals.base import Samples, make
    from lowvar.integrals.cross_fitting import with_unseen

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

    cases = {
        "smooth, 100 of N(0, I)": smooth, "an indicator, the same": indicator, "variance of t(5), 100": t_variance,
        "`exp(x^2 / 3)`, 200 of N(0, 1)": heavy, "ladder of 11 temperatures, 20 at each": ladder,
    }  # fmt: skip
    methods = {"monte_carlo": {}, "auto": {}, "zero_variance": {"order": 2}, "control_functional": {}}
    columns, count = (*methods, "vector_valued"), sized(size, 50, 20, 2)
    shares, errors = [], []
    for label, draw in cases.items():
        drawn = [draw(np.random.default_rng(r)) for r in range(count)]
        stacked = [[np.stack([one[i][t] for one in drawn]) for t in range(len(drawn[0][2]))] for i in range(3)]
        samples = Samples(*map(tuple, stacked), shared=len(stacked[2]) == 1)
        exact, covered, rmse = np.array(drawn[0][3]), {}, {}
        for name in columns if draw is ladder else columns[:-1]:
            found = make(name, methods.get(name, {})).integrate(samples, np.arange(count))
            if name not in ("monte_carlo", "auto"):
                found = with_unseen(found, samples)  # as `integrate` does
            error = found.value - exact
            covered[name], rmse[name] = (np.abs(error) < found.half).mean(), np.sqrt((error**2).mean())
        shares.append([label, *(f"{covered[name]:.2f}" if name in covered else "" for name in columns)])
        errors.append(
            [label, *(f"{rmse[name] / rmse['monte_carlo']:.1g}" if name in rmse else "" for name in columns[1:])]
        )
    heads = [f"`{name}`" + (" 2" if name == "zero_variance" else "") for name in columns]
    show("coverage", table(["integrand, samples", *heads], shares), size)
    show("errors", table(["integrand", *heads[1:]], errors), size)
    return []


def scores(size: str) -> list[dict]:
    """How often the test of the scores rejects them, in 2 dimensions and in 20."""
    import scipy.stats

    from lowvar.integrals.inputs import doubt

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

    cases = {
        "right, N(0, I)": normal(), "right, log of a gamma(2)": gamma(2, 1), "1.1 times too large": normal(1.1),
        "1.3 times too large": normal(1.3), "twice too large": normal(2),
        "shifted by 0.1 standard deviations": normal(shift=0.1), "shifted by 0.3": normal(shift=0.3),
        "right, but one coordinate is cut off above 2 sd": truncated(2), "the same, above 1 sd": truncated(1),
        "without the Jacobian of `log`, gamma(2)": gamma(2, 0), "the same, gamma(20)": gamma(20, 0),
    }  # fmt: skip
    dims, numbers = ((2, 20), (60, 120, 1000, 4000)) if size != "smallest" else ((2,), (60, 120))
    rows, count = [], sized(size, 100, 20, 3)
    for label, draw in cases.items():
        cells = []
        for m in numbers:
            found = [
                [doubt(*draw(np.random.default_rng((r, m)), m, dim)) is not None for r in range(count)] for dim in dims
            ]
            cells.append(", ".join(f"{100 * np.mean(one):.0f}" for one in found))
        rows.append([label, *cells])
    show("scores", table(["scores", *(f"m = {m}" for m in numbers)], rows), size)
    return []


def show(name: str, text: str, size: str) -> None:
    """Prints a table, and fills that of the page if it was measured in full."""
    print(f"\n{text}")
    if size == "full":
        fill(PAGE, name, text)


SECTIONS = {"table": borehole, "same_points": same_points, "coverage": coverage, "scores": scores}


def main() -> None:
    args = arguments(__doc__, "integrals", SECTIONS).parse_args()
    one_core()
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    finish(args, "integrals", [case for name in args.only or SECTIONS for case in SECTIONS[name](args.size)])


if __name__ == "__main__":
    main()
