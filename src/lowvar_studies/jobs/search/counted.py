"""The common part of the engines of searches: which generations are measured, the trace, and final values."""

import numpy as np

from lowvar.core.loop import geometric
from lowvar.errors import UserError
from lowvar.search.problem import BlackBoxProblem
from lowvar_studies.jobs.search.spec import TARGET_EXPONENTS

TARGETS = 10.0 ** np.array(TARGET_EXPONENTS)  # gaps
_PER_DECADE = 24  # measurements per decade of generations


class SearchEngine:
    """The common part of all engines: measured generations, the trace, and final values.

    The budget fixes the number of generations, and the last one is measured.
    """

    def __init__(self, problem: BlackBoxProblem, settings, evaluations: int):
        self.problem, self.settings, self.evaluations = problem, settings, evaluations
        generations = settings.budget // evaluations
        if generations < 1:
            raise UserError(f"budget {settings.budget}: one generation takes {evaluations} evaluations")
        self.stops = geometric(generations, _PER_DECADE)
        self.runs = settings.repetitions
        self.targets = TARGETS if problem.optimum is not None else TARGETS[:0]

    def trace(self, stops, measured):
        """A row per measured generation and repetition."""
        import pandas as pd

        shape = measured["f"].shape
        stop, repetition = (axis.ravel() for axis in np.indices(shape))
        generations = np.asarray(stops)[stop]
        flat = {name: values.ravel() for name, values in measured.items()}
        return pd.DataFrame(
            {
                "repetition": repetition,
                "iteration": generations,
                "evaluations": generations * self.evaluations,
                "f": flat["f"],
                "best": flat["best"],
                "sigma": flat["sigma"],
                "condition": flat["condition"],
                "failures": flat["failures"],
                "status": np.where(np.isfinite(flat["f"]), "ok", "diverged"),
            }
        )

    def work(self, stops) -> dict:
        """Generations and evaluations done."""
        return {"iteration": stops, "evaluations": np.asarray(stops) * self.evaluations}

    def ends(self, mean, ledger, met, met_best):
        """Arrays of ``params.npz``, from those of all repetitions."""
        return {
            "mean": mean,
            "best": ledger.best,
            "best_at": ledger.best_at,
            "evaluations": ledger.evaluations,
            "targets": self.targets,
            "met": met,
            "met_best": met_best,
            "budget": np.array(self.settings.budget),
        }
