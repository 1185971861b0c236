"""The settings of runs: an estimator, and the optimizer, noise and length of its descent."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lowvar.registry import label
from lowvar.vi.estimators.base import Schedule

LBFGS = "lbfgs"  # the optimizer of a fit at fixed draws


@dataclass(frozen=True)
class Method:
    """An estimator with its options.

    Attributes:
        factory: the registry's key: a name, ``module:function``, or a factory.
        options: keyword arguments of the factory.
    """

    factory: str | Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def estimator(self) -> str:
        """The name in messages and tables."""
        return label(self.factory)


@dataclass(frozen=True)
class Diagnostics:
    """Measurement of gradient errors along a run.

    Attributes:
        draws: fresh estimates at every evaluated epoch.
        reference: particles of the reference gradient, on all the data.
    """

    draws: int = 64
    reference: int = 4096


@dataclass(frozen=True)
class Settings:
    """The settings of one or many runs of a method on a problem.

    Attributes:
        step_sizes: step sizes of the optimizer; each is a run.
        batch_size: data rows of a batch, at most N.
        epochs: length of the runs.
        optimizer: ``"sgd"`` or ``"adam"``.
        batches: how rows are drawn, see ``vi.batches``.
        noise: scheme of the particles, see ``core.gaussian``.
        particles: particles of a batch.
        initial: the start where a caller gives none, see ``VariationalProblem.initial``.
        repetitions: independent noise and starts.
        dtype: precision, ``"float64"`` or ``"float32"``.
        per_decade: evaluations of the ELBO for each decade of epochs.
        elbo_samples: particles of an ELBO without a closed form, and of a test log-likelihood.
        schedule: decay of the step sizes; constant if None.
        average: whether the result is an average of the iterates, of which late ones count most.
        per_row: whether step sizes of ``"sgd"`` apply to the ELBO divided by N.
        diagnostics: measurement of gradient errors; none if None.
        own: the caller's ``transformation`` of optax, or ``step_size_at``, a function of the step.
    """

    step_sizes: tuple[float, ...]
    batch_size: int
    epochs: int
    optimizer: str = "sgd"
    batches: str = "reshuffled"
    noise: str = "iid"
    particles: int = 1
    initial: str = "standard"
    repetitions: int = 1
    dtype: str = "float64"
    per_decade: int = 12
    elbo_samples: int = 1000
    schedule: Schedule | None = None
    average: bool = False
    per_row: bool = False
    diagnostics: Diagnostics | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
