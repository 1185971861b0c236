"""Evolution strategy: a Gaussian of fixed width whose mean follows the search gradient."""

from typing import Any, NamedTuple

from lowvar.core.optimizers import optimizer as make_optimizer
from lowvar.errors import positive
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.gaussian import Sampling


class EsState(NamedTuple):
    """A Gaussian ``N(mu, sigma^2 I)`` and its optimizer.

    Attributes:
        mean: ``mu``, ``(d,)``.
        sigma: standard deviation, a scalar that never changes.
        optimizer: the optimizer's state.
    """

    mean: Any
    sigma: Any
    optimizer: Any


def es(
    backend,
    domain,
    population: int | None = None,
    step_size: float = 0.01,
    optimizer: str = "sgd",
    noise: str = "antithetic",
    baseline: str = "mean",
    normalise: bool = True,
) -> SearchSolver:
    """Gradient steps on ``mu`` with ``grad_mu E f = s / sigma``, from antithetic pairs of points.

    Args:
        backend: backend of the arrays.
        domain: a real domain.
        population: ``N``, even with antithetic noise; ``2 floor(3 + floor(3 ln d) / 2)`` if not given.
        step_size: step size of the optimizer.
        optimizer: ``sgd`` or ``adam``.
        noise: a name of ``lowvar.core.gaussian.GAUSSIAN``.
        baseline: ``none``, ``mean`` or ``centre``.
        normalise: divide values by their standard deviation.

    Raises:
        UserError: a domain that is not real, or a setting out of range.

    References:
        Salimans, Ho, Chen, Sidor and Sutskever, "Evolution strategies as a scalable alternative to reinforcement
        learning", 2017, Algorithm 1; "ES" in Lyu and Tsang, section 6 and Appendix K.
    """
    sampling = Sampling("es", backend, domain, population, noise, baseline, normalise)
    positive("step_size", step_size)
    moves: Any = make_optimizer(optimizer, step_size, backend)

    def init(x0, sigma0):
        x0, sigma0 = sampling.start(x0, sigma0)
        return EsState(x0, sigma0, moves.init({"mean": x0}))

    def ask(state, noise):
        return sampling.with_centre(state.mean[None, :] + state.sigma * noise, state.mean)

    def tell(state, noise, points, values):
        gradient = {"mean": sampling.gradient(noise, values).mean / state.sigma}
        updates, after = moves.update(gradient, state.optimizer, {"mean": state.mean})
        return EsState(state.mean + updates["mean"], state.sigma, after)

    return sampling.solver(init, ask, tell, lambda state: (state.sigma, backend.xp.ones_like(state.sigma)))
