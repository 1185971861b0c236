"""INGOstep: the covariance update of INGO, and a mean update with the old covariance."""

from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import LEAST, factored


def ingo_step(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    noise: str = "iid",
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """A Kullback-Leibler proximal step directly in ``(mu, Sigma)``.

    ``Sigma^-1 <- Sigma^-1 + 2 beta grad_Sigma J`` as in ``ingo``, but ``mu <- mu - beta Sigma_old grad_mu J``. In
    whitened coordinates ``A <- A B^(-1/2)`` and ``mu <- mu - beta A s`` with ``B = I + beta M``, whose eigenvalues
    are kept above 1e-3.

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
        Lyu and Tsang, Algorithm 2; Theorem 3, eqs. (21), (22), (25), (26).
    """
    xp = backend.xp
    return factored(
        "ingo_step", backend, domain, population, beta, noise, baseline, normalise,
        scales=lambda b: 1 / xp.sqrt(xp.clip(b, min=LEAST)),  # (eq. 25)
        means=xp.ones_like,  # Sigma_old (eq. 26)
    )  # fmt: skip
