"""Control functionals for many points: a kernel's functions around some of them, by regularised least squares."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lowvar.errors import whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.exact.checks import check_sizes
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.inducing import around_some
from lowvar.integrals.exact.verdicts import side_by_side
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.samples import Samples


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
        inducing: ``n``, spread evenly over the points in their order.
        ard: one lengthscale for each input; where there are at most 30 of them, if not given.
        kernel: as of ``control_functional``, and so are the options that are not listed here.

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
        chosen = FitSettings(
            kernel=kernel, kernel_options=kernel_options, ard=each, standardise=standardise, operator=operator,
            trend=True, steps=steps, max_gigabytes=max_gigabytes,
        )  # fmt: skip
        if samples.shared:
            return around_some(samples, chosen, inducing)
        each_alone = (around_some(samples.of_tasks([t]), chosen, inducing) for t in range(samples.tasks))
        return side_by_side([replace(one, info={k: of[:, 0] for k, of in one.info.items()}) for one in each_alone])

    properties = IntegralProperties(exact_on="constants", interpolates=True)
    return Integrator("sparse_control_functional", properties, integrate)
