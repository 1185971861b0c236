"""The multilevel reparameterised gradient, with iterations as levels."""

from lowvar.vi.estimators.base import Estimator
from lowvar.vi.estimators.recursion import checked_schedule, recursive, scheduled


def mlmc(problem, batches=None, particles=None, schedule=None, base="naive", restart=None) -> Estimator:
    """``G_t = G_{t-1} + mean over N_t particles of [g(w_t; eps) - g(w_{t-1}; eps)]``, ``N_t = ceil(eta_{t-1} N_0)``.

    Under stochastic gradient descent with step sizes ``alpha_0 eta_t`` this is the update of Algorithm 1. Its
    conditional variance given the past is that of a small difference. Its true error accumulates over all differences
    since the start, ``E ||e_t||^2 = V_0 / N_0 + sum_s V_s / N_s``, and never falls.

    Args:
        problem: an objective.
        batches: how rows are drawn; those of a step are the same for both gradients.
        particles: ``N_0``; in experiments ``solver.particles``. Without it, all steps use the sampler's number.
        schedule: ``eta_t``, or its settings; in experiments ``solver.schedule``.
        base: the estimator whose gradients are differenced: ``"naive"``, ``"stl"`` or ``"cv"``.
        restart: steps between restarts of the sum, each with ``N_0`` particles; never if not given.

    Raises:
        UserError: ``N_0`` below 1, an impossible schedule, base or restart.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, eq. 8, Theorem 2 and Algorithm 1.
    """
    particles, plan = checked_schedule("mlmc", particles, schedule)
    taken = scheduled(particles, plan, batches.steps if batches else 1, restart)
    return recursive("mlmc", problem, batches, carryover=1.0, base=base, restart=restart, particles=taken)
