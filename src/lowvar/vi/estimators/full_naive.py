"""The gradient over all data rows: only Monte Carlo noise remains."""

from lowvar.vi.estimators.base import Estimator, Properties, stateless


def full_naive(problem, batches=None) -> Estimator:
    """``grad f(w; eps) = E_n grad f(w; n, eps)``, for any batch: a pass over the data in every call.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", 2014; "full-batch naive" in Wang, Geffner and Domke.
    """

    def gradient(params, noise):
        return problem.full_objective_gradient(params, noise.eps)

    return stateless("full_naive", problem, Properties(unbiased=True, gradients=0, full_gradients_per_call=1), gradient)
