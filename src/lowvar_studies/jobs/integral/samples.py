"""Files of sample points, drawn once and read by every method."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowvar.core import artifact
from lowvar.core.files import sha256
from lowvar.errors import UserError, check_known
from lowvar.integrals.base import Samples


@dataclass(frozen=True)
class Drawn:
    """The content of a file of samples.

    Attributes:
        samples: the points of all tasks, as many as the largest sizes need.
        tasks: names of the tasks.
        groups: tasks that are estimated together, or None for all.
        truth: a row for each task and derived quantity: ``task, truth, truth_error, how``.
        sha256: of the file.
    """

    samples: Samples
    tasks: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] | None
    truth: list[dict[str, Any]]
    sha256: str

    def within(self, tasks: Sequence[str] | None) -> "Drawn":
        """The samples of these tasks, as one group; all samples if None.

        Raises:
            UserError: an unknown task.
        """
        if tasks is None:
            return self
        for name in tasks:
            check_known("task", name, self.tasks)
        truth = [row for row in self.truth if row["task"] in tasks]
        chosen = self.samples.of_tasks([self.tasks.index(name) for name in tasks])
        return Drawn(chosen, tuple(tasks), None, truth, self.sha256)


def arrays(samples: Samples, about: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a file of samples, with ``about`` (``tasks``, ``groups``, ``truth``); equal arrays occur once."""
    stored: dict[str, np.ndarray] = {}
    kinds = {"points": samples.points, "scores": samples.scores, "values": samples.values}
    if samples.cross_scores is not None:
        kinds["cross_scores"] = samples.cross_scores
    where: dict[str, list[str]] = {}
    for kind, of_tasks in kinds.items():
        where[kind] = []
        for t, array in enumerate(of_tasks):
            same = next((name for name, other in stored.items() if other is array or _equal(other, array)), None)
            if same is None:
                same = f"{kind}_{t}"
                stored[same] = np.ascontiguousarray(array, dtype="<f8")
            where[kind].append(same)
    layout = {**about, "arrays": where, "shared": samples.shared, "chain": samples.chain}
    return {**stored, "about": np.array(json.dumps(layout, sort_keys=True))}


def read(path: str | Path, *, expect=None, rebuild: str = "") -> Drawn:
    """Reads a file of samples.

    Raises:
        UserError: the file is missing, not a file of samples, or made from another spec or other data.
    """
    arrays, _ = artifact.read_arrays(path, expect=expect, rebuild=rebuild)
    if "about" not in arrays:
        raise UserError(f"{path}: not a file of samples{f'; make it with: {rebuild}' if rebuild else ''}")
    about = json.loads(str(arrays["about"]))
    kinds: dict[str, Any] = {kind: tuple(arrays[name] for name in names) for kind, names in about["arrays"].items()}
    groups = about["groups"] and tuple(map(tuple, about["groups"]))
    samples = Samples(**kinds, shared=about["shared"], chain=about["chain"])
    return Drawn(samples, tuple(about["tasks"]), groups, about["truth"], sha256(path))


def _equal(a, b) -> bool:
    return a.shape == b.shape and np.array_equal(a, b)
