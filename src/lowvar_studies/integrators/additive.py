"""Additive control variates: polynomials whose coefficients all tasks share."""

from collections.abc import Sequence

import numpy as np

from lowvar.errors import UserError, check_known, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples
from lowvar.integrals.exact.settings import symmetric
from lowvar.integrals.monte_carlo import TOO_FEW
from lowvar.integrals.regression import regress
from lowvar.integrals.stacked import Stacked, stack
from lowvar.integrals.zero_variance import monomials, stein_features

ROUNDS = 100  # of a search for the scales
Relation = Sequence[Sequence[float]] | np.ndarray


def additive(order: int = 2, B: Relation | None = None, row_scale: str = "fixed") -> Integrator:
    """``f_t = beta_t + s_t sum_i theta_i (Lap phi_i + grad phi_i . l_t)``, ``phi_i`` monomials, eq. (12).

    The paper has ``sum_t' B_tt'`` for ``s_t``, with one ``theta`` for all tasks. Nothing else of ``B`` enters: tasks
    are proportional to one another in their control variates whatever ``B`` says of their relation, which is less than
    "a separable structure" promises. It is a strong assumption: unless it holds, ``zero_variance``, with coefficients
    of their own for each task, needs few more points and is better.

    Fitted by least squares, each task with the same weight. Standard errors are the jackknife's (see ``regress``); they
    take the scales as known.

    Args:
        order: of the monomials, 1 or more: ``C(d + order, order) - 1`` coefficients for all tasks.
        B: ``(T, T)``, symmetric; if not given, all tasks have the same scale.
        row_scale: ``fixed``, or ``learnt``: the scales are fitted as well, by alternating least
            squares for values with unit standard deviations, from several starts.

    Returns:
        An integrator whose ``info`` has the scales relative to the largest, ``row_scale (R, T)``. It warns of
        ``few_points`` where there are fewer than two for each unknown.

    Raises:
        UserError: an option out of range; when it integrates, a ``B`` that does not fit, or too few points.

    References:
        Sun, Barp and Briol, Appendix C.2.
    """
    whole("order", order, 1)
    check_known("row_scale", row_scale, ("fixed", "learnt"), where="additive")

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        exponents = monomials(samples.dim, order)
        start, data = row_sums(B, samples.tasks, "additive"), stack(samples)
        rows, unknowns = data.y.shape[1], len(exponents) + samples.tasks
        if rows <= unknowns:
            raise UserError(f"{rows} points for the {unknowns} unknowns of additive, order {order}: take a lower order")
        features = stein_features(exponents, data.x, data.scores)
        if row_scale == "learnt":
            unit = np.where(data.y_scale > 0, data.y_scale, 1.0)
            y = data.y[:, :, 0]
            scale = _learnt(features, data.member, y, start / unit)
            unknowns += samples.tasks - 1
        else:
            y, unit = in_one_unit(data)
            scale = np.broadcast_to(start, (len(features), samples.tasks))
        member = data.member
        own = (scale @ member.T)[:, :, None] * features
        fit = regress(own, member, y[:, :, None], samples.chain, samples.shared)
        value = data.y_shift + unit * fit.beta[:, :, 0]
        effective = np.minimum(fit.effective[:, :, 0], member.sum(axis=0))
        few = effective.sum(axis=1) < 2 * unknowns
        if samples.chain:
            few |= (effective < TOO_FEW).any(axis=1)
        relative = scale * unit / np.abs(scale * unit).max(axis=1, keepdims=True)

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            found = stein_features(exponents, *data.points(points, scores)) @ fit.theta
            return found[:, :, 0] * (scale * unit)[:, task, None] + value[:, task, None]

        return Integrals(
            value=value,
            standard_error=unit * fit.error[:, :, 0],
            condition=fit.condition,
            flags={"few_points": few, "ill_conditioned": fit.ill},
            info={"row_scale": relative, "effective": fit.effective[:, :, 0]},
            fitted=fitted,
            half_width=unit * fit.half[:, :, 0],
        )

    return Integrator("additive", IntegralProperties(transfers=True, fewest=order + 2), integrate)


def _learnt(features: np.ndarray, member: np.ndarray, y: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Scales ``(R, T)`` and coefficients in turn, each by least squares given the other, from moments of each task.

    The objective has local minima: the best end of ``T + 1`` searches is taken, one of which starts from ``start`` and
    each other from the fit of one task alone.
    """
    share = member / member.sum(0)
    centred = features - member @ (share.T @ features)
    square = np.stack([centred.mT @ (owner[:, None] * centred) for owner in share.T], axis=1)  # (R, T, p, p)
    cross = np.einsum("rmp,rm,mt->rtp", centred, y, share)
    level = np.trace(square, axis1=-2, axis2=-1).mean(1)[:, None, None, None] / square.shape[-1]
    least = 1e-12 * level * np.eye(square.shape[-1])
    alone = np.broadcast_to(np.eye(member.shape[1]), (len(start), *2 * member.shape[1:]))
    scale, loss = np.concatenate([start[:, None], alone], axis=1), np.zeros(())  # (R, searches, T)
    with np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            scale = scale / np.sqrt((scale**2).mean(2, keepdims=True))
            matrix = np.einsum("rst,rtpq->rspq", scale**2, square) + least
            theta = np.linalg.solve(matrix, (scale @ cross)[:, :, :, None])[:, :, :, 0]
            power = np.einsum("rsp,rtpq,rsq->rst", theta, square, theta, optimize=True)
            along = theta @ cross.mT
            scale = np.where(power > 0, along / power, scale)
            loss = (scale**2 * power - 2 * scale * along).sum(2)
    best = scale[np.arange(len(scale)), np.nan_to_num(loss, nan=np.inf).argmin(1)]
    return np.where(np.isfinite(best).all(1, keepdims=True), best, start)


def row_sums(B: Relation | None, tasks: int, where: str) -> np.ndarray:
    """``s_t = sum_t' B_tt'``, which is all of ``B`` that additive and neural control variates see; one without ``B``.

    Args:
        B: ``(T, T)``, symmetric.
        tasks: ``T``.
        where: the integrator, for messages.

    Returns:
        ``(T,)``.

    Raises:
        UserError: ``B`` has another shape, is not symmetric or not finite, or all its rows sum to zero.
    """
    if B is None:
        return np.ones(tasks)
    matrix = symmetric(f"B of {where}", B, tasks)
    sums = matrix.sum(axis=1)
    if not sums.any():
        raise UserError(f"B of {where}: its rows sum to zero, and {where} sees nothing else of it")
    return sums


def in_one_unit(data: Stacked) -> tuple[np.ndarray, np.ndarray]:
    """Values of all tasks in one unit, as functions that tasks share need them.

    Returns:
        Centred values ``(R, M)``, and the unit ``(R, 1)``: the root mean square of the tasks' standard deviations,
        or 1 where all are constant.
    """
    unit = np.sqrt((data.y_scale**2).mean(1, keepdims=True))
    unit = np.where(unit > 0, unit, 1.0)
    return data.y[:, :, 0] * ((data.y_scale / unit) @ data.member.T), unit
