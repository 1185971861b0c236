"""The squared-exponential kernel times a weight that decays in both arguments."""

import math

import numpy as np
from array_api_compat import array_namespace

from lowvar.errors import positive
from lowvar.integrals.kernels.interface import Array, Kernel, inner
from lowvar.integrals.kernels.squared_exponential import second_order, squared_exponential, vjp


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

    def strength(params, x) -> Array | float:
        """``alpha``, ``(..., 1, 1)``."""
        if alpha is not None:
            return alpha
        return array_namespace(x).exp(params["log_alpha"])[..., None, :]

    def weight(params, x):
        """``w (..., n, 1)`` and ``grad log w (..., n, d)``."""
        rate = strength(params, x)
        w = 1 / (1 + rate * inner(x, x))
        return w, -2 * rate * w * x

    def defaults(dim: int) -> dict[str, Array]:
        learnt = {} if alpha is not None else {"log_alpha": np.full(1, math.log(0.1))}
        return base.defaults(dim) | learnt

    def stein(params, x, y, lx, ly):
        (wx, bx), (wy, by) = weight(params, x), weight(params, y)
        return wx * wy.mT * base.stein(params, x, y, lx + bx, ly + by)

    def second(params, x, lx):
        """``w``, the drift, and ``e``."""
        w, b = weight(params, x)
        e = 2 * inner(b, b) - 2 * x.shape[-1] * strength(params, x) * w + inner(lx, b)  # (Lap w) / w + l . grad log w
        return w, lx + 2 * b, e

    def stein2(params, x, y, lx, ly):
        (wx, ax, ex), (wy, ay, ey) = second(params, x, lx), second(params, y, ly)
        return wx * wy.mT * second_order(params, x, y, ax, ay, ex, ey)

    def of_lengthscales(params, x, lx, order):
        if order == 1:
            w, b = weight(params, x)
            drift, e = lx + b, 0.0
        else:
            w, drift, e = second(params, x, lx)
        pairs = w * w.mT
        matrix, pull = vjp(params, x, drift, order, e)
        return pairs * matrix, lambda of_pairs: pull(pairs * of_pairs)

    return Kernel("preconditioned", defaults, stein, stein2, of_lengthscales)
