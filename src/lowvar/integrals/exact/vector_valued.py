"""Vector-valued control variates, solved exactly: one fit of all tasks, which share information."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, joined_tasks
from lowvar.integrals.exact.gls import Fit, Spectrum, matrices, shared_objective, solve_shared, spectrum_of
from lowvar.integrals.exact.kernel_fit import KernelFit, fit, learn, search, space_of
from lowvar.integrals.exact.reml import Hyper, Space, pieces
from lowvar.integrals.exact.settings import FitSettings, check_memory, check_sizes, relation
from lowvar.integrals.kernels import Kernel
from lowvar.integrals.stacked import cholesky, diagonal, replaced, stack

NOISE = 1e-6  # a smaller nugget is none, and then B makes no difference to the estimates
COLUMNS = 20  # with more tasks lengthscales are learnt from some of them
MANY = 15  # with more tasks B keeps its closed form


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
        return fit(samples, chosen, own).of_own_points()

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_sizes(samples)
        if given is not None and len(given) != samples.tasks:
            raise UserError(f"B has {len(given)} rows: there are {samples.tasks} tasks")
        return by_groups(samples, group, together)

    properties = IntegralProperties(transfers=True, exact_on=chosen.exact_on, interpolates=True)
    return Integrator("vector_valued", properties, integrate)


def same_points(samples: Samples, chosen: FitSettings, B: np.ndarray | None) -> Integrals:
    """All tasks at once, in ``O(m^3 + T^3 + m^2 T)``.

    The covariance of the values ``(m, T)`` is ``B (x) k0 + noise``; with ``k0 = U S U'`` and ``B = V D V'`` it is
    diagonal for ``U'YV``. Lengthscales maximise the sum of the likelihoods of the tasks alone, with amplitudes of their
    own: that of the product would be ruled by the smallest eigenvalues of ``B``, small differences of neighbouring
    tasks. Then ``B`` is ``Y'PY / (m - 1)``, and where there is noise, ``B`` and its variance are learnt by REML in the
    eigenvectors.

    Without noise ``(B (x) k0)^-1`` and the constants' design are products, and ``B`` cancels from ``beta``: the
    estimates are those of a control functional with the same kernel, for any ``B``. Values of other tasks help at the
    same points only where there is noise.

    Args:
        samples: shared ones.
        chosen: options.
        B: ``(T, T)``, of the values; None is learnt.
    """
    data = stack(samples, chosen.standardise, shared=True)
    one = np.ones_like(data.y[:, :1, :1])
    space = space_of(data, chosen, one, False)
    hyper, ended = learn(chosen.covariance, data.columns(COLUMNS), space, chosen.steps)
    results = []
    for which, here in pieces(data):
        matrix, level = chosen.covariance.gram(here, hyper.pick(which))
        spectrum = spectrum_of(matrix, here.y)
        if B is None:
            factor = _closed_form(spectrum, hyper.nugget[which] * level)
        else:
            factor = here.standardised(B)
        learns_factor = B is None and 1 < data.tasks <= MANY
        fixed = Hyper({}, hyper.nugget[which], factor)
        rest = Space(fixed, (), space.nugget, learns_factor, space.spread[which])
        learnt, steps = _refined(spectrum, level, rest, chosen.steps)
        results.append((learnt, level, steps, solve_shared(spectrum, *matrices(learnt, level))))
    hypers, levels, steps, fits = zip(*results, strict=True)
    levels, constants = np.concatenate(levels), Fit.joined(fits)
    hyper = replace(Hyper.joined(hypers), kernel=hyper.kernel)
    ended = replace(ended, steps=ended.steps + np.concatenate(steps))

    def coefficients(task: int) -> np.ndarray:
        relation = (hyper.factor @ hyper.factor[:, task, :, None])[:, None, :, 0]  # B[task], (R, 1, T)
        return (constants.weights * relation).sum(2)

    amplitude = np.sqrt(constants.amplitude * levels)[:, None, None]
    found = KernelFit(data, chosen.covariance, space, hyper, levels, ended, constants)
    return found.report(amplitude, coefficients)


def _closed_form(data: Spectrum, shift: np.ndarray) -> np.ndarray:
    """A root of the best ``B``, if the noise is alike, with a mean diagonal of one."""
    variance, h = (data.S + shift[:, None])[:, :, None], data.h[:, :, None]
    left = data.y - h * ((h * data.y / variance).sum(1) / (h * h / variance).sum(1))[:, None]
    best = left.mT @ (left / variance)
    level, eye = diagonal(best).mean(-1)[:, None, None], np.eye(best.shape[1])
    return cholesky(np.where(level > 0, best / np.maximum(level, 1e-280), eye) + 1e-12 * eye)[0]


def _refined(data: Spectrum, level: np.ndarray, space: Space, steps: int) -> tuple[Hyper, np.ndarray]:
    """``B`` and the nugget by REML in the eigenvectors, and the evaluations that it took."""
    hyper, taken = space.fixed, np.zeros(len(level), int)
    noisy = np.flatnonzero(hyper.nugget > NOISE)
    if len(noisy) and (space.nugget or space.factor):

        def function_of(here, which):
            return shared_objective(data.pick(noisy[which]), here, level[noisy[which]])

        here, ended = search(function_of, space.pick(noisy), data.y.shape[1], steps)
        hyper, taken = hyper.put(noisy, here.fixed), replaced(taken, noisy, ended.steps)
    return hyper, taken


def by_groups(
    samples: Samples,
    group: int | Sequence[Sequence[int]] | None,
    integrate: Callable[[Samples, Sequence[int]], Integrals],
) -> Integrals:
    """Each group of tasks by itself; what was learnt then has an axis of tasks, see ``joined_tasks``.

    Args:
        samples: of all tasks.
        group: how many neighbours, or lists of tasks; None is one group.
        integrate: ``(samples of a group, its tasks) -> Integrals``.

    Raises:
        UserError: a group is empty, or the groups leave out a task or have one twice.
    """
    tasks = list(range(samples.tasks))
    if group is None:
        return integrate(samples, tasks)
    if isinstance(group, int):
        if group < 1:
            raise UserError(f"group {group}: it must be a positive number of tasks")
        groups = [tasks[first : first + group] for first in range(0, len(tasks), group)]
    else:
        try:
            groups = [[int(t) for t in one] for one in group]
        except (TypeError, ValueError) as error:
            raise UserError(f"group {group!r}: it must be a number of tasks, or lists of them") from error
    if sorted(t for one in groups for t in one) != tasks or not all(groups):
        raise UserError(f"group {group}: each of the tasks 0 to {len(tasks) - 1} must be in one group")
    return joined_tasks([integrate(samples.of_tasks(one), one) for one in groups], groups)
