"""Convergence by the ELBO's trace: a stopping rule by its own noise, and its rise late in a run."""

from dataclasses import dataclass

import numpy as np

from lowvar.errors import UserError, positive

_STEPS = 1000  # minimum number of steps
_WINDOW = 4  # the line is fitted from this fraction of the steps on: two doublings
_POINTS = 7  # minimum number of evaluations in the window
_LEVEL = 0.995  # of the one-sided bound on the slope
LATE = 0.85  # a late rise is measured after this fraction of the steps


@dataclass(frozen=True)
class Plateau:
    """Whether a doubling of the steps would raise the ELBO by less than can be told from its noise.

    A straight line in ``log2`` of the steps is fitted to the evaluations of the last two doublings, from a quarter of
    the steps on. The trace has reached a plateau if the upper 99.5 % bound of its slope, by Student's t on the
    residuals, is below ``rise``. The residuals contain the fluctuations of the iterates, so where these are large the
    rule does not stop: a smaller or decaying step size is then the remedy. A trace that rises again after a plateau of
    two doublings, as from a saddle point, is stopped there; docs/life-of-a-fit.md counts such stops.

    Attributes:
        rise: nats for a doubling of the steps; the standard error of the last ELBO if not given.
    """

    rise: float | None = None

    def __call__(self, iterations: np.ndarray, elbo: np.ndarray, elbo_se: np.ndarray) -> bool:
        """Whether the trace ``(n,)`` has reached a plateau at its last evaluation."""
        from scipy import stats

        last = iterations[-1]
        inside = iterations >= last / _WINDOW
        n = int(inside.sum())
        if last < _STEPS or n < _POINTS or not np.isfinite(elbo[inside]).all():
            return False
        x, y = np.log2(iterations[inside]), elbo[inside]
        x = x - x.mean()
        slope = x @ y / (x @ x)
        residuals = y - y.mean() - slope * x
        error = np.sqrt(residuals @ residuals / (n - 2) / (x @ x))
        most = elbo_se[-1] if self.rise is None else self.rise
        return bool(slope + stats.t.ppf(_LEVEL, n - 2) * error < most)


def rule_of(stop: bool | float | None) -> Plateau | None:
    """The rule of ``fit``'s argument ``stop``; None without one.

    Raises:
        UserError: neither True nor False, nor a positive number.
    """
    if stop is None or isinstance(stop, bool | np.bool_):
        return Plateau() if stop else None
    if callable(stop) or isinstance(stop, str):
        raise UserError(
            f"stop = {stop!r}: give True, False, or the rise in nats that still counts; for a rule of your own, "
            "use callback"
        )
    return Plateau(positive("stop", stop))


def fall_of(schedule, trace) -> float:
    """The step from which a cosine falls: the ELBO rises there because the noise falls, whether it converged or not.

    For a fall over more than half of the run the middle of the run, up to which the steps are large. Infinite for
    other schedules, for a run that ended before, and if the trace has not two evaluations before.
    """
    if schedule is None or schedule.kind != "cosine":
        return np.inf
    fall = max(1 - schedule.beta, 0.5) * schedule.r
    before = (trace["iteration"] <= fall).sum()
    return fall if 1 < before < len(trace) else np.inf


def late_rise(trace) -> tuple[float, float]:
    """The rise of the ELBO at the end of a run, in nats, and the share of the steps over which it is measured.

    All ELBOs use the same draws, so their difference is more accurate than either.
    """
    last = trace.iloc[-1]
    before = trace[trace["iteration"] <= LATE * last["iteration"]].iloc[-1]
    share = 1 - before["iteration"] / last["iteration"]
    return float(last["elbo"] - before["elbo"]), float(share)
