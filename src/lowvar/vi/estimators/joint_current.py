"""The joint control variate with the current sigma and an exact prior: a table of means only."""

from lowvar.vi.estimators.base import Estimator, Properties, minus, plus, variational
from lowvar.vi.estimators.saga import Terms, saga
from lowvar.vi.estimators.tables import table_of_vectors


def joint_current(problem, batches, table: str | None = None) -> Estimator:
    """``joint`` with the likelihood term of ``f~`` expanded at ``mu^n``, for the current ``sigma eps``.

    ``E_eps[hess k_n(mu^n) (sigma eps)] = 0`` for any ``sigma``, so only ``mu^n`` has to be stored, and an old
    ``sigma^n`` adds no variance. The prior does not depend on the row and needs no memory: its term of the gradient is
    exact if the log prior is quadratic, and otherwise controlled as in ``cv``, at the current parameters. An
    extension of ours.

    Args:
        problem: a variational problem.
        batches: how rows are drawn.
        table: as of ``joint``.

    Raises:
        UserError: the problem has no guide, an unknown table, or one that the batches do not allow.

    References:
        After Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        eq. 5 and Algorithm 1.
    """
    problem = variational(problem, "joint_current")
    (_, stored), xp = table_of_vectors("joint_current", table, problem.backend, batches), problem.backend.xp

    def likelihood(mu, index, weight):
        """The likelihood's gradient at the means."""
        return problem.gradient(mu, index, weight) - problem.prior_gradient(mu)

    def terms(rows, params, noise, once_ready):
        index, weight, mu = noise.index, noise.weight, params["mu"]
        step = problem.guide.step(problem.point(params), xp.mean(noise.eps, axis=0))
        old, deviation = problem.likelihood_at_rows(rows["mu"], step, index, weight)
        gradient = prior_controlled(problem, params, noise.eps, problem.objective_gradient(params, noise))
        fresh = likelihood(mu, index, weight)
        gradient = minus(gradient, {"mu": once_ready(old + deviation)})
        return Terms(gradient, {"mu": fresh - old}, {"mu": mu}, {"mu": fresh})

    def change(rows, params, index, weight):
        mu = params["mu"]
        old, _ = problem.likelihood_at_rows(rows["mu"], mu, index, weight)
        return {"mu": likelihood(mu, index, weight) - old}

    def start(params):
        return {"mu": params["mu"]}, {"mu": xp.zeros_like(params["mu"])}

    properties = Properties(
        unbiased=True,
        gradients_without_noise=1,
        hvps=1,
        full_passes_at_start=0 if batches.covers else 1,
        table_rows=stored.rows,
        table_blocks=1,
        needs_epochs=batches.covers,
    )
    return saga(
        "joint_current", problem, batches, stored, properties, terms=terms, change=change, start=start,
        full_mean=lambda params: full_likelihood(problem, params),
    )  # fmt: skip


def prior_controlled(problem, params, eps, gradient, blocks=("mu",)):
    """``gradient`` with the noise of the prior term removed: all of it if the log prior is quadratic.

    Args:
        problem: a variational problem.
        params: the guide's.
        eps: the particles of the gradient, ``(S, dim)``.
        gradient: gradient of the objective.
        blocks: the blocks to control; without a quadratic log prior, ``mu`` alone.
    """
    if not problem.quadratic_prior:
        step = problem.guide.step(problem.point(params), problem.backend.xp.mean(eps, axis=0))
        _, deviation = problem.backend.jvp(problem.prior_gradient, (params["mu"],), (step,))
        return minus(gradient, {"mu": deviation})
    noisy = problem.prior_part(params, eps)
    exact = problem.backend.grad(problem.expected_log_prior)(params)
    return plus(gradient, {block: -exact[block] - noisy[block] for block in blocks})


def full_likelihood(problem, params):
    """The likelihood's gradient at the means, over all rows: ``G`` of a table filled at ``params``."""
    return {"mu": problem.full_gradient(params["mu"]) - problem.prior_gradient(params["mu"])}
