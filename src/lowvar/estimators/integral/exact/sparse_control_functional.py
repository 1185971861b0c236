"""Control functionals for many points: a kernel's functions around some of them, by regularised least squares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lowvar.estimators.integral.base import IntegralProperties, Integrals, Integrator
from lowvar.estimators.integral.exact.checks import check_memory, check_sizes
from lowvar.estimators.integral.exact.inducing import amplitude as amplitude_of
from lowvar.estimators.integral.exact.inducing import diagonal, ridge, root
from lowvar.estimators.integral.exact.learn import learn
from lowvar.estimators.integral.exact.one_fit import Settings, settings, space_of
from lowvar.estimators.integral.exact.verdicts import numpy, side_by_side
from lowvar.estimators.integral.kernels import Kernel
from lowvar.estimators.integral.memo import of_last_points
from lowvar.estimators.integral.option_checks import whole
from lowvar.estimators.integral.stacked import stack
from lowvar.problems.integrals.samples import Samples

COLUMNS = 20  # with more tasks lengthscales are learnt from some of them
LEARN = 200  # points that lengthscales are learnt from


def sparse_control_functional(
    kernel: str | Kernel = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    inducing: int = 500,
    ard: bool | None = None,
    standardise: bool = True,
    operator: int = 1,
    steps: int = 200,
    max_gigabytes: float = 4.0,
) -> Integrator:
    """``f = beta + g``, ``g`` in the span of the Stein kernel around ``n`` of the ``m`` points, in ``O(m n^2)``.

    With ``Phi = K_mn K_nn^(-1/2)`` it minimises ``|y - beta - Phi w|^2 + lambda |w|^2``, whose penalty is the kernel's
    own norm of ``g``: the subset of regressors of Gaussian processes, and of ``control_functional`` if all points are
    inducing. Lengthscales and the weight of the additive quadratic trend are learnt by REML from some of the points,
    ``lambda`` from all, task by task, by leaving each value out. Tasks with the same points share the
    lengthscales.

    Args:
        kernel: a name of ``kernels.KERNELS``, or a kernel.
        kernel_options: of a kernel given by name.
        inducing: ``n``, spread evenly over the points in their order.
        ard: one lengthscale for each input; where there are at most 30 of them, if not given.
        standardise: divide the points by their standard deviation first, input by input.
        operator: 1 or 2, the order of the Langevin Stein operator.
        steps: evaluations of the restricted likelihood at most, in each of its searches.
        max_gigabytes: of memory.

    Returns:
        An integrator. Of its ``info``, ``lengthscale`` is ``(R, T, d)`` and ``penalty (R, T)``, relative. The standard
        error heeds the process and the jackknife, of independent points.

    Raises:
        UserError: an option is unknown or out of range; while integrating, too few points or too many.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017; South, Karvonen, Nemeth,
        Girolami and Oates, "Semi-exact control functionals from Sard's method", 2022, section 3.4 (Nystroem); Quinonero
        Candela and Rasmussen, "A unifying view of sparse approximate Gaussian process regression", 2005.
    """
    whole("inducing", inducing, 3)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_sizes(samples)
        each = samples.dim <= 30 if ard is None else ard
        chosen = settings(
            kernel, kernel_options, each, None, None, standardise, "gls", operator, True, steps, max_gigabytes
        )
        if samples.shared:
            return _of_points(samples, chosen, inducing)
        each_alone = (_of_points(samples.of_tasks([t]), chosen, inducing) for t in range(samples.tasks))
        return side_by_side([replace(one, info={k: of[:, 0] for k, of in one.info.items()}) for one in each_alone])

    properties = IntegralProperties(exact_on="constants", interpolates=True)
    return Integrator("sparse_control_functional", properties, integrate)


def _of_points(samples: Samples, chosen: Settings, inducing: int) -> Integrals:
    """All tasks of one set of points."""
    m = samples.sizes[0]
    check_memory(int((m * min(m, inducing)) ** 0.5), chosen.gigabytes, "give fewer points, or fewer inducing ones")
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
        fits[r] = (*fits[r], weights, inverse)
        v, kept, noise = inverse
        # of the process, whose covariance is Phi Phi' + noise: 1 / (1' M^-1 1)
        variance = noise * (1 / phi.shape[1] + (kept * (v.T @ phi.mean(1)).square()[:, None]).sum(0))
        error = (error.square() + variance * amplitude[r] * fits[r][1]).sqrt()
        found.append((beta, error, condition, penalty))
    values, errors, conditions, penalties = map(torch.stack, zip(*found, strict=True))

    def features_there(points: np.ndarray, scores: np.ndarray) -> list:
        """By repetition ``Phi`` and ``(n,)`` what its rows leave of the kernel's own values."""
        x, lx = data.points(points, scores)
        found = []
        for r in range(data.repetitions):
            one = slice(r, r + 1)
            phi = features(r, x[one], lx[one])
            own = diagonal(chosen, hyper.pick(one).kernel, x[one], lx[one]) / fits[r][1]
            found.append((phi, (own - phi.square().sum(0)).clamp(min=0), (fits[r][3][0].T @ phi).square()))
        return found

    there = of_last_points(features_there)

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        rows = [fits[r][2][:, task] @ one[0] for r, one in enumerate(there(points, scores))]
        level = values[:, task, None]
        return numpy(data.y_shift[:, task, None] + data.y_scale[:, task, None] * (level + torch.stack(rows)))

    def deviation(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        rows = []
        for r, (_, unknown, square) in enumerate(there(points, scores)):
            _, kept, penalty = fits[r][3]
            rest = penalty[task] * (1 + kept[:, task] @ square)
            rows.append((unknown + rest).sqrt() * (amplitude[r, task] * fits[r][1]).sqrt())
        return numpy(data.y_scale[:, task, None] * torch.stack(rows))

    lengthscale = (hyper.kernel["log_lengthscale"].exp() * data.x_scale)[:, None].expand(-1, data.tasks, -1)
    return Integrals(
        numpy(data.y_shift + data.y_scale * values),
        numpy(data.y_scale * errors),
        numpy(conditions),
        info={"lengthscale": numpy(lengthscale), "penalty": numpy(penalties)},
        fitted=fitted,
        deviation=deviation,
    )
