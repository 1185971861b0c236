"""IGO: the natural gradient of a Gaussian, with an explicit step on the covariance."""

from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import LEAST, factored


def igo(
    backend,
    domain,
    population: int | None = None,
    beta: float | None = None,
    noise: str = "iid",
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """Natural gradient on ``(mu, Sigma)``, with the normalisation and the settings of ``ingo``.

    ``Sigma <- Sigma - 2 beta Sigma grad_Sigma J Sigma`` and ``mu <- mu - beta Sigma grad_mu J``. In whitened
    coordinates ``A <- A (I - beta M)^(1/2)`` and ``mu <- mu - beta A s``; the eigenvalues of ``I - beta M`` are kept
    above 1e-3. INGO divides by ``I + beta M`` where IGO multiplies by ``I - beta M``, which is smaller by
    ``(beta M)^2``: with unranked values, ``Sigma`` shrinks before ``mu`` reaches the minimum.

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
        Ollivier, Arnold, Auger and Hansen, "Information-geometric optimization algorithms", 2017, section 4;
        "IGO" in Lyu and Tsang, section 6.
    """
    xp = backend.xp
    return factored(
        "igo", backend, domain, population, beta, noise, baseline, normalise,
        scales=lambda b: xp.sqrt(xp.clip(2 - b, min=LEAST)),
        means=xp.ones_like,
    )  # fmt: skip
