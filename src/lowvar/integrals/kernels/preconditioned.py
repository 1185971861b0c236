"""The squared-exponential kernel times a weight that decays in both arguments."""

import math

import torch

from lowvar.errors import positive
from lowvar.integrals.kernels.interface import Kernel, inner
from lowvar.integrals.kernels.squared_exponential import second_order, squared_exponential


def preconditioned(alpha: float | None = 0.1, ard: bool = True) -> Kernel:
    """``k(x, y) = w(x) w(y) exp(-sum_j (x_j - y_j)^2 / (2 l_j^2))`` with ``w(x) = 1 / (1 + alpha |x|^2)``.

    ``u = w v`` turns the Stein operators into those on ``v`` with other coefficients, ``div u + u . l = w (div v +
    v . (l + grad log w))`` and ``Lap u + grad u . l = w (Lap v + (l + 2 grad log w) . grad v + e v)`` with
    ``e = (Lap w) / w + l . grad log w``. Both Stein kernels are therefore those of the squared exponential.

    Args:
        alpha: in the inverse unit of the points squared; None makes ``log_alpha (1,)`` a parameter.
        ard: one lengthscale for each input.

    Raises:
        UserError: ``alpha`` is not positive.

    References:
        Oates, Girolami and Chopin (2017), "Control functionals for Monte Carlo integration"; Sun, Barp and Briol,
        Appendix D.1.
    """
    if alpha is not None:
        positive("alpha", alpha)
    base = squared_exponential(ard)

    def strength(params, x) -> torch.Tensor:
        """``alpha``, ``(..., 1, 1)``."""
        return x.new_full((1, 1), alpha) if alpha is not None else params["log_alpha"].exp().unsqueeze(-2)

    def weight(params, x):
        """``w (..., n, 1)`` and ``grad log w (..., n, d)``."""
        rate = strength(params, x)
        w = 1 / (1 + rate * inner(x, x))
        return w, -2 * rate * w * x

    def defaults(dim: int) -> dict[str, torch.Tensor]:
        learnt = {} if alpha is not None else {"log_alpha": torch.full((1,), math.log(0.1), dtype=torch.float64)}
        return base.defaults(dim) | learnt

    def stein(params, x, y, lx, ly):
        (wx, bx), (wy, by) = weight(params, x), weight(params, y)
        return wx * wy.mT * base.stein(params, x, y, lx + bx, ly + by)

    def stein2(params, x, y, lx, ly):
        (wx, bx), (wy, by) = weight(params, x), weight(params, y)
        ex, ey = (
            2 * inner(b, b) - 2 * points.shape[-1] * strength(params, points) * w + inner(score, b)  # (Lap w) / w + ..
            for b, w, points, score in ((bx, wx, x, lx), (by, wy, y, ly))
        )
        return wx * wy.mT * second_order(params, x, y, lx + 2 * bx, ly + 2 * by, ex, ey)

    return Kernel("preconditioned", defaults, stein, stein2)
