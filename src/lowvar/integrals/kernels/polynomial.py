"""The polynomial kernel, whose Stein kernels span polynomials and their products with scores."""

import math

from lowvar.errors import positive, whole
from lowvar.integrals.kernels.interface import Array, Kernel, inner


def polynomial(degree: int = 2, offset: float = 1.0) -> Kernel:
    """``k(x, y) = (x . y + c)^degree``. It has no parameters to learn.

    Args:
        degree: 1 or more.
        offset: ``c``, in the unit of the points squared, not negative.

    Raises:
        UserError: a degree below one, or a negative offset.

    References:
        Sun, Barp and Briol, Appendices C.3 and D.1.
    """
    whole("degree", degree, 1)
    positive("offset", offset, or_zero=True)

    def power(argument: Array, order: int) -> Array:
        """The derivative of ``t^degree``."""
        if order > degree:
            return 0 * argument
        return math.perm(degree, order) * argument ** (degree - order)

    def stein(params, x, y, lx, ly):
        product = x @ y.mT
        argument = product + offset
        linear = x.shape[-1] + inner(lx, x) + inner(ly, y).mT
        return power(argument, 2) * product + power(argument, 1) * linear + power(argument, 0) * (lx @ ly.mT)

    def stein2(params, x, y, lx, ly):
        product, across_x, across_y = x @ y.mT, lx @ y.mT, x @ ly.mT
        argument = product + offset
        norm_x, norm_y = inner(x, x), inner(y, y).mT
        first, second, third, fourth = (power(argument, order) for order in (1, 2, 3, 4))
        linear = 2 * x.shape[-1] + 2 * inner(lx, x) + 2 * inner(ly, y).mT + across_x * across_y
        cubic = 4 * product + across_y * norm_y + across_x * norm_x
        return first * (lx @ ly.mT) + second * linear + third * cubic + fourth * (norm_x * norm_y)

    return Kernel("polynomial", lambda dim: {}, stein, stein2)
