"""The gradient of a mini-batch."""

from lowvar.estimators.gradient.base import Estimator, Properties, stateless


def naive(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps)``: what stochastic variational inference does by default.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", 2014; "naive" in Wang, Geffner and Domke.
    """
    return stateless("naive", problem, Properties(unbiased=True), problem.objective_gradient)
