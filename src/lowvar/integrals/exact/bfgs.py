"""Many small minimisations at once: BFGS within box bounds, each problem with a path of its own."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch

from lowvar.integrals.exact.bfgs_step import held_back, step

REPORTED = "x", "value", "gradient", "steps", "converged", "hessian"
FINISHED_EVERY = 5  # iterations between two looks at which problems are finished: the only reads from the device


@dataclass(frozen=True)
class Minimum:
    """Where the minimisations ended.

    Attributes:
        x: ``(R, p)``.
        value: ``(R,)``.
        gradient: ``(R, p)``.
        steps: ``(R,)``, evaluations of the function.
        converged: ``(R,)``.
        hessian: ``(R, p, p)``, as the updates left it.
        at_bound: ``(R, p)``, at a bound that the gradient pushes against.
    """

    x: torch.Tensor
    value: torch.Tensor
    gradient: torch.Tensor
    steps: torch.Tensor
    converged: torch.Tensor
    hessian: torch.Tensor
    at_bound: torch.Tensor

    def pick(self, which: torch.Tensor | slice) -> "Minimum":
        """These problems alone."""
        return Minimum(*(getattr(self, field.name)[which] for field in fields(self)))

    def put(self, which: torch.Tensor, some: "Minimum") -> "Minimum":
        """With those of ``some`` in the place of the problems ``which``."""
        names = [field.name for field in fields(self)]
        return Minimum(**{name: getattr(self, name).index_copy(0, which, getattr(some, name)) for name in names})


def minimise(
    function: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    start: torch.Tensor,
    lower: torch.Tensor,
    upper: torch.Tensor,
    *,
    steps: int = 200,
    gradient_tolerance: float = 1e-6,
    value_tolerance: float = 1e-10,
    longest: float = 2.0,
    hessian: torch.Tensor | None = None,
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
    lower, upper = lower.expand_as(start), upper.expand_as(start)
    x = torch.minimum(torch.maximum(start, lower), upper)
    which = torch.arange(x.shape[0], device=x.device)
    value, gradient = function(x, which)
    given = hessian is not None
    if hessian is None:
        steep = gradient.abs().amax(-1).clamp(min=1e-12)
        hessian = torch.eye(x.shape[1], dtype=x.dtype, device=x.device) * steep[:, None, None]
    count = torch.zeros_like(which)
    whole = {
        "x": x, "value": value, "gradient": gradient, "lower": lower, "upper": upper,
        "hessian": hessian, "share": torch.ones_like(value), "first": (count == 0) & (not given), "small": count,
        "steps": count + 1, "converged": count > 0, "finished": ~value.isfinite(),
    }  # fmt: skip
    tolerances, done = (gradient_tolerance, value_tolerance, longest), 0
    while done < steps - 1:
        state = {name: entry[which] for name, entry in whole.items()}
        for _ in range(min(FINISHED_EVERY, steps - 1 - done)):
            state = step(function, state, which, tolerances)
            done += 1
        whole = {name: entry.index_copy(0, which, state[name]) for name, entry in whole.items()}
        which = torch.nonzero(~whole["finished"])[:, 0]
        if not len(which):
            break
    return Minimum(at_bound=held_back(whole), **{name: whole[name] for name in REPORTED})
