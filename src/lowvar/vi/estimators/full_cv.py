"""A Taylor control variate against Monte Carlo noise, over all data rows."""

from lowvar.vi.estimators.base import Estimator, Properties, minus, stateless


def full_cv(problem, batches=None) -> Estimator:
    """``grad f(w; eps) + E_xi grad f~(w; xi) - grad f~(w; eps)`` over all data rows, for any batch.

    ``cv`` without subsampling. Its variance is the Monte Carlo noise that ``f~`` does not explain. Every call makes two
    passes over the data, one of them with a Hessian-vector product.

    References:
        Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", 2017;
        "full-batch cv" in Wang, Geffner and Domke.
    """

    def gradient(params, noise):
        mean, deviation = problem.full_approximation(problem.point(params), noise.eps)
        gradient = minus(problem.full_objective_gradient(params, noise.eps), deviation)
        return minus(gradient, problem.first_order(params, noise.eps, mean))

    properties = Properties(unbiased=True, gradients=0, full_gradients_per_call=1, full_hvps_per_call=1)
    return stateless("full_cv", problem, properties, gradient)
