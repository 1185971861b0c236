"""The joint control variate from a snapshot, with coefficients estimated during the run."""

from lowvar.errors import whole
from lowvar.vi.estimators.base import Estimator, Properties, variational

_LAG = 10  # steps over which the mean of the gradient is averaged


def joint_adaptive(problem, batches=None, memory: int = 100) -> Estimator:
    """``g + a_1 c_1 + a_2 c_2`` for ``mu``, ``g + a_3 c_3`` for ``log sigma``: ``joint_svrg`` with a safeguard.

    With the snapshot ``mu~`` from the beginning of the epoch, its full gradient ``g_bar`` and ``step = sigma eps``,

        c_1 = g_bar - grad k_B(mu~),   c_2 = -hess k_B(mu~) step,   c_3 = -grad k_B(mu~) step.

    Each has mean zero, so the estimate is unbiased for any coefficients. ``c_1`` removes subsampling noise, ``c_2``
    Monte Carlo noise; ``joint_svrg`` is ``a_1 = a_2 = 1, a_3 = 0`` with the sigma of the snapshot. With guides other
    than mean-field, all scale parameters have two controls each, see ``Guide.controls``. Where the
    objective is not convex, or a step is long, the Taylor expansion is poor and adds noise. Each coordinate has its
    own coefficient: the one of least variance, ``-E[(g - E g) c] / E[c^2]``, clipped to [0, 1]. It is estimated by
    exponential averages over earlier steps, so it is fixed given the past. The coefficients start at 0, the naive
    gradient. Where every batch has all rows, ``mu~`` would be the current ``mu`` and ``c_1`` zero: it is left out, and
    with it the full pass. An extension of ours.

    Args:
        problem: a variational problem.
        batches: how rows are drawn; fewer than all of them, if not given.
        memory: steps over which the coefficients are averaged, 2 or more; estimating them adds a fraction of about
            ``1 / memory`` to the variance.

    Raises:
        UserError: the problem has no guide, or ``memory`` is not a number of steps.

    References:
        After Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        Algorithm 2; coefficients as in Geffner and Domke, "Using large ensembles of control variates for
        variational inference", 2018, eq. 8.
    """
    memory = whole("joint_adaptive: memory", memory, 2)
    problem = variational(problem, "joint_adaptive")
    backend, xp, share = problem.backend, problem.backend.xp, 1 / memory
    guide = problem.guide
    whole_batch = batches is not None and batches.covers and batches.steps == 1
    controls = {"mu": 1 if whole_batch else 2, **guide.controlled}

    def snapshot(params):
        if whole_batch:
            return {}
        return {"mu": params["mu"], "mean": problem.full_gradient(params["mu"])}

    def unseen(params):
        # not finite, so that its use would show; not NaN, which jax_debug_nans reports
        return {} if whole_batch else {"mu": params["mu"], "mean": xp.full_like(params["mu"], xp.inf)}

    def init(params, snapshot=snapshot):
        zero = {block: xp.zeros_like(params[block]) for block in controls}
        of_each = {block: [zero[block]] * count for block, count in controls.items()}
        return {"snapshot": snapshot(params), "lagged": zero, "products": of_each, "squares": of_each}

    def coefficient(product, square):
        # both averages start at zero, so their initial bias cancels in the ratio
        ratio = -product / xp.where(square > 0, square, xp.ones_like(square))
        return xp.clip(ratio, 0, 1)

    def estimate(state, params, noise):
        near, step = state["snapshot"], guide.step(guide.point(params), xp.mean(noise.eps, axis=0))
        old, deviation = problem.gradient_and_hvp((near or params)["mu"], step, noise.index, noise.weight)
        of_scale = guide.controls(params, noise.eps, old)
        of_mu = [-deviation] if whole_batch else [near["mean"] - old, -deviation]
        control = {"mu": of_mu, **{b: [-c for c in cs] for b, cs in of_scale.items()}}
        gradient = problem.objective_gradient(params, noise)
        controlled, products, squares = {}, {}, {}
        for block, terms in control.items():
            product, square = state["products"][block], state["squares"][block]
            used = [coefficient(p, s) * c for c, p, s in zip(terms, product, square, strict=True)]
            controlled[block] = gradient[block] + sum(used)
            off = controlled[block] - state["lagged"][block]
            # regress on the residual of the other control: the noise that it removes would add noise to the coefficient
            pairs = [((off - u) * c, c * c) for c, u in zip(terms, used, strict=True)]
            products[block] = [p + share * (new - p) for p, (new, _) in zip(product, pairs, strict=True)]
            squares[block] = [s + share * (new - s) for s, (_, new) in zip(square, pairs, strict=True)]
        lagged = backend.tree_map(lambda old, new: old + (new - old) / _LAG, state["lagged"], controlled)
        state = {"snapshot": near, "lagged": lagged, "products": products, "squares": squares}
        return controlled, state

    passes, rows = (0, 3) if whole_batch else (1, 5)
    properties = Properties(
        unbiased=True, hvps=1, full_passes=passes, full_passes_at_start=passes, table_rows=rows, local=True
    )
    return Estimator(
        "joint_adaptive",
        problem,
        properties,
        init,
        estimate,
        begin_epoch=lambda state, params: {**state, "snapshot": snapshot(params)},
        idle=lambda params: init(params, unseen),
    )
