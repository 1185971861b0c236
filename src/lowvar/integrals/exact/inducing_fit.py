"""The fit of ``sparse_control_functional``: a kernel's functions around some of the points of all tasks."""

import numpy as np
import torch

from lowvar.integrals.base import Integrals, of_last_points
from lowvar.integrals.exact.checks import check_memory
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.inducing import amplitude as amplitude_of
from lowvar.integrals.exact.inducing import ridge, root
from lowvar.integrals.exact.learn import learn
from lowvar.integrals.exact.one_fit import space_of
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import numpy, stack

COLUMNS = 20  # with more tasks lengthscales are learnt from some of them
LEARN = 200  # points that lengthscales are learnt from


def around_some(samples: Samples, chosen: FitSettings, inducing: int) -> Integrals:
    """All tasks of one set of points, with functions around ``inducing`` of them."""
    m = samples.sizes[0]
    check_memory(int((m * min(m, inducing)) ** 0.5), chosen.max_gigabytes, "give fewer points, or fewer inducing ones")
    data = stack(samples, chosen.standardise, shared=True)
    some = data.thin(LEARN)
    space = space_of(some, chosen, torch.ones_like(data.y[:, :1, :1]), False)
    hyper, _ = learn(chosen.covariance, some.columns(COLUMNS), space, chosen.steps)
    centres = data.thin(inducing)
    fits, found, amplitude = [], [], amplitude_of(chosen, some, hyper)

    def features(r: int, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """``Phi (n, .)`` of repetition ``r`` at points ``(1, ., d)``, transposed."""
        params, at = hyper.pick(slice(r, r + 1)).kernel, centres.pick(slice(r, r + 1))
        if len(fits) == r:
            square = chosen.covariance.between(params, at.x, at.x, at.scores, at.scores)[0]
            level = square.diagonal().mean()
            fits.append((root(square), level))
        factor, level = fits[r][:2]
        cross = chosen.covariance.between(params, at.x, x, at.scores, scores)[0]
        return torch.linalg.solve_triangular(factor, cross, upper=False) / level.sqrt()

    for r in range(data.repetitions):
        phi = features(r, data.x[r : r + 1], data.scores[r : r + 1])
        beta, error, weights, penalty, condition, inverse = ridge(phi, data.y[r])
        fits[r] = (*fits[r], weights)
        v, kept, noise = inverse
        # of the process, whose covariance is Phi Phi' + noise: 1 / (1' M^-1 1)
        variance = noise * (1 / phi.shape[1] + (kept * (v.T @ phi.mean(1)).square()[:, None]).sum(0))
        error = (error.square() + variance * amplitude[r] * fits[r][1]).sqrt()
        found.append((beta, error, condition, penalty))
    values, errors, conditions, penalties = map(torch.stack, zip(*found, strict=True))

    def features_there(points: np.ndarray, scores: np.ndarray) -> list:
        """``Phi`` by repetition, transposed."""
        x, lx = data.points(points, scores)
        return [features(r, x[r : r + 1], lx[r : r + 1]) for r in range(data.repetitions)]

    there = of_last_points(features_there)

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        rows = [fits[r][2][:, task] @ phi for r, phi in enumerate(there(points, scores))]
        level = values[:, task, None]
        return numpy(data.y_shift[:, task, None] + data.y_scale[:, task, None] * (level + torch.stack(rows)))

    lengthscale = (hyper.kernel["log_lengthscale"].exp() * data.x_scale)[:, None].expand(-1, data.tasks, -1)
    return Integrals(
        numpy(data.y_shift + data.y_scale * values),
        numpy(data.y_scale * errors),
        numpy(conditions),
        info={"lengthscale": numpy(lengthscale), "penalty": numpy(penalties)},
        fitted=fitted,
    )
