# Parameters and studies, read once from params.yaml and the experiments; the jobs of a study have files, commands and
# costs. This file has no rules.

import math
import os
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from lowvar.errors import UserError, file_error, unknown_name
from lowvar_studies.datasets.catalogue import DATASETS
from lowvar_studies.datasets.prepare import SCALINGS
from lowvar_studies.jobs.common_spec import NAME, SCALES, validated
from lowvar_studies.jobs.study import KINDS, Study
from lowvar_studies.yaml_files import read_yaml
from snakemake.exceptions import WorkflowError


# braces are Snakemake's wildcards; dvc.yaml puts paths in single quotes
Folder = Annotated[str, pydantic.Field(pattern=r"^[^{}'\n]+$")]


class Params(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    experiments: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    scale: Literal[SCALES]
    device: Literal["auto", "cpu", "gpu"] = "auto"
    data: Folder = "data"
    results: Folder = "results"
    checkpoints: Folder | None = None
    image: Folder | None = None


GIVEN = "params.yaml or --config" if OWN else "the module's config"


def load_all():
    """The checked parameters, and every experiment at their scale; a user's own is named by its path."""
    for file in filter(os.path.isfile, workflow.configfiles):
        read_yaml(file)  # Snakemake takes the last of two equal keys
    if isinstance(config.get("experiments"), str):  # --config experiments=joint
        config["experiments"] = [config["experiments"]]
    if not OWN:  # a module's `config` has the keys that differ
        config.update({**read_yaml(ROOT / "params.yaml"), **config})
    params = validated(Params, config, where=GIVEN)
    own = [Path(name) for name in params.experiments if name.endswith((".yaml", ".yml"))]
    config["experiments"] = [Path(name).stem if Path(name) in own else name for name in params.experiments]
    params = params.model_copy(update={"experiments": tuple(config["experiments"])})
    for path in own:
        if not path.is_file():
            raise UserError(
                f"{GIVEN}: experiments: {path}: no such file in {Path.cwd()}, where Snakemake runs; give "
                "its absolute path"
            )
        shipped = HERE / f"workflow/experiments/{path.stem}.yaml"
        if shipped.is_file() and shipped.resolve() != path.resolve():
            raise UserError(f"{path}: {shipped} has the same name, so their results would share a folder; rename yours")
    folder = Path(f"{params.results}/{params.scale}")
    studies = {
        path.stem: Study.load(path, params.scale, folder / path.stem, params.data)
        for path in [*sorted((HERE / "workflow/experiments").glob("*.yaml")), *own]
    }
    for name in params.experiments:
        if name not in studies:
            raise unknown_name("experiment", name, studies, where=f"{GIVEN}: experiments")
    return params, studies


try:
    PARAMS, STUDIES = load_all()
except (UserError, OSError) as error:
    raise WorkflowError(str(isinstance(error, OSError) and file_error(error) or error)) from None

DATA = PARAMS.data
RESULTS = f"{PARAMS.results}/{PARAMS.scale}"
LOGS = f"logs/{PARAMS.scale}"
# a study with a wildcard as its name, for the path patterns of rules
ANY = replace(next(iter(STUDIES.values())), results=Path(RESULTS, "{experiment}"))


def paths(files):
    return [str(file) for file in files]


# captions of figures, if Snakemake makes a report
CAPTIONS = None
if workflow.is_main_process and any(argument.startswith("--report") for argument in sys.argv):
    CAPTIONS = tempfile.TemporaryDirectory()


def repository(files):
    """Files that come with the workflow."""
    return [local(str(file)) for file in files]


# ------------------------------------------------------------------------ without a shared folder

# Rules name files as if they were here. With --default-storage-provider, a job finds them below another folder: its
# copies of what it declares. Files of the repository are `local`: Snakemake deploys them with the workflow.
STORED = workflow.storage_settings.default_storage_provider is not None


def above(file, path):
    """The folder, ending in a slash, below which a job finds ``path``, as it does its own ``file``; empty if here."""
    if not str(file).endswith(str(path)):
        raise WorkflowError(f"{path}: without a shared folder, `data` and `results` must be below Snakemake's folder")
    return str(file).removesuffix(str(path))


def unrecorded():
    """Whether results lie here without Snakemake's records, which tell it that an experiment has been edited."""
    if STORED or not workflow.is_main_process or any(Path(".snakemake").glob("metadata*/*")):
        return False
    return any(file.is_file() for name in PARAMS.experiments for file in map(Path, made_by(name, "run")))


def raw_above(path):
    """The folder of raw data, for the rule whose first output is ``path``."""
    return lambda w, output: above(output[0], path.format(**w)) + f"{DATA}/raw"


def study_at(name, file, path):
    """A study whose files are where a job finds them."""
    study, top = STUDIES[name], above(file, path)
    return replace(study, results=Path(f"{top}{study.results}"), data=Path(f"{top}{study.data}"))


def checkpoints_of(job):
    """The option for a job's checkpoint, if it should be in a folder that outlives the job's machine."""
    folder = PARAMS.checkpoints
    if folder is None and workflow.storage_settings.default_storage_provider == "fs":
        folder = workflow.storage_settings.default_storage_prefix or None
    resumes = "timing.parquet" in KINDS[job.kind].records
    return f" --checkpoints {shlex.quote(f'{folder}/{job.folder}')}" if folder and resumes else ""


# ------------------------------------------------------------------------ jobs of a study, by a rule's wildcards


def job(kind):
    """The job of a kind that a rule's wildcards name."""
    return lambda w: STUDIES[w.experiment].job(kind, *(w[name] for name in KINDS[kind].names))


def from_job(kind, what):
    """A property of a rule's job, as a function of the wildcards."""
    find = job(kind)
    return lambda w: what(find(w))


def at_least(kind, what):
    """A resource of a rule's job, which grows with each retry."""
    find = job(kind)
    return lambda w, attempt: attempt * math.ceil(what(find(w)))


def outputs_of(kind):
    """The outputs and records of a kind of job, with wildcards as names."""
    job = ANY.job(kind, *(f"{{{name}}}" for name in KINDS[kind].names))
    return paths(job.outputs + job.records)


def command_of(kind):
    """The command of a rule's job, where the job finds its files."""
    find = job(kind)

    def command(w, output):
        known = find(w)
        there = replace(known, study=study_at(w.experiment, output[0], known.outputs[0]))
        return there.command + checkpoints_of(known)

    return command


# ---------------------------------------------------------------------------------------- files of a study


def prepared_of(name):
    """The prepared data of a study."""
    return paths(STUDIES[name].prepared_files)


def made_by(name, *kinds):
    """The outputs of a study's jobs of these kinds."""
    return paths(file for job in STUDIES[name].jobs(*kinds) for file in job.outputs)


def runs_of(name):
    """The results of a study's runs and decompositions."""
    return paths(job.outputs[0] for job in STUDIES[name].jobs("run", "decompose"))


def results_of(name):
    """The tables, figures and claims of a study."""
    study, figures = STUDIES[name], STUDIES[name].drawn
    files = [*study.table_files(ending="csv"), study.verdicts]
    if "figures" in figures:
        files += study.figure_files(*figures["figures"])
    if "timed_figures" in figures and (STORED or study.timed_here):
        files += study.table_files(*study.timed, ending="csv") + study.figure_files(*figures["timed_figures"])
    return paths(files)


def caption_of(name, kind):
    """The path of a figure's caption, without its ending: of figures.rst, and in a report of a copy for this figure.

    A template knows the rule of the file that it describes, and not which of the rule's files that is.
    """
    if CAPTIONS is None:
        return "figures"
    file = Path(CAPTIONS.name, f"{name}-{kind}.rst")
    about = name, kind, STUDIES[name].figures[kind].caption
    text = (ROOT / "workflow/report/figures.rst").read_text()
    file.write_text(f"{{% set experiment, kind, caption = {about} %}}\n{text}")
    return str(file.with_suffix(""))


def headline_of(name):
    """The figure that opens an experiment's report, and what it shows."""
    figure = STUDIES[name].headline
    for drawn_by, kinds in STUDIES[name].drawn.items():
        if figure.name in kinds:
            file = getattr(rules, f"{name}_{drawn_by}").output[kinds.index(figure.name)]
            return {"file": str(file), "answer": figure.answer}


def in_report(name, path, kind, label, caption=None):
    """An output that the report shows under the experiment's name."""
    return report(
        str(path),
        caption=os.path.join("../report", f"{caption or kind + 's'}.rst"),
        category=name,
        subcategory=f"{kind}s",
        labels={kind: label},
    )


def step_command(name, step):
    """The command of a step of an experiment, in a job that finds the step's files where it finds its first output."""
    first = STUDIES[name].steps()[step].outputs[0]
    return lambda w, output: study_at(name, output[0], first).steps()[step].command


def together(job):
    """The group of a job: short ones share submissions to a cluster, if the profile lets more than one do so."""
    many = workflow.group_settings.group_components.get("short", 1) > 1
    return "short" if many and job.short else None


# The group of the tables, figures and claims of an experiment. With a storage, Snakemake takes a job with a local file, such as
# claims, for one of this machine, which cannot be in a group with others.
ANALYSIS = None if STORED else "analysis"


def small(minutes):
    """The resources of a job of tables, figures or claims, which grow with each retry."""
    return {"mem_mb": lambda w, attempt: attempt * 3000, "runtime": lambda w, attempt: attempt * minutes}


def gpus(w):
    return 1 if PARAMS.device == "gpu" else 0


def check_published():
    """Ends with a sentence if a report would show a file that is not what was made."""
    from lowvar_studies.jobs import commands as jobs

    for name in {*PARAMS.experiments, *STUDIES.keys() & set(sys.argv)}:
        if found := jobs.check(STUDIES[name]):
            sys.exit(f"lowvar: no report: {found[0]}" + (f" (and {len(found) - 1} more)" if found[1:] else ""))


if CAPTIONS:
    check_published()
    if OWN:
        from lowvar_studies.reports.findings import findings

        # the sentences that open the report; `make` shows them too
        config["findings"] = findings(STUDIES[name] for name in PARAMS.experiments)
        for heading, sentences in config["findings"]:
            print(heading, *sentences, sep="\n  ")

if unrecorded():
    print(
        f"lowvar: Snakemake has no records of the results in {RESULTS}, and would not notice an edit of their experiments: "
        "`make checkout` takes those that dvc.lock records as made, `snakemake --forceall` makes all anew",
        file=sys.stderr,
    )
