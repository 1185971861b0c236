"""Control functionals: a kernel control variate for each task on its own, in closed form."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, side_by_side
from lowvar.integrals.exact.kernel_fit import fit
from lowvar.integrals.exact.settings import FitSettings, check_memory, check_sizes
from lowvar.integrals.kernels import Kernel


def control_functional(
    kernel: str | Kernel = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    ard: bool = True,
    lengthscale: float | Sequence[float] | None = None,
    nugget: float | None = None,
    standardise: bool = True,
    beta: str = "gls",
    operator: int = 1,
    trend: bool | None = None,
    steps: int = 200,
    max_gigabytes: float = 4.0,
) -> Integrator:
    """``f = beta + g``, ``g`` in the span of the Stein kernel at the points: ``beta`` is the estimate.

    With ``M = K + s I``, ``K = k0(x_i, x_j)``, ``beta = (1' M^-1 1)^-1 1' M^-1 y`` minimises eq. (8), with
    ``lambda = s / m``, over ``g`` and ``beta`` together. Lengthscales and the nugget are learnt by REML. It is exact on
    a constant plus ``sum_i a_i k0(., x_i)`` with ``sum_i a_i = 0``, up to the nugget; constants come at no
    cost and ``k0`` at one, so a single ``k0(., x_i)`` is split between both.

    Args:
        kernel: a name of ``kernels.KERNELS``, or a kernel.
        kernel_options: of a kernel given by name.
        ard: one lengthscale for each input.
        lengthscale: in the unit of the points, one or one for each input; None is learnt.
        nugget: ``s`` over the mean diagonal of ``K``; None is learnt, within 1e-10 and 1. Smooth integrands end at
            the lower bound, discontinuous ones do not.
        standardise: divide the points by their standard deviation first, input by input.
        beta: ``gls``, or ``mean`` for one sweep of block-coordinate descent from the sample mean.
        operator: 1 or 2, the order of the Langevin Stein operator.
        trend: add additive quadratic polynomials to the kernel, with a weight that is learnt; None does where the
            lengthscale is learnt. Without it a fit goes back to its constant beyond the points.
        steps: evaluations of the restricted likelihood at most, in each of its searches.
        max_gigabytes: of memory.

    Returns:
        An integrator. Of its ``info``, ``lengthscale`` is ``(R, T, d)``, ``nugget`` and the errors ``(R, T)``. The
        standard error heeds REML and left-out values (``likely_error`` and ``jackknife_error``); points of a chain
        are taken as independent.

    Raises:
        UserError: an option is unknown or out of range; while integrating, too few points or too many.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017; Sun, Barp and Briol,
        eq. (3) and section 4.
    """
    chosen = FitSettings(
        kernel=kernel, kernel_options=kernel_options, ard=ard, lengthscale=lengthscale, nugget=nugget,
        standardise=standardise, beta=beta, operator=operator, trend=trend, steps=steps, max_gigabytes=max_gigabytes,
    )  # fmt: skip

    def of_size(samples: Samples) -> list[Integrals]:
        """Tasks with equally many points, as repetitions of one."""
        repetitions, tasks = samples.repetitions, samples.tasks
        check_memory(max(samples.sizes), max_gigabytes, "give fewer points")
        points, scores, values = (np.concatenate(of) for of in (samples.points, samples.scores, samples.values))
        whole = fit(Samples((points,), (scores,), (values,)), chosen, None)
        each = (slice(t * repetitions, (t + 1) * repetitions) for t in range(tasks))
        return [whole.pick(own).of_own_points() for own in each]

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_sizes(samples)
        results: dict[int, Integrals] = {}
        for size in sorted(set(samples.sizes)):
            tasks = [t for t in range(samples.tasks) if samples.sizes[t] == size]
            results.update(zip(tasks, of_size(samples.of_tasks(tasks)), strict=True))
        return side_by_side([results[t] for t in range(samples.tasks)])

    properties = IntegralProperties(exact_on=chosen.exact_on, interpolates=True)
    return Integrator("control_functional", properties, integrate)
