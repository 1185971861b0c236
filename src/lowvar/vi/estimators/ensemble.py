"""A combination of two control variates: one against subsampling noise, one against Monte Carlo noise."""

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator, Properties, plus
from lowvar.vi.estimators.inc import incremental


def ensemble(problem, batches, beta: float = 0.5) -> Estimator:
    """``naive + beta c_cv + (1 - beta) c_inc``, with the control variates of ``cv`` and ``inc``.

    Even if both are perfect, the variance is ``beta^2 V_n + (1 - beta)^2 V_eps``: neither removes what the other
    leaves. In the first epoch, while its table fills, ``c_inc`` is zero.

    Args:
        problem: the objective.
        batches: how rows are drawn.
        beta: the weight of ``c_cv``, between 0 and 1.

    Raises:
        UserError: ``beta`` is not between 0 and 1.

    References:
        Geffner and Domke, "Using large ensembles of control variates for variational inference", 2018;
        Wang, Geffner and Domke, 2024, eq. 15.
    """
    if not 0 < beta < 1:
        raise UserError(f"ensemble: beta = {beta}; it must lie between 0 ('inc') and 1 ('cv')")
    memory = incremental(problem, batches)

    def estimate(state, params, noise):
        mean, deviation = problem.approximation(problem.point(params), noise)
        deviation = {**deviation, **problem.first_order(params, noise.eps, mean)}
        control, state = memory.control(state, params, noise)
        gradient = plus(problem.objective_gradient(params, noise), control, 1 - beta)
        return plus(gradient, deviation, -beta), state

    properties = Properties(
        unbiased=True,
        gradients=2,
        hvps=1,
        full_gradients_per_call=1,
        table_rows=memory.rows,
        needs_epochs=batches.covers,
    )
    return Estimator("ensemble", problem, properties, memory.init, estimate, end_epoch=memory.end_epoch)
