"""REINFORCE: plain gradient steps on the mean and the diagonal covariance of a Gaussian."""

from lowvar.errors import positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.fast_ingo import DiagonalState
from lowvar.search.solvers.gaussian import LEAST, Sampling


def reinforce_gd(
    backend,
    domain,
    population: int | None = None,
    step_size: float = 1e-3,
    noise: str = "iid",
    baseline: str = "mean",
    normalise: bool = True,
    least: float = LEAST,
) -> SearchSolver:
    """``mu <- mu - a grad_mu J`` and ``sigma^2 <- sigma^2 - a grad_(sigma^2) J``: the baseline for natural gradients.

    ``grad_mu J = s / sigma`` and ``grad_(sigma^2) J = diag(M) / (2 sigma^2)`` grow as ``sigma`` shrinks, so steps of
    a fixed size eventually become too large. Nothing bounds ``mu``: runs diverge, as in the paper. The only safeguard
    is that a step keeps at least 1e-3 of each variance. The paper has none (``least=0``): a step then makes a variance
    negative, and all later points are NaN.

    Appendix K prints raw values, ``f(x) z / sigma``: ``baseline="none", normalise=False``.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        step_size: ``a``.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: ``none``, ``mean`` or ``centre``.
        normalise: divide values by their standard deviation, as the other searches do.
        least: smallest share of a variance that a step keeps; 0: no bound.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, Appendix K, "standard reinforce gradient descent"; the gradients are eqs. (12), (13).
    """
    sampling, xp = Sampling("reinforce_gd", backend, domain, population, noise, baseline, normalise), backend.xp
    positive("step_size", step_size)
    positive("least", least, or_zero=True)

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return DiagonalState(x0, sigma0 + xp.zeros_like(x0))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + state.sigma[None, :] * noise, state.mean)

    def tell(state, noise, points, values):
        gradient = sampling.gradient(noise, values)
        mean = state.mean - step_size * gradient.mean / state.sigma  # (eq. 12)
        # the diagonal of (eq. 13), relative to sigma^2
        factor = 1 - 0.5 * step_size * gradient.diagonal(noise) / state.sigma**4
        factor = xp.clip(factor, min=least) if least else factor
        return DiagonalState(mean, state.sigma * xp.sqrt(factor))

    return sampling.diagonal(init, ask, tell)
