"""Matrix-valued Stein kernels of separable kernels."""

import torch

from lowvar.integrals.kernels.interface import Kernel, Params


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
