"""Matrix-valued Stein kernels: general ones, the separable special cases, and the part that exact solvers need."""

from collections.abc import Callable

import torch
from torch.func import jacfwd, jacrev, vmap

from lowvar.errors import UserError
from lowvar.estimators.integral.kernels.interface import Kernel, Params


def matrix_stein(
    K: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    y: torch.Tensor,
    lx: torch.Tensor,
    ly: torch.Tensor,
    order: int = 1,
) -> torch.Tensor:
    """The Stein kernel of any matrix-valued kernel, by automatic differentiation.

    Args:
        K: ``(x (d,), y (d,)) -> (T, T)``, with ``order`` derivatives in each argument.
        x: points, ``(n, d)``.
        y: points, ``(m, d)``.
        lx: scores of all targets at ``x``, ``(n, T, d)``.
        ly: scores of all targets at ``y``, ``(m, T, d)``.
        order: 1 for the operator ``div u + u . l``, 2 for ``Lap u + grad u . l``.

    Returns:
        ``(n, m, T, T)``. It is no symmetric matrix for a pair of points; its transpose belongs to the pair turned.

    Raises:
        UserError: another order.

    References:
        Sun, Barp and Briol, Theorems 3.1 and C.1.
    """
    pair = {1: _first, 2: _second}.get(order)
    if pair is None:
        raise UserError(f"order {order} of a Langevin Stein operator: it must be 1 or 2")
    across = vmap(lambda a, b, la, lb: pair(K, a, b, la, lb), (None, 0, None, 0))
    return vmap(across, (0, None, 0, None))(x, y, lx, ly)


def separable_stein(
    kernel: Kernel,
    params: Params,
    B: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    lx: torch.Tensor,
    ly: torch.Tensor,
    order: int = 1,
) -> torch.Tensor:
    """The Stein kernel of ``K = B k`` (special case I): ``B_tt'`` times the scalar one of scores ``l_t``, ``l_t'``.

    ``B_tt'`` multiplies the whole sum; the paper's display of special case I has no bracket that says so. Where all
    targets are equal (special case II) this is ``B k0``, and ``kernel.stein`` alone is ``T^2`` times cheaper.

    Args:
        kernel: ``k``.
        params: of the kernel.
        B: ``(..., T, T)``, symmetric and positive semi-definite.
        x: points, ``(..., n, d)``.
        y: points, ``(..., m, d)``.
        lx: scores of all targets at ``x``, ``(..., n, T, d)``.
        ly: scores of all targets at ``y``, ``(..., m, T, d)``.
        order: 1 or 2, of the Stein operator.

    Returns:
        ``(..., n, m, T, T)``.

    References:
        Sun, Barp and Briol, section 3 and Appendix C.1.
    """
    (n, tasks, dim), m = lx.shape[-3:], ly.shape[-3]

    def rows(points, scores):
        """Each point once for each target."""
        repeated = points[..., None, :].expand(*points.shape[:-1], tasks, dim)
        return repeated.flatten(-3, -2), scores.flatten(-3, -2)

    (x, lx), (y, ly) = rows(x, lx), rows(y, ly)
    scalar = (kernel.stein if order == 1 else kernel.stein2)(params, x, y, lx, ly)
    return B[..., None, None, :, :] * scalar.unflatten(-1, (m, tasks)).unflatten(-3, (n, tasks)).transpose(-3, -2)


def own_stein(
    kernel: Kernel,
    params: Params,
    B: torch.Tensor,
    x: torch.Tensor,
    tx: torch.Tensor,
    lx: torch.Tensor,
    y: torch.Tensor,
    ty: torch.Tensor,
    ly: torch.Tensor,
    order: int = 1,
) -> torch.Tensor:
    """Entries ``(t_i, t_j)`` of ``K0(x_i, x_j)`` for ``K = B k``: of each point, its own task alone.

    The minimiser of Theorem 4.1 lies in the span of ``K0(., x_tj) e_t``, whose Gram matrix this is: ``sum m_t``
    unknowns in place of ``T sum m_t``, and no scores of other targets.

    Args:
        kernel: ``k``.
        params: of the kernel.
        B: ``(..., T, T)``.
        x: points, ``(..., n, d)``.
        tx: the task of each, ``(n,)`` of int.
        lx: scores of each point's own target, ``(..., n, d)``.
        y: points, ``(..., m, d)``.
        ty: the task of each, ``(m,)`` of int.
        ly: scores of each point's own target, ``(..., m, d)``.
        order: 1 or 2, of the Stein operator.

    Returns:
        ``(..., n, m)``.
    """
    scalar = (kernel.stein if order == 1 else kernel.stein2)(params, x, y, lx, ly)
    return B[..., tx, :][..., ty] * scalar


def _first(K, x, y, lx, ly):
    """Theorem 3.1 at one pair."""
    in_x, in_y = jacrev(K, 0)(x, y), jacrev(K, 1)(x, y)
    mixed = torch.einsum("tsrr->ts", jacfwd(jacrev(K, 0), 1)(x, y))
    return mixed + torch.einsum("sr,tsr->ts", ly, in_x) + torch.einsum("tr,tsr->ts", lx, in_y) + lx @ ly.mT * K(x, y)


def _second(K, x, y, lx, ly):
    """Theorem C.1 at one pair: the operator in ``y`` by column, then in ``x`` by row."""

    def operator(function, scores, index):
        def applied(z):
            slope = torch.einsum(f"tsr,{index}r->ts", jacrev(function)(z), scores)
            return slope + torch.einsum("tsrr->ts", jacfwd(jacrev(function))(z))

        return applied

    return operator(lambda a: operator(lambda b: K(a, b), ly, "s")(y), lx, "t")(x)
