"""A decomposition as text."""

from collections.abc import Mapping

import numpy as np

_NAMES = {"subsampling": "Subsampling", "monte_carlo": "Monte Carlo noise", "interaction": "The interaction"}


def summary(
    table, time, title: str, carried: Mapping[str, float], memories: Mapping[str, str],
    worth: Mapping[str, tuple[float, float, float]],
) -> str:  # fmt: skip
    """The decomposition as text: a line per estimator, then the largest source and the least variance x time.

    A warning on estimators that are clearly worse than the base comes first.

    Args:
        table: of ``Decomposition``; its block ``all`` is used.
        time: time of a step by estimator, relative.
        title: first line.
        carried: squared errors carried over from earlier steps; counted in addition to the variance.
        memories: origins of the estimators' memories, in words.
        worth: of ``crossed.worth``.
    """
    rows = table[table["block"] == "all"].set_index(["method", "source"])
    methods = list(dict.fromkeys(table["method"]))
    base = "naive" if "naive" in methods else methods[0]
    total = {m: rows.loc[(m, "total")] for m in methods}
    error = {m: total[m]["variance"] + max(0.0, carried.get(m, 0.0)) for m in methods}
    renewed = set(table["method"][table["memory"] == "filled"])
    name = max(12, *(len(m) + 2 for m in methods))
    lines = [
        *_worse(methods, base, total, error, memories),
        f"gradient variance of {title}; 95 % intervals",
        "",
        f"{'estimator':<{name}}{'variance':<30}{'subsampling':>12}{'Monte Carlo':>13}{'interaction':>13}"
        f"{'time per step':>15}  {'variance x time'}",
    ]
    for m in methods:
        shares = [rows.loc[(m, source), "share"] for source in ("subsampling", "monte_carlo", "interaction")]
        cells = "".join(f"{_percent(share):>{width}}" for share, width in zip(shares, (12, 13, 13), strict=True))
        label = f"{m}*" if m in renewed else m
        product = "1" if m == base else _product(worth[m])
        lines.append(f"{label:<{name}}{_interval(total[m]):<30}{cells}{time[m] / time[base]:>15.2f}  {product}")
    relative = f"variance x time: of a step's gradient, and of a step, at these parameters, relative to `{base}`"
    lines += ["", relative] if len(methods) == 1 else [
        "",
        f"{relative}. Which",
        "estimator ends a fit best also depends on the rest of the run: compare ELBOs of fits that take as long",
    ]  # fmt: skip
    lines += [
        f"`{m}` carries a squared error of {carried[m]:.3g} from earlier steps, which fresh noise does not show; "
        "it is counted with the variance"
        for m in methods
        if m in carried
    ]
    for words in dict.fromkeys(memories.values()):
        whose = ", ".join(f"`{m}`" for m in methods if memories.get(m) == words)
        star = "* " if any(memories.get(m) == words for m in renewed) else ""
        lines.append(f"{star}memory of {whose}: {words}")
    return "\n".join([*lines, "", _verdict(rows, base, total, error, worth)])


def _worse(methods, base, total, error, memories):
    """A line for each estimator whose error is clearly above the base's."""
    for m in methods:
        if total[m]["low"] + error[m] - total[m]["variance"] > total[base]["high"]:
            whose = (
                f"the memory of `{m}` makes the gradient worse" if m in memories else f"`{m}` makes the gradient worse"
            )
            yield f"Careful: {whose} here: {error[m] / error[base]:.3g} times the squared error of `{base}`"


def _percent(share):
    return (
        "n/a"
        if not np.isfinite(share)
        else f"{abs(round(100 * share)) if abs(share) < 0.005 else round(100 * share)} %"
    )


def _interval(row):
    if not row["variance"] > 0:
        return f"{row['variance']:.1e}" if row["variance"] else "0, up to rounding"
    power = int(np.floor(np.log10(row["variance"])))
    low, high = row["low"] / 10**power, row["high"] / 10**power
    return f"{row['variance'] / 10**power:.2f} [{low:.2f}, {high:.2f}] e{power}"


def _verdict(rows, base, total, error, worth):
    if not error[base] > 0:
        return f"The variance of `{base}` cannot be told from zero here."
    sources = {source: rows.loc[(base, source), "share"] for source in _NAMES}
    main = max(sources, key=sources.__getitem__)
    opening = f"{_NAMES[main]} dominates" if sources[main] > 0.5 else f"{_NAMES[main]} is the largest part"
    opening += f" the noise of `{base}`." if sources[main] > 0.5 else f" of the noise of `{base}`."
    if silent := [m for m in worth if not error[m] > 0]:
        return f"{opening} The variance of {', '.join(f'`{m}`' for m in silent)} cannot be told from zero here."
    if not worth.keys() - {base}:
        return opening
    winner = min(worth, key=lambda m: worth[m][0])
    if not worth[winner][2] < 1:
        return f"{opening} At these parameters, no other estimator has clearly less variance x time."
    less, what = error[base] / error[winner], "variance" if error[winner] == total[winner]["variance"] else "error"
    alike = [m for m in worth if m != winner and m != base and worth[m][1] <= worth[winner][2]]
    beside = f" ({', '.join(f'`{m}`' for m in alike)} may have as little)" if alike else ""
    return (
        f"{opening} At these parameters, `{winner}` has the least variance x time{beside}: {less:.3g} times less "
        f"{what} in a step, {1 / worth[winner][0]:.3g} times less for the same time. Try it in a fit beside "
        f"`{base}` and the default."
    )


def _product(value):
    """A product relative to the base's, with its interval."""
    middle, low, high = value
    return f"{middle:.2g} [{low:.2g}, {high:.2g}]" if low < high else f"{middle:.2g}"
