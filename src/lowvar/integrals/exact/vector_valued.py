"""Vector-valued control variates, solved exactly: one fit of all tasks, which share information."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lowvar.errors import UserError
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.exact.checks import check_memory, check_sizes, relation
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.kernel_fit import fit, related, space_of
from lowvar.integrals.exact.same_points import same_points
from lowvar.integrals.exact.verdicts import by_groups, report
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import stack


def vector_valued(
    kernel: str | Kernel = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    B: Sequence[Sequence[float]] | None = None,
    group: int | Sequence[Sequence[int]] | None = None,
    ard: bool = True,
    lengthscale: float | Sequence[float] | None = None,
    nugget: float | None = None,
    penalty: float | None = None,
    standardise: bool = True,
    beta: str = "gls",
    operator: int = 1,
    trend: bool | None = None,
    steps: int = 200,
    max_gigabytes: float = 4.0,
) -> Integrator:
    """``f_t = beta_t + g_t`` with ``g`` in the space of ``K0 = B k0`` (special cases I and II).

    The minimiser of eq. (8) lies in the span of ``K0(., x_tj) e_t``: as many unknowns as there are values, ``sum_t
    m_t``, a Gram matrix ``B[t_i, t_j] k0(x_i, x_j)``, and of each point its own target's score alone. ``beta`` is that
    of generalised least squares, as in ``control_functional``.

    With ``penalty`` this is eq. (8) as the paper states it: its ridge is ``lambda m_t`` for task ``t``, in the values'
    own unit. Without, values are standardised task by task and have one ridge, the nugget, which REML learns together
    with the lengthscales and ``B``. That is ours: estimates then do not depend on the integrands' units, and a task
    does not count as noisier for having more points. Both agree as the ridge goes to zero.

    Tasks that share their points take a faster path, see ``same_points``; as the nugget goes to nothing the estimates
    are then those of ``control_functional`` with the same kernel, for any ``B``: what transfers is the values of one
    integrand where another one was not evaluated.

    Args:
        B: ``(T, T)``, symmetric and positive semi-definite: how the integrands vary together, up to a factor; None is
            learnt.
        penalty: ``lambda`` of eq. (8), in place of the nugget; it needs ``B``, whose size then counts, and takes
            ``O((sum_t m_t)^3)`` at shared points too. The lengthscales, if not given, are learnt by REML.
        group: treat so many neighbouring tasks together, or these lists of tasks; None is all at once.
        standardise: divide the points by their standard deviation over all tasks first, input by input; ``k0`` is the
            Stein kernel of the points so divided.
        beta: ``gls``, or ``mean`` for one sweep of block-coordinate descent from the sample means; the latter not at
            shared points.
        ard: as of ``control_functional``, and so are the options that are not listed here.

    Returns:
        An integrator. Of its ``info``, ``lengthscale`` is ``(R, d)`` and ``B`` ``(R, T, T)``, of the values' own unit.

    Raises:
        UserError: an option is unknown or out of range, or there is a penalty without ``B``; while integrating, too few
            points, or too many for memory.

    References:
        Sun, Barp and Briol, Theorems 3.1 and 4.1, section 4, Appendix D.2.
    """
    chosen = FitSettings(
        kernel=kernel, kernel_options=kernel_options, ard=ard, lengthscale=lengthscale, nugget=nugget,
        penalty=penalty, standardise=standardise, beta=beta, operator=operator, trend=trend, steps=steps,
        max_gigabytes=max_gigabytes,
    )  # fmt: skip
    given = relation(B)
    if penalty is not None and given is None:
        raise UserError("penalty: give B as well; to estimate it for a given penalty, take 'alternating' or 'convex'")

    def together(samples: Samples, tasks: Sequence[int]) -> Integrals:
        own = None if given is None else given[np.ix_(tasks, tasks)]
        if samples.shared and beta == "gls" and penalty is None:
            check_memory(samples.sizes[0], max_gigabytes, "give fewer points")
            return same_points(samples, chosen, own)
        total = sum(samples.sizes)
        check_memory(total, max_gigabytes, "set group to treat fewer tasks together, or give all tasks the same points")
        return own_points(samples, chosen, own)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_sizes(samples)
        if given is not None and len(given) != samples.tasks:
            raise UserError(f"B has {len(given)} rows: there are {samples.tasks} tasks")
        return by_groups(samples, group, together)

    properties = IntegralProperties(transfers=True, exact_on=chosen.exact_on, interpolates=True)
    return Integrator("vector_valued", properties, integrate)


def own_points(samples: Samples, chosen: FitSettings, B: np.ndarray | None) -> Integrals:
    """All tasks at once, each with points of its own, in ``O((sum_t m_t)^3)``."""
    data = stack(samples, chosen.standardise, penalty=chosen.penalty)
    if B is None:
        factor = related(data.tasks).to(data.y).expand(data.repetitions, -1, -1)
    else:
        factor = data.standardised(B)
    space = space_of(data, chosen, factor, B is None and data.tasks > 1)
    hyper, level, ended, found = fit(data, chosen, space)

    def coefficients(task: int) -> torch.Tensor:
        row = (data.member @ hyper.factor @ hyper.factor[:, task, :, None])[:, :, 0]  # B[task, t_j], (R, M)
        return row * found.weights

    size = (hyper.factor.square().sum(-1) @ data.member.mT).mean(-1)  # mean diagonal of B over the values
    amplitude = (found.amplitude * level / size).sqrt()[:, None, None]
    return report(data, hyper, amplitude, space, ended, found, chosen.covariance, coefficients)
