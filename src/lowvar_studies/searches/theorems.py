"""Algorithm 3 of INGO with a diagonal covariance: the searches of its convergence theorems."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from lowvar.errors import UserError, positive
from lowvar.registry import declares
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import Sampling, diagonal_spread


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
        estimates: ``(noise, precision, values, ...) -> (g, G, informative)``, with the values of ``tell``: estimates of
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


def ingo_zeroth_order(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    b: float = 0.5,
    gamma: float = 2.0,
    noise: str = "iid",
    baseline: str = "centre",
    normalise: bool = True,
) -> SearchSolver:
    """Implicit natural gradient for ``N(mu, diag(sigma^2))`` with bounds, the case of Theorems 5 and 6.

    ``g = mean of z_i (f(mu + sigma z_i) - f(mu)) / sigma``, and ``G`` estimates the gradient with respect to
    ``sigma^2``, kept between ``b`` and ``gamma / 2``. So ``sigma^2`` falls like ``1 / t`` at any rate between
    ``1 / (beta gamma)`` and ``1 / (2 beta b)``, whatever the values: the mean's steps are those of stochastic gradient
    descent. ``fast_ingo`` has no bounds and converges linearly on the paper's functions.

    The theorems are about raw values (``normalise=False``) and single points; here there are two or more. A generation
    whose values are all equal changes nothing.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size; ``1 / d``, at most 1/2, if not given.
        b: lower bound on the entries of ``G``.
        gamma: twice the upper bound; in the theorems ``E f`` is strongly convex with this constant.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``; ``orthogonal`` with N = d in Theorem 6.
        baseline: ``none``, ``mean`` or ``centre``; eq. (31) has ``centre``, ``f(mu)``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, Algorithm 3, eqs. (28), (29), (31); Theorems 5 and 6.
    """
    sampling, xp = Sampling("ingo_zeroth_order", backend, domain, population, noise, baseline, normalise), backend.xp

    def estimates(noise, precision, values):
        gradient = sampling.gradient(noise, values)
        informative = xp.any(gradient.weights != 0)
        g = gradient.mean * xp.sqrt(precision)  # (eq. 31)
        return g, 0.5 * gradient.diagonal(noise) * precision, informative

    return bounded(sampling, beta, b, gamma, estimates)


@declares(gradients=True)
def ingo_first_order(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    b: float = 0.5,
    gamma: float = 2.0,
    noise: str = "iid",
) -> SearchSolver:
    """Implicit natural gradient for ``N(mu, diag(sigma^2))`` from gradients, with bounds: the case of Theorem 4.

    ``g = mean of grad f(x_i)`` and ``G = mean of z_i grad f(x_i) / (2 sigma)`` at ``x_i = mu + sigma z_i``: both are
    unbiased (Bonnet's and Price's theorems with Stein's identity) before ``G`` is kept between ``b`` and ``gamma / 2``.
    It needs gradients of ``f``, so it runs on functions that are array programs, and not by ask and tell.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        beta: step size; ``1 / d``, at most 1/2, if not given.
        b: lower bound on the entries of ``G``.
        gamma: twice the upper bound; in Theorem 4 ``E f`` is strongly convex with this constant.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, Algorithm 3, eqs. (28), (29), "first-order estimate"; Theorem 4; Theorem 2 with Appendix C.
    """
    sampling, xp = Sampling("ingo_first_order", backend, domain, population, noise), backend.xp

    def estimates(noise, precision, values, slopes):
        g = xp.mean(slopes, axis=0)
        curvature = 0.5 * xp.mean(noise * slopes, axis=0) * xp.sqrt(precision)
        return g, curvature, xp.any(slopes != 0)

    return dataclasses.replace(bounded(sampling, beta, b, gamma, estimates), gradients=True)
