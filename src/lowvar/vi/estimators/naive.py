"""The gradient of a mini-batch."""

from lowvar.vi.estimators.base import Estimator, Properties, stateless


def naive(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps)``, the default of stochastic variational inference.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", 2014; "naive" in Wang, Geffner and Domke.
    """
    return stateless("naive", problem, Properties(unbiased=True, local=True), problem.objective_gradient)
