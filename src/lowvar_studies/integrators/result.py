"""What a descent gives, as integrators return it."""

from dataclasses import replace

import numpy as np

from lowvar.integrals.base import Integrals
from lowvar.integrals.exact import verdicts
from lowvar.integrals.kernels import Kernel, Params
from lowvar.integrals.stacked import numpy, tensor
from lowvar_studies.integrators.data import Columns
from lowvar_studies.integrators.sgd import Descended


def integrals(data: Columns, kernel: Kernel, params: Params, ended: Descended) -> Integrals:
    """Estimates ``beta``; their errors and warnings from the residuals.

    The standard error is the root mean square of the residuals over ``sqrt(m_t)``: of the data that were fitted, and
    of coefficients that were stopped on their way, so it is a rough guide. At the optimum residuals have a mean of
    zero; where it is more than the standard error, the descent has ``not_converged``.
    """
    m = data.mask.sum(0)
    mean = ended.residuals.sum(1) / m
    error = (ended.residuals.square().sum(1) / m / m).sqrt()
    info = lengthscales(params, data.points.shape[2]) | {
        "steps": np.full(mean.shape[0], ended.steps),
        "B": numpy(ended.relation),
    }
    if ended.trace.shape[1]:
        info["trace_epochs"] = numpy(ended.trace)

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        gram = data.gram(kernel, params, tensor(points), tensor(scores))
        mixed = data.predict(gram, ended.theta) @ ended.relation[:, :, task, None]
        return numpy(mixed[..., 0] + ended.beta[:, task, None])

    return Integrals(
        value=numpy(ended.beta),
        standard_error=numpy(error),
        condition=np.full(mean.shape[0], np.nan),
        flags={"not_converged": numpy((mean.abs() > error).any(1))},
        info=info,
        fitted=fitted,
    )


def lengthscales(params: Params, dim: int) -> dict[str, np.ndarray]:
    """``lengthscale (R, d)``, if the kernel has any."""
    if "log_lengthscale" not in params:
        return {}
    log_lengthscale = params["log_lengthscale"]
    return {"lengthscale": numpy(log_lengthscale.exp().expand(log_lengthscale.shape[0], dim))}


def side_by_side(results: list[Integrals]) -> Integrals:
    """One result of several tasks from results of one task each.

    What was learnt gets an axis of tasks, the second; ``trace_epochs`` stays that of the last task.
    """
    info = {name: np.stack([result.info[name] for result in results], 1) for name in results[0].info}
    info |= {name: value for name, value in results[-1].info.items() if name == "trace_epochs"}
    return replace(verdicts.side_by_side(results), info=info)
