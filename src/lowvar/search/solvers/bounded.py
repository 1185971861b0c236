"""Algorithm 3 with a diagonal covariance: implicit natural gradient with bounds on the gradient of the covariance."""

from collections.abc import Callable
from typing import Any, NamedTuple

from lowvar.errors import UserError, positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.fast_ingo import diagonal_spread
from lowvar.search.solvers.sampling import Sampling


class BoundedState(NamedTuple):
    """A Gaussian with a diagonal covariance.

    Attributes:
        mean: ``mu``, ``(d,)``.
        precision: diagonal of ``Sigma^-1``, ``(d,)``.
    """

    mean: Any
    precision: Any


def bounded(
    sampling: Sampling, beta: float | None, b: float, gamma: float, estimates: Callable[..., tuple[Any, Any, Any]]
) -> SearchSolver:
    """``Sigma^-1 <- Sigma^-1 + 2 beta G`` and ``mu <- mu - beta Sigma_new g``, with ``b <= G <= gamma / 2``.

    Args:
        sampling: draws and weights the generations.
        beta: step size; ``1 / d``, at most 1/2, if not given.
        b: lower bound on the entries of ``G``.
        gamma: twice the upper bound on the entries of ``G``.
        estimates: ``(noise, precision, *told) -> (g, G, informative)``, with what the solver is told: the estimates of
            the gradients with respect to ``mu`` and the diagonal of ``Sigma``, and whether there is any information;
            without it, nothing changes.

    Raises:
        UserError: a setting out of range.

    References:
        Lyu and Tsang, Algorithm 3, eqs. (28), (29).
    """
    xp = sampling.backend.xp
    beta = min(1 / sampling.dim, 0.5) if beta is None else beta
    for name, value in {"beta": beta, "b": b, "gamma": gamma}.items():
        positive(name, value)
    if b > gamma / 2:
        raise UserError(f"b {b}: it must be at most gamma / 2 = {gamma / 2}")

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return BoundedState(x0, 1 / sigma0**2 + xp.zeros_like(x0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + noise / xp.sqrt(state.precision)[None, :], state.mean)

    def tell(state, noise, points, *told):
        g, slope, informative = estimates(noise, state.precision, *told)
        slope = xp.where(informative, xp.clip(slope, min=b, max=gamma / 2), xp.zeros_like(slope))
        precision = state.precision + 2 * beta * slope  # (eq. 28)
        return BoundedState(state.mean - beta * g / precision, precision)  # (eq. 29)

    return sampling.solver(init, ask, tell, lambda state: diagonal_spread(xp, xp.sqrt(1 / state.precision)))
