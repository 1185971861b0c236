"""Sticking the landing: the path derivative alone, whose Monte Carlo noise vanishes where the guide is exact."""

from lowvar.vi.estimators.base import Estimator, Properties, stateless, variational


def stl(problem, batches=None) -> Estimator:
    """The gradient of ``k_B(z) + log q(z)`` through ``z`` only, with the parameters of ``log q`` held fixed.

    Raises:
        UserError: the problem has no guide.

    References:
        Roeder, Wu and Duvenaud, "Sticking the landing", 2017, eq. 7.
    """
    problem = variational(problem, "stl")
    guide = problem.guide

    def gradient(params, noise):
        def along_path(eps):
            z = guide.transform(params, eps)
            total = problem.gradient(z, noise.index, noise.weight) + guide.path_score(params, eps)
            return guide.pull_back(params, eps, total)

        return problem.mean_over_points(along_path, noise.eps)

    return stateless("stl", problem, Properties(unbiased=True, local=True), gradient)
