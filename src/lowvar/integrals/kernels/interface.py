"""A kernel: a function of pairs of points, and the Stein kernels made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

Params = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Kernel:
    """A kernel ``k(x, y)`` on R^d and its Stein kernels. All functions are differentiable in ``params``.

    ``params`` are logarithms of positive parameters, tensors ``(p,)`` by name, or with leading axes ``(..., p)`` that
    broadcast against those of the points. Points ``x (..., n, d)`` and ``y (..., m, d)``, scores ``lx``, ``ly`` alike.

    Attributes:
        name: as in the registry.
        defaults: ``d -> params``, without leading axes, to start a search from.
        stein: ``(params, x, y, lx, ly) -> (..., n, m)``, of the first-order Langevin operator ``div u + u . l``.
        stein2: as ``stein``, of the second-order operator ``Lap u + grad u . l``.

    References:
        Sun, Barp and Briol, eq. (3), Appendix D.1, Theorem C.1.
    """

    name: str
    defaults: Callable[[int], dict[str, torch.Tensor]]
    stein: Callable[[Params, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    stein2: Callable[[Params, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def bilinear(left: Sequence[torch.Tensor | float], right: Sequence[torch.Tensor | float]) -> torch.Tensor:
    """``sum_i left_i right_i'`` as one matrix product.

    Args:
        left: blocks of columns ``(..., n, c_i)``; a number is one column of it.
        right: blocks ``(..., m, c_i)``, alike.

    Returns:
        ``(..., n, m)``.
    """
    return _columns(left) @ _columns(right).mT


def inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``(..., n, 1)``: the inner product of each row of ``x (..., n, d)`` with the same row of ``y``."""
    return (x * y).sum(-1, keepdim=True)


def _columns(blocks: Sequence[torch.Tensor | float]) -> torch.Tensor:
    """The blocks side by side, ``(..., n, sum c_i)``."""
    tensors = [block for block in blocks if isinstance(block, torch.Tensor)]
    shape = torch.broadcast_shapes(*(block.shape[:-1] for block in tensors))
    whole = [block if isinstance(block, torch.Tensor) else tensors[0].new_full((1,), block) for block in blocks]
    return torch.cat([block.expand(*shape, block.shape[-1]) for block in whole], -1)


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
