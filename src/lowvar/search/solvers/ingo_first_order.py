"""Algorithm 3 of INGO from gradients."""

import dataclasses

from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.bounded import bounded
from lowvar.search.solvers.sampling import Sampling


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
