"""Runs on the functions ``bbob`` in the format of COCO's data, which ``cocopp`` reads.

``python -m lowvar_studies.jobs.search.coco EXPERIMENT.yaml --scale SCALE --out FOLDER`` writes a folder for each
method. The numbers come from the files of the runs, which repeat byte for byte; so do these. A target counts as met at
the end of the generation that met it, and values between two targets are written as the easier one.

References:
    Hansen, Auger, Finck, Ros, Tusar and Brockhoff, "COCO: performance assessment", and the format ``bbob-new2`` of
    ``coco-experiment``.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.core import artifact
from lowvar.core.files import write_text
from lowvar.errors import UserError
from lowvar_studies.jobs.study import Job, Study

_HEADER = (
    "% f evaluations | g evaluations | best noise-free fitness - Fopt (0.000000000000e+00) + sum g_i+ |"
    " measured fitness | best measured fitness or single-digit g-values"
)
_BELOW = 1 - 1e-9  # a target met: printed with ten digits, it is not above the target


def export(study: Study, out: str | Path) -> list[Path]:
    """Writes COCO's data of all runs of a study on the functions ``bbob``.

    Args:
        study: of the family ``search``, whose runs are complete.
        out: folder of the folders, one for each method and backend.

    Returns:
        The folders, for ``cocopp``.

    Raises:
        UserError: no problem has the function ``bbob``, two have the same number and dimension, or a run is missing or
            stale.
    """
    problems: dict[str, Any] = study.experiment.problems if study.family.name == "search" else {}
    known = {name: spec for name, spec in problems.items() if spec.function == "bbob"}
    if not known:
        raise UserError(f"experiment {study.name!r} has no problem whose function is bbob")
    folders: dict[Path, dict[int, dict[int, Job]]] = {}
    for job in study.jobs("run"):
        problem, method, backend = job.names.values()
        if problem not in known:
            continue
        spec = known[problem]
        folder = Path(out) / (method if backend == "jax" else f"{method}-{backend}")
        dims = folders.setdefault(folder, {}).setdefault(spec.options["number"], {})
        dim = spec.dim or 5
        if dim in dims:
            raise UserError(
                f"experiment {study.name!r}: {problem} and {dims[dim].problem} are the same function in {dim} "
                "dimensions: COCO's data have one"
            )
        dims[dim] = job
    for folder, functions in folders.items():
        for number, jobs in functions.items():
            _function(folder, number, dict(sorted(jobs.items())))
    return list(folders)


def _function(folder: Path, number: int, jobs: dict[int, Job]) -> None:
    """The files of one function: an index, and for each dimension the data by target and by evaluation."""
    index = []
    for dim, job in jobs.items():
        arrays: dict[str, Any] = job.read("params.npz", artifact.read_arrays)[0]
        trace = job.read("trace.parquet")
        first = job.study.experiment.problems[job.problem].options.get("instance", 1)
        stem, ends, parts = f"data_f{number}/bbobexp_f{number}_DIM{dim}", [], {"dat": [], "tdat": []}
        for r in range(len(arrays["evaluations"])):
            rows = list(_by_target(arrays, r))
            spent, gap = rows[-1]
            ends.append(f"{first + r}:{spent}|{gap:.1e}")
            parts["dat"] += [_HEADER, *(_line(*row) for row in rows)]
            own = trace[(trace["repetition"] == r) & (trace["evaluations"] > 0)]
            parts["tdat"] += [_HEADER, *(_line(*row) for row in zip(own["evaluations"], own["best"], strict=True))]
        for ending, lines in parts.items():
            write_text(folder / f"{stem}.{ending}", "\n".join(lines) + "\n")
        about = f"suite = 'bbob', funcId = {number}, DIM = {dim}, Precision = 1.000e-08, algId = '{folder.name}'"
        more = "coco_version = '2.8', logger = 'bbob', data_format = 'bbob-new2', settings = ''"
        index += [f"{about}, {more}", "% lowvar", f"{stem}.dat, {', '.join(ends)}"]
    write_text(folder / f"bbobexp_f{number}.info", "\n".join(index) + "\n")


def _by_target(arrays: dict[str, Any], r: int) -> Iterator[tuple[int, float]]:
    """Evaluations and gaps of repetition ``r``: whenever it met targets, and its end."""
    met, targets = arrays["met_best"][r], arrays["targets"]
    for evaluations in np.unique(met[np.isfinite(met)]):
        yield int(evaluations), float(targets[met == evaluations].min()) * _BELOW
    reached = targets[np.isfinite(met)]
    last = float(reached.min()) * _BELOW if len(reached) else np.inf
    yield int(arrays["evaluations"][r]), min(last, float(arrays["best"][r]))


def _line(evaluations: int, gap: float) -> str:
    return f"{evaluations} 0 {gap:+.9e} {gap:+.9e} {gap:+.9e}"


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lowvar_studies.jobs.search.coco", description=__doc__)
    parser.add_argument("experiment", metavar="EXPERIMENT.yaml")
    parser.add_argument("--scale", default="quick", help="smoke, quick or paper (default: %(default)s)")
    parser.add_argument("--results", help="folder of the experiment's results (default: results/SCALE/NAME)")
    parser.add_argument("--out", default="exdata", help="folder (default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        for folder in export(Study.load(args.experiment, args.scale, args.results), args.out):
            print(folder)
    except UserError as error:
        print(f"lowvar: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
