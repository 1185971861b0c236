"""Algorithm 3 of INGO from function values."""

from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.bounded import bounded
from lowvar.search.solvers.sampling import Sampling


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
