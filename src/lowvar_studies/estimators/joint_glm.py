"""The joint control variate from cached predictors, for models that depend on ``z`` only through ``X_n z``."""

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator, Properties
from lowvar.vi.estimators.joint_current import prior_controlled
from lowvar.vi.estimators.saga import Terms, saga
from lowvar.vi.estimators.tables import cached
from lowvar_studies.models.linear.problem import LinearProblem


def joint_glm(problem, batches) -> Estimator:
    """``joint_current`` with the predictors ``a_n = X_n mu^n`` in the table instead of ``mu^n``: the same estimate.

    ``C`` numbers for each data row replace a parameter vector for each batch, so the table fits wherever the data
    fit, and reading it costs almost nothing. The predictors at ``mu`` and along ``sigma eps`` also give those of the
    naive gradient, so one product with the batch's rows in each direction suffices. An extension of ours.

    Args:
        problem: a ``LinearProblem``.
        batches: how rows are drawn.

    Raises:
        UserError: the problem has no linear predictors.

    References:
        After Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        eq. 5 and Algorithm 1.
    """
    return from_predictors("joint_glm", problem, batches, scale=False)


def from_predictors(name: str, problem, batches, *, scale: bool) -> Estimator:
    """``joint_glm``; with ``scale``, the ``log sigma`` part is controlled too."""
    if not isinstance(problem, LinearProblem):
        raise UserError(
            f"estimator {name!r} needs a model of the catalogue with linear predictors (logistic_regression, "
            f"softmax_regression, bradley_terry, movielens), not {problem.name!r}; 'joint_current' gives the estimates "
            "of joint_glm for any model"
        )
    if not problem.guide.factorised:
        raise UserError(
            f"estimator {name!r} needs the mean-field guide, not {problem.guide.name!r}; joint_current, joint, "
            "joint_svrg and joint_adaptive take all guides"
        )
    xp, design, link, N = problem.backend.xp, problem.design, problem.link, problem.N
    blocks = ("mu", "log_sigma") if scale else ("mu",)
    stored = cached(problem.backend, batches)

    # stacked: one product with the batch's rows serves several vectors
    forward = problem.backend.vmap(design.forward, (0, None))
    back = problem.backend.vmap(design.back, (0, None))

    def moved(a, rows, index, weight, once_ready=lambda array: array):
        """The change of the diagonal ``N X' l'' X``, averaged over the batch, from the stored predictors to ``a``."""
        change = link.curvature_diagonal(a, index) - once_ready(link.curvature_diagonal(rows, index))
        return N * design.back_squares(weight[:, None] * change, index)

    def mean(G, params):
        # E[sigma eps o X'(l' + l'' X (sigma eps))] = sigma^2 o diag(X' l'' X)
        return G if not scale else {**G, "log_sigma": xp.exp(2 * params["log_sigma"]) * G["log_sigma"]}

    def terms(rows, params, noise, once_ready):
        index, weight = noise.index, noise.weight[None, :, None]
        steps = xp.exp(params["log_sigma"])[None, :] * noise.eps
        a, *along = forward(xp.concat([params["mu"][None, :], steps]), index)
        exact = xp.stack([link.residual(a + t, index) for t in along])
        if not scale:  # the control for mu is linear in eps: one curvature for all particles
            along = [sum(along) / len(along)]
        old, there = link.residual(rows, index), [link.curvature(rows, t, index) for t in along]
        near = once_ready(old[None, :, :] + xp.stack(there))
        change = (link.residual(a, index) - once_ready(old))[None, :, :]  # the first epoch accumulates G from zero
        if scale:
            *by_z, change = N * back(weight * xp.concat([exact - near, change]), index)
            by_mu = by_sigma = xp.stack(by_z)
        else:
            *by_z, near, change = N * back(weight * xp.concat([exact, near, change]), index)
            by_sigma = xp.stack(by_z)
            by_mu = by_sigma - near[None, :]
        controlled = {"mu": by_mu, "log_sigma": by_sigma * steps}
        prior, entropy = problem.prior_part(params, noise.eps), problem.guide.entropy_gradient(params)
        gradient = {b: xp.mean(controlled[b], axis=0) + prior[b] - entropy[b] for b in controlled}
        gradient = prior_controlled(problem, params, noise.eps, gradient, blocks)
        change = {"mu": change}
        if scale:
            change["log_sigma"] = moved(a, rows, index, noise.weight, once_ready)
        return Terms(gradient, change, a)

    def change(rows, params, index, weight):
        a = design.forward(params["mu"], index)
        residual = link.residual(a, index) - link.residual(rows, index)
        mu_part = {"mu": N * design.back(weight[:, None] * residual, index)}
        return mu_part | ({"log_sigma": moved(a, rows, index, weight)} if scale else {})

    def start(params):
        return design.forward(params["mu"], None), {block: xp.zeros_like(params["mu"]) for block in blocks}

    def full_mean(params):
        a = design.forward(params["mu"], None)
        mu_part = {"mu": design.back(link.residual(a, None), None)}
        return mu_part | ({"log_sigma": design.back_squares(link.curvature_diagonal(a, None), None)} if scale else {})

    properties = Properties(
        unbiased=True,
        gradients_without_noise=0 if batches.covers else 1,
        hvps=1,
        full_passes_at_start=0 if batches.covers else 1.5 if scale else 1,
        needs_epochs=batches.covers,
    )
    return saga(
        name, problem, batches, stored, properties,
        terms=terms, change=change, start=start, full_mean=full_mean, mean=mean, renewed=False,
    )  # fmt: skip
