"""BFGS on a restricted likelihood, in coordinates of ``B`` that move along with it."""

from collections.abc import Callable
from dataclasses import replace

import torch

from lowvar.integrals.exact.bfgs import Minimum, minimise
from lowvar.integrals.exact.space import Space

ROUND = 40  # evaluations between two changes of coordinates
TOLERANCE = 1e-2  # a slope of the log likelihood that is as good as none
DIFFERENCE = 1e-3  # a difference of the log likelihood that is


def search(
    function_of: Callable[[Space, torch.Tensor], Callable],
    space: Space,
    rows: float,
    steps: int,
    hessian: torch.Tensor | None = None,
) -> tuple[Space, Minimum]:
    """The maximum of the restricted likelihood next to the start, of ``N`` problems.

    ``B = F S S' F'`` for the factor ``F`` at the beginning of a round and a triangular ``S`` that is learnt: how much
    the likelihood bends in ``S`` hardly depends on ``F``, which may be nearly singular. Each round renews ``F``.

    Args:
        function_of: ``(space, which (A,)) -> function`` for ``bfgs.minimise``, of these problems alone; the space too
            has these alone.
        space: what is learnt, with the start as ``fixed``.
        rows: values of a task, on average.
        steps: evaluations at most.
        hessian: to start with, ``(N, p, p)``; of ``B`` it is not used.

    Returns:
        The space with the end as ``fixed``, and the end.
    """
    active = torch.arange(len(space.spread), device=space.spread.device)
    whole: Minimum | None = None
    left = steps
    while left > 0 and len(active):
        here = space.pick(active)
        if hessian is not None and space.factor:
            hessian = renewed(hessian, here, rows)
        ended = minimise(
            function_of(here, active),
            here.pack(here.fixed),
            *here.bounds(),
            steps=min(left, ROUND) if space.factor else left,
            gradient_tolerance=TOLERANCE,
            value_tolerance=DIFFERENCE,
            hessian=hessian,
        )
        left -= ROUND if space.factor else left
        fixed = here.unpack(ended.x, torch.arange(len(active), device=active.device))
        space = replace(space, fixed=space.fixed.put(active, fixed))
        whole = ended if whole is None else whole.put(active, replace(ended, steps=whole.steps[active] + ended.steps))
        active = torch.nonzero(~whole.converged)[:, 0]
        hessian = whole.hessian[active]
    assert whole is not None
    return space, whole


def renewed(hessian: torch.Tensor, space: Space, rows: float) -> torch.Tensor:
    """The Hessian with what it should be for ``S = I``, if rows of the same task were independent."""
    diagonal = space.diagonal
    first = hessian.shape[1] - len(diagonal)
    own = torch.diag(torch.where(diagonal, 2 * rows, rows).to(hessian))
    new = hessian.clone()
    new[:, first:] = 0
    new[:, :, first:] = 0
    new[:, first:, first:] = own
    return new
