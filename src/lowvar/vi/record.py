"""The record of a fit's run: its settings, and the state from which others continue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from lowvar.core.loop import Reached
from lowvar.vi.run.settings import Method, Settings
from lowvar.vi.watched import Ended


@dataclass(frozen=True)
class Run:
    """The settings of a fit and its estimator's memory, from which ``decompose`` and ``Fit.resume`` continue.

    Attributes:
        method: the estimator with its options.
        solver: the settings.
        num_steps: updates.
        seed: seed of its noise.
        name: name under which its noise was drawn.
        khat_samples: draws for k-hat, as ``fit`` was told.
        epochs: ``(early, whole)``: epochs at which the state was kept.
        kept: the states, ``{epoch: state of the engine}``.
        reached: the measurements along the run.
        ended: why it ended: ``budget`` (all steps), ``converged`` (``stop``), ``callback`` or ``interrupted`` (Ctrl-C).
    """

    method: Method
    solver: Settings
    num_steps: int
    seed: int
    name: str
    khat_samples: int | None = None
    epochs: tuple[int, int] = (0, 0)
    kept: Mapping[int, Any] = field(default_factory=dict)
    reached: Reached | None = None
    ended: Ended = "budget"

    @property
    def memory(self):
        """The estimator's state at the end of the last whole epoch."""
        return jax.tree.map(lambda leaf: leaf[0, 0], self.kept[self.epochs[1]][0].estimator)

    @property
    def state(self) -> tuple[dict[int, Any], tuple[int, int], Reached] | None:
        """What another run continues from; None before the first step."""
        return None if self.reached is None else (dict(self.kept), self.epochs, self.reached)
