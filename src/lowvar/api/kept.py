"""What a fit keeps beyond its parameters, and what can be done with it afterwards."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from lowvar.api.watched import Ended, Evaluation
from lowvar.errors import UserError, whole
from lowvar.runs.loop import Reached
from lowvar.vi.run.settings import Method, Settings


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


class Kept:
    """The methods of a ``Fit`` that need more than its parameters."""

    problem: Any
    run: Run | None
    elbo: Any
    optimum: Any

    def resume(
        self,
        num_steps: int,
        *,
        stop: bool | float = False,
        callback: Callable[[Evaluation], Any] | None = None,
        khat_samples: int | None = None,
        progress: bool | None = None,
    ):
        """The fit after ``num_steps`` further updates: the same bytes as one longer fit with the same settings.

        Optimizer, memory of the estimator, and noise continue where they were. Steps since the last whole epoch are
        made again. The schedule ``cosine`` is stretched to the new end: step sizes rise again and fall later,
        which is not the path of one longer fit. A fit on other data, or with other settings, starts from the
        parameters alone: ``lowvar.fit(..., init=fit)``.

        Args:
            num_steps: further updates.
            stop: see ``lowvar.fit``.
            callback: see ``lowvar.fit``.
            khat_samples: see ``lowvar.fit``; as in the fit if not given.
            progress: see ``lowvar.fit``.

        Raises:
            UserError: the estimator depends on the length of the whole run (``mlmc_optimal``), or the fit was loaded
                without its own optimizer or estimator.
        """
        from lowvar.api.fit import checked_draws, completed
        from lowvar.api.stopping import rule_of
        from lowvar.estimators import GRADIENT

        more = whole("num_steps", num_steps, 1, or_float=True)
        run = self.run
        if run is None or run.reached is None:
            raise UserError(
                "resume: this fit has no state to continue from: lowvar.load needs the optimizer or estimator that fit "
                "was given as an object"
            )
        needed, backend = np.dtype(self.problem.dtype), self.problem.backend
        if backend.to_numpy(backend.asarray(np.zeros((), needed))).dtype != needed:
            raise UserError(f"resume: the fit is in {needed}; set jax_enable_x64 as in the fit")
        if "epochs" in GRADIENT.options_of(run.method.factory):
            raise UserError(
                f"resume: {run.method.estimator!r} plans its particles for the number of steps of the whole run; make "
                "one longer fit, or start another from this one: init=fit"
            )
        total = run.num_steps + more
        steps = -(-self.problem.N // run.solver.batch_size)
        longer = replace(run.solver, epochs=-(-total // steps), schedule=_to(total, run.solver.schedule))
        draws = run.khat_samples if khat_samples is None else checked_draws(khat_samples)
        run = replace(run, solver=longer, num_steps=total, ended="budget", khat_samples=draws)
        return completed(self.problem, run, progress, rule_of(stop), callback)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the fit to one npz file, whole or not at all; ``lowvar.load`` reads it.

        The file has parameters, ELBO trace, settings, optimizer state and memory of the estimator, but neither the
        model nor the data: ``load`` needs both, and rejects others.

        Args:
            path: the file.

        Raises:
            UserError: an option of the estimator that is no number or text, or a folder that cannot be written.
        """
        from lowvar.api.saved import write

        write(self, path)

    def __reduce__(self):
        from lowvar.api.saved import pickled

        return pickled(self)

    def summary(
        self,
        var_names: Any = None,
        *,
        hdi_prob: float = 0.94,
        kind: str = "hdi",
        num_samples: int = 4000,
        seed: int = 0,
    ):
        """A table of the latent variables, in the form of ``arviz.summary``.

        A row for each entry of each site, ``site[i, j]``, in constrained space, from independent draws of the guide.
        Chains, and with them ``ess`` and ``r_hat``, do not exist here. The Monte Carlo errors are those of the draws.
        ``opt_mean`` and ``opt_sd`` are about the errors that the optimisation has left: the estimated distance from
        the best guide of the family, or its standard error if that is larger, see ``Fit.optimum``; not a number where
        unknown. How far that guide is from the posterior is another question, see ``khat``.

        Args:
            var_names: sites to show, one name or several; all if not given.
            hdi_prob: probability of the interval.
            kind: ``"hdi"``, the shortest interval, or ``"eti"``, that with equal tails.
            num_samples: draws.
            seed: their seed.

        Returns:
            pandas, columns ``mean, sd, hdi_3%, hdi_97%`` (named after the probability), ``mcse_mean, mcse_sd,
            opt_mean, opt_sd``.

        Raises:
            UserError: an unknown site, or settings out of range.
        """
        from lowvar.api.summary import summary

        num_samples = whole("num_samples", num_samples, 2)
        draws = self.sample(num_samples, seed)  # type: ignore[attr-defined]
        return summary(draws, var_names, hdi_prob, kind, self.problem.sites, self.optimum)

    def plot(self, stem: str | os.PathLike | None = None):
        """The ELBO against steps, with its standard error: all of the run, and its end.

        Args:
            stem: saves the figure as ``stem.svg`` and ``stem.png``, and its rows as ``stem.csv``.

        Returns:
            A matplotlib figure.

        Raises:
            UserError: matplotlib is not installed.
        """
        from lowvar.api.plots import elbo_figure

        return elbo_figure(self, stem)


def _to(end: int, schedule):
    """A schedule for a run of ``end`` steps: a cosine that would reach 0 before falls later."""
    if schedule is None or schedule.kind != "cosine" or schedule.r >= end:
        return schedule
    return replace(schedule, r=end)
