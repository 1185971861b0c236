"""Many small minimisations at once: BFGS within box bounds, each problem with a path of its own."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lowvar.integrals.stacked import Batched, replaced, solve_each

REPORTED = "x", "value", "gradient", "steps", "converged", "hessian"
ARMIJO = 1e-4  # share of the decrease promised by the slope that a step must bring
FINISHED_EVERY = 5  # iterations between two looks at which problems are finished


@dataclass(frozen=True)
class Minimum(Batched):
    """The ends of the minimisations.

    Attributes:
        x: ``(R, p)``.
        value: ``(R,)``.
        gradient: ``(R, p)``.
        steps: ``(R,)``, evaluations of the function.
        converged: ``(R,)``.
        hessian: ``(R, p, p)``, as the updates left it.
        at_bound: ``(R, p)``, at a bound that the gradient pushes against.
    """

    x: np.ndarray
    value: np.ndarray
    gradient: np.ndarray
    steps: np.ndarray
    converged: np.ndarray
    hessian: np.ndarray
    at_bound: np.ndarray


def minimise(
    function: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    steps: int = 200,
    gradient_tolerance: float = 1e-6,
    value_tolerance: float = 1e-10,
    longest: float = 2.0,
    hessian: np.ndarray | None = None,
) -> Minimum:
    """Minimise ``R`` functions of ``p`` variables within ``lower <= x <= upper``.

    Every iteration evaluates each unfinished problem once, at its trial point. A trial that decreases its function
    enough (Armijo) is accepted and updates the problem's approximate Hessian; another shortens its step. No problem
    waits for another's line search. Variables at a bound that the gradient pushes against are held.

    Args:
        function: ``(x (A, p), which (A,)) -> (value (A,), gradient (A, p))`` of the problems ``which``; steps to where
            a value is not finite are shortened.
        start: ``(R, p)``; a problem whose function is not finite there stays there, unconverged.
        lower: ``(p,)`` or ``(R, p)``.
        upper: like ``lower``.
        steps: evaluations at most.
        gradient_tolerance: converged where the largest entry of the projected gradient is at most this.
        value_tolerance: converged after two steps in turn that promised or brought a smaller decrease than this.
        longest: largest change of a variable in one step.
        hessian: ``(R, p, p)``, positive definite, to start with; a multiple of the identity if not given.

    References:
        Nocedal and Wright, "Numerical Optimization", 2006, chapters 3, 6 and 18; Bertsekas, "Projected Newton methods
        for optimization problems with simple constraints", 1982, for the variables that are held.
    """
    lower, upper = (np.broadcast_to(bound, start.shape) for bound in (lower, upper))
    x = np.clip(start, lower, upper)
    which = np.arange(len(x))
    value, gradient = function(x, which)
    given = hessian is not None
    if hessian is None:
        hessian = np.eye(x.shape[1]) * np.maximum(np.abs(gradient).max(-1), 1e-12)[:, None, None]
    count = np.zeros_like(which)
    whole = {
        "x": x, "value": value, "gradient": gradient, "lower": lower, "upper": upper,
        "hessian": hessian, "share": np.ones_like(value), "first": (count == 0) & (not given), "small": count,
        "steps": count + 1, "converged": count > 0, "finished": ~np.isfinite(value),
    }  # fmt: skip
    tolerances, done = (gradient_tolerance, value_tolerance, longest), 0
    while done < steps - 1:
        state = {name: entry[which] for name, entry in whole.items()}
        with np.errstate(all="ignore"):
            for _ in range(min(FINISHED_EVERY, steps - 1 - done)):
                state = _step(function, state, which, tolerances)
                done += 1
        whole = {name: replaced(entry, which, state[name]) for name, entry in whole.items()}
        which = np.flatnonzero(~whole["finished"])
        if not len(which):
            break
    return Minimum(at_bound=_held_back(whole), **{name: whole[name] for name in REPORTED})


def _held_back(state):
    """Variables at a bound that the gradient pushes against."""
    at_lower = (state["x"] <= state["lower"]) & (state["gradient"] > 0)
    return at_lower | ((state["x"] >= state["upper"]) & (state["gradient"] < 0))


def _step(function, state, which, tolerances):
    """One evaluation of each problem; problems that are finished stay as they are."""
    x, value, gradient, hessian = (state[name] for name in ("x", "value", "gradient", "hessian"))
    held, going = _held_back(state), ~state["finished"]
    mask = ~(held[:, :, None] | held[:, None, :])
    system = np.where(mask, hessian, np.eye(x.shape[1]))
    direction = -solve_each(system, np.where(held, 0.0, gradient)[:, :, None])[:, :, 0]
    direction = direction * (tolerances[2] / np.maximum(np.abs(direction).max(-1, keepdims=True), tolerances[2]))
    trial = np.clip(x + state["share"][:, None] * direction, state["lower"], state["upper"])
    change = trial - x
    slope = (gradient * change).sum(-1)
    new_value, new_gradient = function(trial, which)
    good = np.isfinite(new_value) & np.isfinite(new_gradient).all(-1) & (new_value <= value + ARMIJO * slope)
    accepted = going & good & (slope < 0)
    share = np.where(accepted, 1.0, state["share"] * _shorter(value, new_value, slope))
    turned = np.where(accepted[:, None], new_gradient, gradient) - gradient
    now = state | {
        "x": np.where(accepted[:, None], trial, x), "value": np.where(accepted, new_value, value),
        "gradient": gradient + turned, "hessian": _updated(hessian, change, turned, accepted, state["first"]),
        "share": np.where(going, share, state["share"]), "first": state["first"] & ~accepted,
        "steps": state["steps"] + going,
    }  # fmt: skip
    little = (-slope < tolerances[1]) | (accepted & (value - new_value < tolerances[1]))
    small = np.where(going, np.where(little, state["small"] + 1, 0), state["small"])
    flat = np.abs(np.where(_held_back(now), 0.0, now["gradient"])).max(-1) <= tolerances[0]
    converged = going & (flat | (small >= 2))
    finished = state["finished"] | converged | (share < 1e-10)
    return now | {"small": small, "converged": state["converged"] | converged, "finished": finished}


def _shorter(value, new_value, slope):
    """Backtracking factor: the parabola's minimum, clipped to [0.1, 0.5]."""
    bend = new_value - value - slope
    return np.clip(np.where(np.isfinite(bend) & (bend > 0), -slope / (2 * bend), 0.1), 0.1, 0.5)


def _updated(hessian, change, turned, accepted, first):
    """BFGS with Powell's damping: along the step, curvature falls to a fifth at most and stays positive."""
    along = (change * turned).sum(-1)
    squared = (change * change).sum(-1)
    scaled = first & accepted & (along > 0)
    eye = np.eye(hessian.shape[-1])
    ratio = np.where(scaled, along / np.where(accepted, squared, 1.0), 1.0)
    hessian = np.where(scaled[:, None, None], ratio[:, None, None] * eye, hessian)
    image = (hessian @ change[:, :, None])[:, :, 0]
    curvature = np.where(accepted, (change * image).sum(-1), 1.0)
    damping = np.where(along < 0.2 * curvature, 0.8 * curvature / (curvature - along), 1.0)[:, None]
    turned = damping * turned + (1 - damping) * image
    along = np.where(accepted, (change * turned).sum(-1), 1.0)
    new = hessian - image[:, :, None] * image[:, None, :] / curvature[:, None, None]
    new = new + turned[:, :, None] * turned[:, None, :] / along[:, None, None]
    return np.where(accepted[:, None, None], new, hessian)
