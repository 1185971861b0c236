# What runs, read once from params.yaml and workflow/experiments; functions from a job's names to its files,
# its spec and its cost. No rules here.

import math
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from lowvar.datasets.catalogue import DATASETS
from lowvar.datasets.prepare import SCALINGS
from lowvar.errors import UserError, unknown_name
from lowvar.studies.load import SCALES, load_experiment, validated
from snakemake.exceptions import WorkflowError

NAME = "[A-Za-z0-9_]+"


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


def prepared(data):
    """The file of a problem's prepared data, if it stands on any."""
    return [f"{DATA}/prepared/{data.dataset}-{data.scaling}.npz"] if data else []


def problem_data(w):
    return prepared(EXPERIMENTS[w.experiment].data(w.problem))


def problem_source(w):
    """What a run reads: the points that were drawn for its problem, or its data."""
    drawn = EXPERIMENTS[w.experiment].drawn_from(w.problem)
    return [f"{RESULTS}/{w.experiment}/samples/{drawn}/samples.npz"] if drawn else problem_data(w)


def data_of(name):
    """The prepared data that an experiment stands on."""
    experiment = EXPERIMENTS[name]
    return sorted({path for problem in experiment.problems for path in prepared(experiment.data(problem))})


def samples_of(name):
    """The points that an experiment draws for its problems."""
    return [f"{RESULTS}/{name}/samples/{problem}/samples.npz" for problem in EXPERIMENTS[name].samples()]


def study_of(w):
    """The study that chooses the settings of a run, its own or that of another method."""
    experiment = EXPERIMENTS[w.experiment]
    searched = experiment.study_of(w.problem, w.method, w.backend) if experiment.family == "variational" else None
    return [study(w.experiment, *searched)] if searched else []


def study(name, problem, method, backend):
    """The file of a study."""
    return f"{RESULTS}/{name}/runs/{problem}/{method}-{backend}/tuning/study.parquet"


def studies_of(name):
    """The studies that an experiment makes before its runs."""
    experiment = EXPERIMENTS[name]
    return [study(name, *run) for run in (experiment.studies() if experiment.family == "variational" else [])]


def data_option(w, input):
    return f"--data {input[0]}" if input else ""


def run_options(w, input):
    """What a run reads; one string, so that a run without a study has the parameters that it always had."""
    given = {"--data": input.get("source"), "--study": input.get("study")}
    return " ".join(f"{option} {path}" for option, path in given.items() if path)


def runs_of(name):
    """The files that the runs and decompositions of an experiment leave."""
    experiment, folder = EXPERIMENTS[name], f"{RESULTS}/{name}"
    return [f"{folder}/runs/{p}/{m}-{b}/trace.parquet" for p, m, b in experiment.runs()] + [
        f"{folder}/decomposition/{p}/decomposition.parquet" for p in experiment.decompositions()
    ]


def results_of(name):
    """The tables, figures and claims of an experiment."""
    experiment, folder = EXPERIMENTS[name], f"{RESULTS}/{name}"
    tables = [f"tables/{table}.csv" for table in experiment.tables]
    of_times = [kind for kind, table in experiment.figures.items() if "seconds" in (kind, table)]
    figures = [f"figures/{kind}.svg" for kind in experiment.figures if kind not in of_times]
    timed = ["tables/seconds.csv", *(f"figures/{kind}.svg" for kind in of_times)]
    timed = timed if of_times and timed_here(name) else []
    return [f"{folder}/{path}" for path in (*tables, *figures, "claims.csv", *timed)]


def claims_of(w):
    """The published claims that an experiment is judged by, if there are any."""
    path = Path(f"workflow/claims/{w.experiment}.yaml")
    return [str(path)] if path.is_file() else []


def timed_here(name):
    """Not for runs that `dvc pull` brought: wall times stay on the machine that measured them."""
    traces = [Path(path) for path in runs_of(name) if path.endswith("trace.parquet")]
    return not any(path.exists() and not path.with_name("timing.parquet").exists() for path in traces)


def tables_of(name, *tables):
    """Tables of an experiment, for programs; all that it has if none is named."""
    return [f"{RESULTS}/{name}/tables/{table}.parquet" for table in tables or EXPERIMENTS[name].tables]


def table_of_figure(w):
    return tables_of(w.experiment, EXPERIMENTS[w.experiment].figures.get(w.kind, w.kind))


def in_report(name, path, kind, label):
    """An output of an experiment, shown in the report under the experiment's name."""
    stem = {"seconds": "seconds", "claims": "claims"}.get(label, f"{kind}s")
    return report(
        f"{RESULTS}/{name}/{path}",
        caption=f"../report/{stem}.rst",
        category=name,
        subcategory=f"{kind}s",
        labels={kind: label},
    )


def spec_hash(w):
    """Of all that the job's result depends on: Snakemake reruns a job when this changes."""
    names, experiment = w.keys(), EXPERIMENTS[w.experiment]
    if "method" in names:
        return experiment.run(w.problem, w.method, w.backend).hash
    return experiment.decompose(w.problem).hash if "problem" in names else experiment.hash


def tune_hash(w):
    """Of all that a study depends on."""
    return EXPERIMENTS[w.experiment].tune(w.problem, w.method, w.backend).hash


def sample_hash(w):
    """Of all that the points of a problem depend on."""
    return EXPERIMENTS[w.experiment].sample(w.problem).hash


def folder(w, output):
    """The folder of a job's first output."""
    return str(Path(output[0]).parent)


def where(name):
    """The options that tell the analysis commands what to read and where to write."""
    return f"--scale {PARAMS.scale} --results {RESULTS}/{name} --data {PARAMS.data}"


def gpus(w):
    return 1 if PARAMS.device == "gpu" else 0


def cost(w):
    """What a run or a decomposition will take, by its spec."""
    experiment = EXPERIMENTS[w.experiment]
    return experiment.run_cost(w.problem, w.method, w.backend) if "method" in w.keys() else experiment.decompose_cost(w.problem)


def minutes(w, attempt):
    """Wall time to ask a cluster for, with room; a retry asks for more."""
    return attempt * math.ceil(10 + cost(w).operations / 3e8)


def tune_minutes(w, attempt):
    """The same for a study; every trial compiles."""
    experiment = EXPERIMENTS[w.experiment]
    trials = experiment.tune(w.problem, w.method, w.backend).trials
    operations = experiment.tune_cost(w.problem, w.method, w.backend).operations
    return attempt * math.ceil(10 + trials + operations / 3e8)


def sample_minutes(w, attempt):
    """The same for drawing points."""
    return attempt * math.ceil(10 + EXPERIMENTS[w.experiment].sample_cost(w.problem).operations / 3e8)


def megabytes(w, attempt):
    """Memory to ask a cluster for; a retry asks for more."""
    return attempt * math.ceil(2000 + cost(w).memory * 8 / 1e6)
