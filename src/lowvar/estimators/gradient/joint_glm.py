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
    naive gradient's, and one product with the batch's rows in each direction serves all that is needed. An
    extension of ours.

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

    # stacked: one product with the batch's rows serves several vectors
    forward, back, back_squares = (
        problem.backend.vmap(function, (0, None)) for function in (design.forward, design.back, design.back_squares)
    )

    def diagonals(predictors, index, weight):
        """``N diag(X' l'' X)`` averaged over the batch, for each of the ``predictors (B, C)``."""
        parts = [weight[:, None] * link.curvature_diagonal(a, index) for a in predictors]
        return list(N * back_squares(xp.stack(parts), index))

    def mean(G, params):
        # E[sigma eps o X'(l' + l'' X (sigma eps))] = sigma^2 o diag(X' l'' X)
        return G if not scale else {**G, "log_sigma": xp.exp(2 * params["log_sigma"]) * G["log_sigma"]}

    def terms(rows, params, noise, once_ready):
        index, weight, S = noise.index, noise.weight[:, None], noise.eps.shape[0]
        steps = xp.exp(params["log_sigma"])[None, :] * noise.eps
        a, *along = forward(xp.concat([params["mu"][None, :], steps]), index)
        residuals = [link.residual(a + t, index) for t in along]
        residuals += [link.curvature(rows, t, index) for t in along]
        residuals += [link.residual(rows, index), link.residual(a, index)]
        products = N * back(xp.stack([weight * r for r in residuals]), index)
        exact, curved, old, fresh = products[:S], products[S : 2 * S], products[-2], products[-1]
        near = once_ready(curved + old[None, :])
        controlled = {"mu": exact - near, "log_sigma": (exact - near if scale else exact) * steps}
        prior, entropy = problem.prior_part(params, noise.eps), problem.guide.entropy_gradient(params)
        gradient = {b: xp.mean(controlled[b], axis=0) + prior[b] - entropy[b] for b in controlled}
        gradient = prior_controlled(problem, params, noise.eps, gradient, blocks)
        old, fresh = {"mu": old}, {"mu": fresh}
        if scale:
            old["log_sigma"], fresh["log_sigma"] = diagonals((rows, a), index, noise.weight)
        return Terms(gradient, old, fresh, a)

    def change(rows, params, index, weight):
        a = design.forward(params["mu"], index)
        moved = link.residual(a, index) - link.residual(rows, index)
        found = {"mu": N * design.back(weight[:, None] * moved, index)}
        if scale:
            fresh, old = diagonals((a, rows), index, weight)
            found["log_sigma"] = fresh - old
        return found

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
        gradients_without_noise=2 if scale else 1,
        hvps=1,
        full_passes_at_start=0 if batches.covers else 1,
        needs_epochs=batches.covers,
    )
    return saga(
        name, problem, batches, stored, properties,
        terms=terms, change=change, start=start, full_mean=full_mean, mean=mean,
    )  # fmt: skip
