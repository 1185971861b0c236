"""Times of a step from kept benchmarks, by which claims about time are judged.

Jobs of an experiment run at different times, beside other jobs, so that their seconds decide nothing. A benchmark such
as ``python benchmarks/joint.py --only steps --out workflow/times/joint.json`` times all methods in turn in one process.
"""

import json

from lowvar.errors import UserError
from lowvar.studies.base import Table, columns


def times(folder):
    """The section ``steps`` of every ``*.json`` in a folder: a row for each task, backend and case.

    Raises:
        UserError: a file is not the output of such a benchmark.
    """
    out = []
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_text())
            load = float(result["environment"]["load_at_start"])
            for key, section in result["sections"]["steps"].items():
                task, _, backend = key.partition("-")
                for row in section["runs"]:
                    out.append({"problem": task, "backend": backend or "jax", "case": row["case"],
                                "ratio": row["ratio"], "low": row["ratio_low"], "high": row["ratio_high"],
                                "rounds": row["calls"], "load": load, "file": path.name})  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: not the output of a benchmark with the section 'steps' ({type(error).__name__}: {error}); "
                f"make it with: python benchmarks/{path.stem}.py --only steps --out {path}"
            ) from error
    return TIMES.frame(out)


TIMES = Table(
    "times",
    "Ratios of times of a step from the benchmarks in `workflow/times`: a row for each task, backend and case.",
    columns("""
    problem | string | | the benchmark's task: the name of the problem in its experiment
    backend | string | | `jax` or `torch`
    case | string | | the method, perhaps with its number of particles
    ratio | float64 | | time of a step divided by that of the benchmark's reference, median over the rounds
    low | float64 | | smallest ratio of a round
    high | float64 | | largest
    rounds | int64 | | alternating rounds
    load | float64 | | load of the machine when the benchmark began
    file | string | | its name
    """),
    lambda gathered: times(gathered.study.times),
    kept=False,
)  # fmt: skip
TABLES = (TIMES,)
