"""An experiment at a scale, and where its files are."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from lowvar.errors import UserError
from lowvar.files import sha256
from lowvar.runs import artifact
from lowvar.studies.load import Experiment, load_experiment


@dataclasses.dataclass(frozen=True)
class Place:
    """An experiment at a scale, and where its files are.

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
    def load(cls, path, scale, results=None, data="data") -> "Place":
        """Reads and checks the experiment."""
        experiment = load_experiment(path, scale)
        return cls(Path(path), scale, experiment, Path(results or f"results/{scale}/{experiment.name}"), Path(data))

    def prepared(self, problem: str) -> Path | None:
        """The prepared data of a problem, if it stands on any."""
        data = self.experiment.data(problem)
        return data and self.data / "prepared" / f"{data.dataset}-{data.scaling}.npz"

    def source(self, problem: str) -> Path | None:
        """The file that runs on a problem read: its samples, or its prepared data, or none."""
        if drawn := self.experiment.drawn_from(problem):
            return self.results / "samples" / drawn / "samples.npz"
        return self.prepared(problem)

    def inputs(self, problem: str) -> dict[str, str]:
        """The hash of what runs on a problem read, as stamps carry it."""
        path = self.source(problem)
        if path is None:
            return {}
        if self.experiment.drawn_from(problem):
            self._check_samples(problem, path)
            return {problem: sha256(path)}
        return self.data_inputs(problem)

    def data_inputs(self, problem: str) -> dict[str, str]:
        """The hash of a problem's prepared data."""
        path, data = self.prepared(problem), self.experiment.data(problem)
        if path is None or data is None:
            return {}
        if not path.is_file():
            raise UserError(
                f"{path}: no such file; make it with: lowvar prepare {data.dataset} --scaling {data.scaling} "
                f"--raw {self.data}/raw --out {path}"
            )
        return {problem: sha256(path)}

    def _check_samples(self, problem, path):
        """Refuses samples of another spec or other data."""
        rebuild = self._samples_command(problem, path)
        artifact.check_arrays(path, expect=self._samples_expected(problem), rebuild=rebuild)

    def _samples_expected(self, problem):
        drawn: Any = self.experiment.drawn_from(problem)
        return {"spec": self.experiment.sample(drawn).hash, "inputs": self.data_inputs(drawn)}  # type: ignore[union-attr]

    def _samples_command(self, problem, path):
        problem = self.experiment.drawn_from(problem) or problem
        return self.command("sample", problem=problem, data=self.prepared(problem), out=Path(path).parent)

    def load_data(self, problem: str, path: str | Path | None = None):
        """The prepared data of a problem, checked to be what it asks for; None if it stands on none."""
        from lowvar.datasets.load import load

        wanted = self.experiment.data(problem)
        if wanted is None:
            if path is not None:
                raise UserError(f"--data {path}: {problem} stands on no data")
            return None
        prepared = load(path or (self.data_inputs(problem) and self.prepared(problem)))  # type: ignore[arg-type]
        for key, value in wanted.model_dump().items():
            if prepared.meta.get(key) != value:
                raise UserError(
                    f"{path or self.prepared(problem)}: its {key} is {prepared.meta.get(key)!r}, {problem} needs "
                    f"{value!r}; make it with: lowvar prepare {wanted.dataset} --scaling {wanted.scaling}"
                )
        return prepared

    def load_source(self, problem: str, path: str | Path | None = None):
        """What runs on a problem read, with its ``sha256``: samples, prepared data, or None."""
        if not self.experiment.drawn_from(problem):
            return self.load_data(problem, path)
        from lowvar.studies.integral import samples

        path = Path(path or self.source(problem))  # type: ignore[arg-type]
        rebuild = self._samples_command(problem, path)
        return samples.read(path, expect=self._samples_expected(problem), rebuild=rebuild)

    def run_folder(self, problem: str, method: str, backend: str) -> Path:
        """Where a run's files are."""
        return self.results / "runs" / problem / f"{method}-{backend}"

    def command(self, verb: str, **options) -> str:
        """A command line that works on this experiment, for error messages."""
        words = ["lowvar", *verb.split(), str(self.path), "--scale", self.scale]
        for key, value in options.items():
            if value is None:
                continue
            words += [f"--{key}", str(value)]
        return shlex.join(words)

    def tables_stamp(self) -> dict[str, Any]:
        """The stamp of tables: of the whole experiment, and of all its data and studies."""
        from lowvar.studies.variational import tuning

        inputs = {}
        for problem in self.experiment.problems:
            inputs |= self.inputs(problem)
        inputs |= tuning.inputs(self, *self.experiment.runs())
        return artifact.stamp(self.experiment.hash, inputs, packages=("lowvar",))

    def gather(self, name: str, read):
        """``(problem, method, backend, read(path, expect=, rebuild=))`` of every run's file ``name``.

        Each is checked against the spec, the data and the study of now.
        """
        from lowvar.studies.variational import tuning

        for problem, method, backend in self.experiment.runs():
            studies = tuning.inputs(self, (problem, method, backend))
            inputs = self.inputs(problem) | studies
            expect = {"spec": self.experiment.run(problem, method, backend).hash, "inputs": inputs}
            folder, searched = self.run_folder(problem, method, backend), tuning.source(self, problem, method, backend)
            rebuild = self.command("run", problem=problem, method=method, backend=backend, data=self.source(problem),
                                   study=tuning.path(self, *searched) if searched else None, out=folder)  # fmt: skip
            yield problem, method, backend, read(folder / name, expect=expect, rebuild=rebuild)

    def gather_tables(self, name: str):
        """One table out of all runs' tables ``name``."""
        import pandas as pd

        return pd.concat([table for *_, table in self.gather(name, artifact.read_table)], ignore_index=True)

    def decomposition(self):
        """One table out of all decompositions, each checked against the spec and the data of now."""
        import pandas as pd

        found = []
        for problem in self.experiment.decompositions():
            folder = self.results / "decomposition" / problem
            expect = {"spec": self.experiment.decompose(problem).hash, "inputs": self.inputs(problem)}
            rebuild = self.command("decompose", problem=problem, data=self.prepared(problem), out=folder)
            found.append(artifact.read_table(folder / "decomposition.parquet", expect=expect, rebuild=rebuild))
        return pd.concat(found, ignore_index=True)

    def table(self, name: str):
        """A table of this experiment, checked against the spec and the data of now."""
        options = {"results": self.results, "data": self.data}
        rebuild = self.command("table", **options) + (" --seconds" if name == "seconds" else "")
        path = self.results / "tables" / f"{name}.parquet"
        return artifact.read_table(path, expect=self.tables_stamp(), rebuild=rebuild)
