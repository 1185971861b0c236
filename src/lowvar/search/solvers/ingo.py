"""INGO: implicit natural gradient for a Gaussian with a full covariance."""

from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import LEAST, factored


def ingo(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    noise: str = "iid",
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """Implicit natural gradient for ``N(mu, Sigma)``: a mirror step in the mean parameters.

    ``Sigma^-1 <- Sigma^-1 + 2 beta grad_Sigma J``, then ``mu <- mu - beta Sigma_new grad_mu J``. In whitened
    coordinates ``A <- A B^(-1/2)`` and ``mu <- mu - beta A B^-1 s`` with ``B = I + beta M``, whose eigenvalues are
    kept above 1e-3.

    The population hardly affects the number of evaluations if the step size scales with it: with d = 100, ``1 / d``
    or ``2 / d`` for N = 18, ``4 / d`` for N = 36 and ``8 / d`` for N = 100. A larger population with such a step saves
    generations, which helps if points are evaluated in parallel, but not evaluations; the numbers are in
    docs/reproduction/ingo_beyond.md.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``; ``2 floor(3 + floor(3 ln d) / 2)`` if not given. With ``N <= d`` a generation costs
            ``O(d^2 N)``, with more points an eigendecomposition of a ``d x d`` matrix.
        beta: step size; ``1 / d``, at most 1/2, if not given.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: ``none``, ``mean`` or ``centre``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Lyu and Tsang, Algorithm 1; eqs. (10), (11), (18), (19).
    """
    xp = backend.xp
    return factored(
        "ingo", backend, domain, population, beta, noise, baseline, normalise,
        scales=lambda b: 1 / xp.sqrt(xp.clip(b, min=LEAST)),  # (eq. 18)
        means=lambda b: 1 / xp.clip(b, min=LEAST),  # Sigma_new in (eq. 19)
    )  # fmt: skip
