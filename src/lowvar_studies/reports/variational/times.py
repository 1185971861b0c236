"""The table of the times of single steps, which benchmarks measure."""

import json
from collections.abc import Iterable
from pathlib import Path

from lowvar.errors import UserError
from lowvar_studies.reports.declarations import RUN, Table, columns


def times(files: Iterable[Path], experiment):
    """Rounds of benchmarks of an experiment's problems.

    Args:
        files: as ``benchmarks/steps.py --times`` writes them; those of other problems or settings are left out.
        experiment: the experiment; a problem is the same if model, dataset, optimizer and batch size are.

    Raises:
        UserError: a file of another form.
    """
    out = []
    for path in files:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            about = tuple(kept[name] for name in ("problem", "model", "dataset", "optimizer", "batch_size"))
            rounds = [
                {"problem": about[0], "method": one["method"], "backend": one["backend"], "round": number,
                 "seconds": float(seconds)}
                for one in kept["steps"] for number, seconds in enumerate(one["seconds"])
            ]  # fmt: skip
        except (ValueError, KeyError, TypeError) as error:
            made_by = "benchmarks/steps.py --times"
            raise UserError(f"{path}: not a file of times that {made_by} writes ({error!r})") from error
        if about[0] in experiment.problems:
            model, solver = experiment.model(about[0]), experiment.solver_on(about[0])
            same = about[1:] == (model.model, model.dataset, solver.optimizer, solver.batch_size)
            out += rounds if same else []
    return TIMES.frame(out)


TIMES = Table(
    "times",
    "Times of single steps by a benchmark; each round is a process of its own, which alternates the methods. From "
    "the folder `times` beside the experiments; no rows without it. Claims about time are judged by it alone.",
    columns(RUN, """
    round | int64 | | round of the benchmark, from 0: a process
    seconds | float64 | s | of a step: the median in that process
    """),
    lambda gathered: times(gathered.study.times, gathered.experiment),
    kept=False,
)  # fmt: skip
