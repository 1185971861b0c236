"""The joint control variate from cached predictors: for models that see ``z`` through ``X_n z`` only."""

from lowvar.errors import UserError
from lowvar.estimators.gradient.base import Estimator, Properties
from lowvar.estimators.gradient.joint_current import full_likelihood, prior_controlled
from lowvar.estimators.gradient.saga import Terms, saga
from lowvar.estimators.gradient.tables import cached
from lowvar.problems.linear import LinearProblem


def joint_glm(problem, batches) -> Estimator:
    """``joint_current`` with the predictors ``a_n = X_n mu^n`` in the table instead of ``mu^n``: the same estimate.

    ``C`` numbers for each data row replace a parameter vector for each batch, so that a table fits wherever the
    data do, and reading it costs next to nothing. The predictors at ``mu`` and along ``sigma eps`` also give the
    naive gradient's, so a call costs two products with the batch's rows in each direction, naive one. An extension
    of ours.

    Args:
        problem: a ``LinearProblem``.
        batches: how rows are drawn.

    Raises:
        UserError: the problem has no linear predictors.

    References:
        After Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        eq. 11 and Algorithm 1.
    """
    return from_predictors("joint_glm", problem, batches, scale=False)


def from_predictors(name: str, problem, batches, *, scale: bool) -> Estimator:
    """``joint_glm``; with ``scale`` the part of ``log sigma`` is controlled too."""
    if not isinstance(problem, LinearProblem):
        raise UserError(
            f"estimator {name!r} needs a model with linear predictors, which {problem.name!r} does not declare; "
            "'joint_current' makes the same estimates from any model"
        )
    xp, design, link, N = problem.backend.xp, problem.design, problem.link, problem.N
    blocks = ("mu", "log_sigma") if scale else ("mu",)
    stored = cached(problem.backend, batches)

    def expectation(a, index, weight):
        """What the mean of ``grad f~`` is made of, for rows with predictors ``a``."""
        found = {"mu": N * design.back(weight[:, None] * link.residual(a, index), index)}
        if scale:
            diagonal = weight[:, None] * link.curvature_diagonal(a, index)
            found["log_sigma"] = N * design.back_squares(diagonal, index)
        return found

    def mean(G, params):
        # E[sigma eps o X'(l' + l'' X (sigma eps))] = sigma^2 o diag(X' l'' X)
        return G if not scale else {**G, "log_sigma": xp.exp(2 * params["log_sigma"]) * G["log_sigma"]}

    def terms(rows, params, noise):
        index, weight, sigma = noise.index, noise.weight, xp.exp(params["log_sigma"])
        a = design.forward(params["mu"], index)

        def of_point(eps):
            """The gradient less its approximation, and the approximation's parts, at one point."""
            t = design.forward(sigma * eps, index)
            exact = link.residual(a + t, index)
            near = link.residual(rows, index) + link.curvature(rows, t, index)
            by_z = N * design.back(weight[:, None] * exact, index)
            near_z = N * design.back(weight[:, None] * near, index)
            return {"mu": by_z, "log_sigma": by_z * sigma * eps}, {"mu": near_z, "log_sigma": near_z * sigma * eps}

        likelihood, approximation = problem.mean_over_points(of_point, noise.eps)
        prior, entropy = problem.prior_part(params, noise.eps), problem.guide.entropy_gradient(params)
        gradient = {block: likelihood[block] + prior[block] - entropy[block] for block in prior}
        gradient = prior_controlled(problem, params, noise.eps, gradient, blocks)
        old, fresh = expectation(rows, index, weight), expectation(a, index, weight)
        return Terms(gradient, {block: approximation[block] for block in blocks}, old, fresh, a)

    def change(rows, params, index, weight):
        a = design.forward(params["mu"], index)
        fresh, old = expectation(a, index, weight), expectation(rows, index, weight)
        return {block: fresh[block] - old[block] for block in fresh}

    def start(params):
        return design.forward(params["mu"], None), {block: xp.zeros_like(params["mu"]) for block in blocks}

    def full_mean(params):
        found = full_likelihood(problem, params)
        if scale:
            diagonal = link.curvature_diagonal(design.forward(params["mu"], None), None)
            found["log_sigma"] = design.back_squares(diagonal, None)
        return found

    properties = Properties(
        unbiased=True,
        gradients_without_noise=1,
        full_passes_at_start=0 if batches.covers else 1,
        needs_epochs=batches.covers,
    )
    return saga(
        name, problem, batches, stored, properties,
        terms=terms, change=change, start=start, full_mean=full_mean, mean=mean,
    )  # fmt: skip
