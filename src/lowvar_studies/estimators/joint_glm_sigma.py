"""The joint control variate from cached predictors, for ``mu`` and ``log sigma``."""

from lowvar.vi.estimators.base import Estimator
from lowvar_studies.estimators.joint_glm import from_predictors


def joint_glm_sigma(problem, batches) -> Estimator:
    """``joint_glm`` that also controls the ``log sigma`` part.

    With ``l`` the negative log-likelihood of a row, ``f~``'s part for ``log sigma`` is
    ``sigma eps o N X_n' (l'(a_n) + l''(a_n) X_n (sigma eps))``. Its mean over ``eps`` with the current ``sigma`` is
    ``sigma^2 o N diag(X_n' l''(a_n) X_n)``. This diagonal, intractable for a general model, is one more product with
    ``X_n o X_n`` here, and its running mean does not depend on ``sigma``. An extension of ours.

    Args:
        problem: a ``LinearProblem`` whose predictors share no entry of ``z``.
        batches: how rows are drawn.

    Raises:
        UserError: the problem has no linear predictors.

    References:
        After Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        eq. 5, Algorithm 1 and eq. 67.
    """
    return from_predictors("joint_glm_sigma", problem, batches, scale=True)
