"""A study: an experiment at a scale, its jobs, and its files."""

import dataclasses
import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from lowvar.core import artifact
from lowvar.core.files import sha256
from lowvar.errors import UserError
from lowvar_studies.jobs.common_spec import Cost
from lowvar_studies.jobs.load import FAMILIES, Experiment, load_experiment
from lowvar_studies.reports.declarations import Family, Figure, believed, names_of


@dataclasses.dataclass(frozen=True)
class Kind:
    """Shared properties of the jobs of a kind.

    Attributes:
        folder: of their files, below the study's results, with the names of a job in braces.
        outputs: files in this folder that other jobs may read; they repeat byte for byte.
        records: files in this folder that differ from run to run, such as wall times.
        names: the keys that identify a job.
        megabytes: memory of the smallest job.
    """

    folder: str
    outputs: tuple[str, ...]
    records: tuple[str, ...]
    names: tuple[str, ...] = ()
    megabytes: float = 2000


_OPERATIONS = 3e8  # in a minute, at least
_MINUTES = 10  # wall time of the smallest job
_SMALL = 100  # MB of arrays
_RUN, _PROBLEM = ("problem", "method", "backend"), ("problem",)
_PROVENANCE, _TIMED = ("provenance.json",), ("provenance.json", "timing.parquet")
KINDS = {
    "sample": Kind("samples/{problem}", ("samples.npz",), _PROVENANCE, _PROBLEM, megabytes=4000),
    "tune": Kind("runs/{problem}/{method}-{backend}/tuning", ("study.parquet",), _TIMED, _RUN),
    "run": Kind("runs/{problem}/{method}-{backend}", ("trace.parquet", "params.npz"), _TIMED, _RUN),
    "decompose": Kind("decomposition/{problem}", ("decomposition.parquet",), _PROVENANCE, _PROBLEM),
}


@dataclasses.dataclass(frozen=True)
class Job:
    """One command of the workflow: its inputs, outputs and cost.

    Attributes:
        study: the study that it belongs to.
        kind: the subcommand of ``lowvar``: ``sample``, ``tune``, ``run`` or ``decompose``.
        names: the ``problem``, and the ``method`` and ``backend`` if the kind has them.
    """

    study: "Study"
    kind: str
    names: dict[str, str]

    @property
    def problem(self) -> str:
        """The name of its problem."""
        return self.names["problem"]

    @property
    def label(self) -> str:
        """Its name in the stamps of files that depend on it."""
        problem, *more = self.names.values()
        return "/".join([problem, *filter(None, ["-".join(more)])])

    @cached_property
    def spec(self) -> Any:
        """All settings that its result depends on.

        Raises:
            UserError: the experiment has no such job.
        """
        return getattr(self.study.experiment, self.kind)(**self.names)

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.study.results / KINDS[self.kind].folder.format(**self.names)

    @property
    def outputs(self) -> tuple[Path, ...]:
        """The files that other jobs may read; the first is its result."""
        return tuple(self.folder / name for name in KINDS[self.kind].outputs)

    @property
    def records(self) -> tuple[Path, ...]:
        """The files that differ from run to run."""
        return tuple(self.folder / name for name in KINDS[self.kind].records)

    @property
    def inputs(self) -> dict[str, Path]:
        """The files that it reads, by command-line option."""
        prepared = self.study.prepared(self.problem)
        source = self.study.source(self.problem) if self.kind == "run" else prepared
        files = {"data": source, "prepared": prepared if prepared != source else None}
        files |= {"study": self.search.outputs[0] if self.search else None}
        return {option: file for option, file in files.items() if file}

    @property
    def search(self) -> "Job | None":
        """The job that tunes the settings of a run, if any: its own or another method's (``same_as``)."""
        tuned = self.study.experiment.study_of(**self.names) if self.kind == "run" else None
        return self.study.job("tune", *tuned) if tuned else None

    @property
    def cost(self) -> Cost:
        """Its approximate cost."""
        return getattr(self.study.experiment, f"{self.kind}_cost")(**self.names)

    @property
    def minutes(self) -> float:
        """Wall time to request from a cluster, with a margin; every trial compiles."""
        return _MINUTES + getattr(self.spec, "trials", 0) + self.cost.operations / _OPERATIONS

    @property
    def short(self) -> bool:
        """Whether a submission of its own would cost more than it does: few operations, on small data.

        On large data, evaluations and initial passes take minutes, which ``operations`` does not count.
        """
        small = self.cost.memory * 8 / 1e6 < _SMALL
        return small and not getattr(self.spec, "trials", 0) and self.cost.operations < _OPERATIONS

    @property
    def megabytes(self) -> float:
        """Memory to request from a cluster."""
        arrays = 0 if self.kind == "sample" else self.cost.memory * 8 / 1e6
        return KINDS[self.kind].megabytes + arrays

    @property
    def command(self) -> str:
        """The command line that runs it."""
        return self.study.command(self.kind, **self.names, **self.inputs, out=self.folder)

    @property
    def expected(self) -> dict[str, Any]:
        """The stamp that its result must have.

        Raises:
            UserError: an input is missing or stale.
        """
        inputs = self.settled()[1] if self.kind == "run" else self.study.data_inputs(self.problem)
        return {"spec": self.spec.hash, "inputs": inputs}

    def settled(self, inputs: dict[str, str] | None = None, file=None) -> tuple[Any, dict[str, str]]:
        """The spec of a run with its tuned settings, and the ``inputs`` of its stamp.

        Args:
            inputs: the hash of its problem's data, as in stamps, if the data are not the experiment's.
            file: the study, if it is not where the workflow writes it.

        Raises:
            UserError: a study for a run without tuning, or a study that is missing or of another experiment or data.
        """
        inputs = self.study.inputs(self.problem) if inputs is None else inputs
        if self.search is None:
            if file is not None:
                what = f"{self.names['method']!r} on {self.problem!r}"
                raise UserError(f"--study {file}: experiment {self.study.name!r} does not tune {what}")
            return self.spec, inputs
        file = Path(file or self.search.outputs[0])
        expect = {"spec": self.search.spec.hash, "inputs": inputs, "place": self.search.place("study.parquet")}
        trials = artifact.read_table(file, expect=expect, rebuild=self.search.command)
        return self.spec.at(trials), inputs | {self.search.label: sha256(file)}

    def read(self, name: str, reader=artifact.read_table):
        """Reads one of its files; refuses a stale one, and one of another job or another kind."""
        return reader(self.folder / name, expect=self.expected | {"place": self.place(name)}, rebuild=self.command)

    def place(self, name: str) -> str:
        """The place of one of its files among the results, as in stamps."""
        return self.study.place(self.folder / name)


