"""The reparameterisation gradient of a mini-batch."""

from lowvar.estimators.gradient.base import Estimator, Properties, reparameterisation_gradient, stateless


def naive(problem, batches=None) -> Estimator:
    """``grad f(w; B, eps)``: what stochastic variational inference does by default.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", 2014; "naive" in Wang, Geffner and Domke.
    """

    def gradient(params, noise):
        return reparameterisation_gradient(problem, params, noise)

    return stateless("naive", problem, Properties(unbiased=True), gradient)
