# What runs, read once from params.yaml and workflow/experiments; functions from a job's names to its files,
# its spec and its cost. No rules here.

import math
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from lowvar.datasets.catalogue import DATASETS
from lowvar.errors import UserError, unknown_name
from lowvar.runs.spec import SCALES, load_experiment, validated
from snakemake.exceptions import WorkflowError

NAME = "[A-Za-z0-9_]+"
FIGURES = {  # each is drawn from one table
    "shares": "decomposition",
    "along": "decomposition",
    "convergence": "convergence",
    "steps": "convergence",
    "seconds": "seconds",
}
TABLES = ("optimum", "convergence", "best", "ends", "decomposition")


class Params(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    experiments: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    scale: Literal[SCALES]
    device: Literal["auto", "cpu", "gpu"] = "auto"
    data: str = "data"
    results: str = "results"


def load_all():
    """The checked params, and every experiment at their scale."""
    if isinstance(config.get("experiments"), str):  # --config experiments=joint
        config["experiments"] = [config["experiments"]]
    params = validated(Params, config, where="params.yaml or --config")
    paths = sorted(Path("workflow/experiments").glob("*.yaml"))
    known = {path.stem: load_experiment(path, params.scale) for path in paths}
    for name in params.experiments:
        if name not in known:
            raise unknown_name("experiment", name, known, where="params.yaml or --config: experiments")
    return params, known


try:
    PARAMS, EXPERIMENTS = load_all()
except UserError as error:
    raise WorkflowError(str(error)) from None

DATA = PARAMS.data
RESULTS = f"{PARAMS.results}/{PARAMS.scale}"
LOGS = f"logs/{PARAMS.scale}"


def prepared(problem):
    return f"{DATA}/prepared/{problem.dataset}-{problem.scaling}.npz"


def problem_data(w):
    return prepared(EXPERIMENTS[w.experiment].problems[w.problem])


def data_of(w):
    return sorted({prepared(problem) for problem in EXPERIMENTS[w.experiment].problems.values()})


def runs_of(name):
    """The files that the runs and decompositions of an experiment leave."""
    e, folder = EXPERIMENTS[name], f"{RESULTS}/{name}"
    jobs = [(p, m, b) for p in e.problems for m in e.methods for b in e.backends]
    return [f"{folder}/runs/{p}/{m}-{b}/trace.parquet" for p, m, b in jobs] + [
        f"{folder}/decomposition/{p}/decomposition.parquet" for p in e.problems
    ]


def results_of(name):
    """The tables, figures and claims of an experiment."""
    folder = f"{RESULTS}/{name}"
    timed = ["seconds"] if timed_here(name) else []
    tables = [f"tables/{table}.csv" for table in [*TABLES, *timed]]
    figures = [f"figures/{kind}.svg" for kind in FIGURES if kind != "seconds" or timed]
    return [f"{folder}/{path}" for path in (*tables, *figures, "claims.csv")]


def claims_of(w):
    """The published claims that an experiment is judged by, if there are any."""
    path = Path(f"workflow/claims/{w.experiment}.yaml")
    return [str(path)] if path.is_file() else []


def timed_here(name):
    """Not for runs that `dvc pull` brought: wall times stay on the machine that measured them."""
    traces = [Path(path) for path in runs_of(name) if path.endswith("trace.parquet")]
    return not any(path.exists() and not path.with_name("timing.parquet").exists() for path in traces)


def table(w, *names):
    """Tables of an experiment, for programs."""
    return [f"{RESULTS}/{w.experiment}/tables/{name}.parquet" for name in names]


def in_report(path, kind, label):
    """An output of an experiment, shown in the report under the experiment's name."""
    stem = {"tables/seconds.csv": "seconds", "claims.csv": "claims"}.get(path, f"{kind}s")
    return report(
        f"{RESULTS}/{{experiment}}/{path}",
        caption=f"../report/{stem}.rst",
        category="{experiment}",
        subcategory=f"{kind}s",
        labels={kind: label},
    )


def run_spec(w):
    return EXPERIMENTS[w.experiment].run(w.problem, w.method, w.backend)


def spec_hash(w):
    """Of all that the job's result depends on: Snakemake reruns a job when this changes."""
    names = w.keys()
    if "method" in names:
        return run_spec(w).hash
    experiment = EXPERIMENTS[w.experiment]
    return experiment.decompose(w.problem).hash if "problem" in names else experiment.hash


def folder(w, output):
    """The folder of a job's first output."""
    return str(Path(output[0]).parent)


def where(w):
    """The options that tell the analysis commands what to read and where to write."""
    return f"--scale {PARAMS.scale} --results {RESULTS}/{w.experiment} --data {PARAMS.data}"


def gpus(w):
    return 1 if PARAMS.device == "gpu" else 0


def cells(problem):
    """Numbers in a dataset, about: its raw files have some five bytes for each."""
    return sum(file.bytes for file in DATASETS[problem.dataset].files) / 5 or 20_000


def run_cost(w):
    """Numbers that a run reads: every lane (step size x repetition) sees the data once an epoch."""
    spec = run_spec(w)
    lanes = len(spec.solver.step_sizes) * spec.solver.repetitions
    slower = 20 if spec.backend == "torch" else 1
    return slower * lanes * spec.solver.epochs * spec.solver.samples * cells(spec.problem)


def decompose_cost(w):
    """The run that is followed, then every design of every method at every point."""
    spec = EXPERIMENTS[w.experiment].decompose(w.problem)
    d = spec.decomposition
    designs = len(spec.methods) * (d.points_along + 1) * d.replicates * d.columns
    return (d.epochs + designs) * cells(spec.problem)


def minutes(cost, attempt):
    """Wall time to ask a cluster for, with room; a retry asks for more."""
    return attempt * math.ceil(10 + cost / 3e8)


def megabytes(cells, attempt):
    """Memory to ask a cluster for; a retry asks for more."""
    return attempt * math.ceil(2000 + cells * 8 * 40 / 1e6)