@dataclasses.dataclass(frozen=True)
class Step:
    """One command that makes tables, figures or claims from the files of jobs.

    Attributes:
        command: the command line that runs it.
        inputs: the results and data that it reads.
        outputs: the files that it writes; the first says where a job without a shared folder finds them.
        beside: files that it reads and that come with the experiment.
    """

    command: str
    inputs: list[Path]
    outputs: list[Path]
    beside: list[Path] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Study:
    """An experiment at a scale, its jobs, and its files.

    Attributes:
        path: the experiment's YAML file.
        scale: ``smoke``, ``quick`` or ``paper``.
        experiment: its content.
        results: folder of its results.
        data: folder of raw and prepared data.
    """

    path: Path
    scale: str
    experiment: Experiment
    results: Path
    data: Path

    @classmethod
    def load(cls, path, scale, results=None, data="data") -> "Study":
        """Reads and checks the experiment."""
        experiment = load_experiment(path, scale)
        return cls(Path(path), scale, experiment, Path(results or f"results/{scale}/{experiment.name}"), Path(data))

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def family(self) -> Family:
        """Its family."""
        return FAMILIES[self.experiment.family]

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables, except those of wall times."""
        return names_of(self.family.tables, self.experiment)

    @cached_property
    def timed(self) -> tuple[str, ...]:
        """The names of its tables of wall times."""
        return names_of(self.family.tables, self.experiment, timed=True)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Its figures by name, in the order of a report, with its titles for problems."""
        titles = self.experiment.titles
        figures = self.family.figures_of(self.experiment)
        return {name: dataclasses.replace(figure, titles=titles) for name, figure in figures.items()}

    @property
    def headline(self) -> Figure:
        """The figure that opens its report."""
        return self.figures[next(name for name in (*self.family.headlines, *self.figures) if name in self.figures)]

    def options(self, figure: str) -> dict[str, Any]:
        """The options that its experiment sets for a figure."""
        options = getattr(self.experiment, "figure_options", {}).get(figure, {})
        return {**self.figures[figure].settings(self.experiment), **options}

    # ------------------------------------------------------------------------------------------------ its jobs

    def job(self, kind: str, *names: str) -> Job:
        """The job of a kind with these names."""
        return Job(self, kind, dict(zip(KINDS[kind].names, names, strict=True)))

    def jobs(self, *kinds: str) -> Iterator[Job]:
        """Its jobs of these kinds, by default of all, in a possible order of execution."""
        listed = {
            "sample": [(problem,) for problem in self.experiment.samples()],
            "tune": self.experiment.studies(),
            "run": self.experiment.runs(),
            "decompose": [(problem,) for problem in self.experiment.decompositions()],
        }
        for kind in kinds or KINDS:
            yield from (self.job(kind, *names) for names in listed[kind])

    def steps(self) -> dict[str, Step]:
        """The commands that follow its jobs, in a possible order of execution: tables, figures, claims.

        Wall times differ from run to run: ``seconds`` and ``timed_figures`` are apart from the other tables and
        figures, which repeat byte for byte.
        """
        where, prepared = {"results": self.results, "data": self.data}, self.prepared_files
        made = [file for job in self.jobs() for file in job.outputs]
        tables, table = self.table_files(), self.command("table", **where)
        csv = self.table_files(ending="csv")
        steps = {"tables": Step(table, made + prepared, [*csv, *tables, self.metrics])}
        if self.timed:
            seconds = [*self.table_files(*self.timed, ending="csv"), *self.table_files(*self.timed)]
            steps["seconds"] = Step(f"{table} --seconds", made + self.timings + prepared + tables, seconds)
        for name, kinds in self.drawn.items():
            shown = self.table_files(*dict.fromkeys(self.figures[kind].table for kind in kinds))
            stamped = prepared + [file for job in self.jobs("sample", "tune") for file in job.outputs]
            pictures = [file for ending in ("svg", "png", "csv") for file in self.figure_files(*kinds, ending=ending)]
            steps[name] = Step(self.command(f"figure {' '.join(kinds)}", **where), shown + stamped, pictures)
        verdicts = [self.verdicts, self.verdicts.with_suffix(".parquet")]
        beside = [*filter(None, [self.claims]), *self.times]
        steps["claims"] = Step(self.command("claims", **where), tables + made + prepared, verdicts, beside)
        return steps

    @property
    def drawn(self) -> dict[str, list[str]]:
        """Its figures by the step that draws them: those of wall times have one of their own."""
        drawn = {"figures": [], "timed_figures": []}
        for kind, figure in self.figures.items():
            drawn["timed_figures" if figure.table in self.timed else "figures"].append(kind)
        return {name: kinds for name, kinds in drawn.items() if kinds}

    def command(self, verb: str, **options) -> str:
        """A ``lowvar`` command line for this experiment."""
        words = ["lowvar", *verb.split(), str(self.path), "--scale", self.scale]
        for key, value in options.items():
            if value is not None:
                words += [f"--{key}", str(value)]
        return shlex.join(words)

    # ------------------------------------------------------------------------------------------------ its files

    def table_files(self, *names: str, ending: str = "parquet") -> list[Path]:
        """The files of its tables, as ``parquet`` or ``csv``; by default of all tables."""
        return [self.results / "tables" / f"{name}.{ending}" for name in names or self.tables]

    def figure_files(self, *names: str, ending: str = "svg") -> list[Path]:
        """The files of its figures: ``svg``, ``png``, or ``csv`` for the rows that they show."""
        return [self.results / "figures" / f"{name}.{ending}" for name in names or self.figures]

    @property
    def metrics(self) -> Path:
        """The file of headline numbers."""
        return self.results / "metrics.json"

    @property
    def verdicts(self) -> Path:
        """The file of its claims' verdicts."""
        return self.results / "claims.csv"

    @property
    def claims(self) -> Path | None:
        """The file of its claims, if there is one."""
        return next(
            (file for folder in self._beside("claims") if (file := folder / f"{self.name}.yaml").is_file()), None
        )

    @property
    def times(self) -> list[Path]:
        """Files of the times of steps, which benchmarks measured, in the folder ``times`` beside the experiments."""
        return sorted(file for folder in self._beside("times") for file in folder.glob("*.json"))

    def _beside(self, folder):
        """A folder beside that of the experiments, or in it."""
        return self.path.parent.parent / folder, self.path.parent / folder

    def prepared(self, problem: str) -> Path | None:
        """The file of a problem's prepared data, if it has any."""
        data = self.experiment.data(problem)
        return data and self.data / "prepared" / f"{data.dataset}-{data.scaling}.npz"

    @property
    def prepared_files(self) -> list[Path]:
        """The files of all its prepared data."""
        return sorted({path for problem in self.experiment.problems if (path := self.prepared(problem))})

    @property
    def timings(self) -> list[Path]:
        """The wall times of its runs."""
        return [file for job in self.jobs("run") for file in job.records if file.suffix == ".parquet"]

    @property
    def timed_here(self) -> bool:
        """Whether its runs were timed on this machine: those from ``dvc pull`` have no wall times."""
        traces = [job.outputs[0] for job in self.jobs("run")]
        return not any(path.exists() and not path.with_name("timing.parquet").exists() for path in traces)

    def source(self, problem: str) -> Path | None:
        """The input file of runs on a problem: its samples, its prepared data, or none."""
        drawn = self.experiment.drawn_from(problem)
        return self.job("sample", drawn).outputs[0] if drawn else self.prepared(problem)

    def inputs(self, problem: str) -> dict[str, str]:
        """The hash of the input of runs on a problem, as in stamps; refuses stale samples."""
        drawn = self.experiment.drawn_from(problem)
        if not drawn:
            return self.data_inputs(problem)
        job = self.job("sample", drawn)
        job.read(job.outputs[0].name, artifact.read_arrays)
        return {problem: sha256(job.outputs[0])}

    def data_inputs(self, problem: str, file: str | Path | None = None) -> dict[str, str]:
        """The hash of a problem's prepared data, as in stamps; of ``file``, if they are there."""
        path, data = self.prepared(problem), self.experiment.data(problem)
        if path is None or data is None:
            return {}
        path = Path(file or path)
        if not path.is_file():
            raise UserError(
                f"{path}: no such file; make it with: lowvar prepare {data.dataset} --scaling {data.scaling} "
                f"--raw {self.data}/raw --out {path}"
            )
        return {problem: sha256(path)}

    def load_data(self, problem: str, path: str | Path | None = None):
        """Loads a problem's prepared data and checks dataset and scaling; None if it has none."""
        from lowvar_studies.datasets.load import load

        wanted = self.experiment.data(problem)
        if wanted is None:
            if path is not None:
                raise UserError(f"--data {path}: {problem} has no data")
            return None
        prepared = load(path or (self.data_inputs(problem) and self.prepared(problem)))  # type: ignore[arg-type]
        for key, value in wanted.model_dump().items():
            if prepared.meta.get(key) != value:
                raise UserError(
                    f"{path or self.prepared(problem)}: its {key} is {prepared.meta.get(key)!r}, {problem} needs "
                    f"{value!r}; make it with: lowvar prepare {wanted.dataset} --scaling {wanted.scaling}"
                )
        return prepared

    def load_source(self, problem: str, path: str | Path | None = None, prepared: str | Path | None = None):
        """Loads the input of runs on a problem, with its ``sha256``: samples, prepared data, or None.

        ``prepared`` is the file of the data behind samples, if it is not where the workflow writes it.
        """
        drawn = self.experiment.drawn_from(problem)
        if not drawn:
            return self.load_data(problem, path)
        job, read = self.job("sample", drawn), self.family.read_samples
        expect = {"spec": job.spec.hash, "inputs": self.data_inputs(drawn, prepared), "place": job.place("samples.npz")}
        return read(Path(path or job.outputs[0]), expect=expect, rebuild=job.command)  # type: ignore[misc]

    def tables_stamp(self) -> dict[str, Any]:
        """The stamp of tables, from the experiment, all its data and all its studies."""
        inputs = {}
        for problem in self.experiment.problems:
            inputs |= self.inputs(problem)
        for job in self.jobs("tune"):
            job.read(job.outputs[0].name)
            inputs[job.label] = sha256(job.outputs[0])
        return artifact.stamp(self.experiment.hash, inputs, packages=("lowvar",))

    def gather(self, kind: str, name: str):
        """The tables ``name`` of all jobs of a kind, concatenated; refuses stale ones."""
        import pandas as pd

        columns = {one.path: one.columns for one in self.family.files}.get(f"{KINDS[kind].folder}/{name}", ())
        read = [believed(job.read(name), columns, job.names, f"{job.folder / name}") for job in self.jobs(kind)]
        return pd.concat(read, ignore_index=True)

    def place(self, path: Path) -> str:
        """A file's place among the results, as in stamps."""
        return path.relative_to(self.results).as_posix()

    def table_command(self, name: str) -> str:
        """The command that makes a table."""
        seconds = " --seconds" if name in self.timed else ""
        return self.command("table", results=self.results, data=self.data) + seconds

    def table(self, name: str):
        """Reads a table of this experiment; refuses a stale one, and another one in its place."""
        (path,) = self.table_files(name)
        expect = self.tables_stamp() | {"place": self.place(path)}
        columns = next(one.columns for one in self.family.tables if one.name == name)
        table = artifact.read_table(path, expect=expect, rebuild=self.table_command(name))
        return believed(table, columns, {}, str(path))
