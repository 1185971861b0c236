"""The squared-exponential kernel, with one lengthscale or one for each input."""

import numpy as np
from array_api_compat import array_namespace

from lowvar.integrals.kernels.interface import Array, Kernel, Params, bilinear, inner


def squared_exponential(ard: bool = True) -> Kernel:
    """``k(x, y) = exp(-sum_j (x_j - y_j)^2 / (2 l_j^2))``; with ``ard`` it is a product over the inputs.

    The parameter is ``log_lengthscale``, ``(d,)`` or ``(1,)``: ``l`` is in the unit of the points. Stein kernels
    are a few matrix products, and nothing of size ``n m d`` is formed.

    Args:
        ard: one lengthscale for each input.

    References:
        Sun, Barp and Briol, Appendix D.1, whose parameter is ``l^2``.
    """

    def defaults(dim: int) -> dict[str, Array]:
        return {"log_lengthscale": np.zeros(dim if ard else 1)}

    return Kernel("squared_exponential", defaults, first_order, second_order, vjp)


def first_order(params: Params, x: Array, y: Array, lx: Array, ly: Array) -> Array:
    """``Kernel.stein`` of the squared exponential.

    With ``r = x - y``, ``D = diag(1 / l^2)`` and ``p = l(x) - D x`` (and ``l(y) - D y``) it is ``k (tr D +
    (p(x) + D y) . (p(y) + D x))``, eq. (3). Each factor is one matrix product.
    """
    k, factor = _first_order(params, x, y, lx, ly)
    return k * factor


def _first_order(params, x, y, lx, ly):
    """The factors."""
    scaled_x, scaled_y, rate = _scaled(params, x, y)

    def features(scaled, scores):
        slope = scaled * rate  # D x
        p = scores - slope
        return slope, p, inner(p, slope)

    dx, px, pdx = features(scaled_x, lx)
    dy, py, pdy = (dx, px, pdx) if scaled_x is scaled_y and lx is ly else features(scaled_y, ly)
    total = _trace(rate * rate, x.shape[-1])
    return _exponential(scaled_x, scaled_y), bilinear((px, dx, pdx + total, 1.0), (py, dy, 1.0, pdy))


def second_order(
    params: Params,
    x: Array,
    y: Array,
    lx: Array,
    ly: Array,
    ex: Array | float = 0.0,
    ey: Array | float = 0.0,
) -> Array:
    """``Kernel.stein2`` of the squared exponential; more generally for ``Lap u + l . grad u + e u``.

    With ``h = D r`` and ``s = |h|^2 - tr D`` it is ``k ((s - l(x).h + e(x)) (s + l(y).h + e(y)) + 2 tr D^2 - 4 h'D h
    + 2 (l(x) - l(y))'D h + l(x)'D l(y))``. The first factors are the operator's on ``k`` in ``x`` and in ``y``.

    Args:
        params: as of ``Kernel``.
        x: points, ``(..., n, d)``.
        y: points, ``(..., m, d)``.
        lx: ``l`` at ``x``, ``(..., n, d)``.
        ly: ``l`` at ``y``, ``(..., m, d)``.
        ex: ``e`` at ``x``, ``(..., n, 1)``.
        ey: ``e`` at ``y``, ``(..., m, 1)``.

    Returns:
        ``(..., n, m)``.
    """
    k, in_x, in_y, rest = _second_order(params, x, y, lx, ly, ex, ey)
    return k * (in_x * in_y + rest)


def _second_order(params, x, y, lx, ly, ex, ey):
    """Its factors and its last summand."""
    scaled_x, scaled_y, rate = _scaled(params, x, y)
    precision = rate * rate
    dx, dy = scaled_x * rate, scaled_y * rate  # D x, D y
    hx, hy = dx * rate, dy * rate  # D^(3/2) x
    jx, jy = lx * rate, ly * rate  # D^(1/2) l
    total, square = _trace(precision, x.shape[-1]), _trace(precision * precision, x.shape[-1])
    norm_x, norm_y = inner(dx, dx), inner(dy, dy)
    in_x = bilinear(
        (-2 * dx + lx, norm_x - inner(lx, dx) - total + ex, 1.0),
        (dy, 1.0, norm_y),
    )
    in_y = bilinear(
        (dx, norm_x - total, 1.0),
        (-2 * dy + ly, 1.0, norm_y - inner(ly, dy) + ey),
    )
    # l(x)'D l(y) - 4 (h_x - h_y)^2 + 2 (l(x) - l(y))'D^2 (x - y)
    rest = bilinear(
        (jx, hx, -2 * jx, hx, -4 * inner(hx, hx) + 2 * inner(jx, hx) + 2 * square, 1.0),
        (jy, 8 * hy, hy, -2 * jy, 1.0, -4 * inner(hy, hy) + 2 * inner(jy, hy)),
    )
    return _exponential(scaled_x, scaled_y), in_x, in_y, rest


def vjp(params: Params, x: Array, lx: Array, order: int = 1, ex: Array | float = 0.0):
    """``Kernel.vjp`` of the squared exponential, in its lengthscales; of second order as ``second_order``.

    Sums over pairs of ``w (x_j - y_j)^2`` and ``w l_j(x) (x_j - y_j)``, which are all that the derivatives in ``D_jj``
    have, are matrix products of the size of ``x``.
    """
    in_y = 0.0
    if order == 1:
        k, factor = _first_order(params, x, x, lx, lx)
    else:
        k, in_x, in_y, rest = _second_order(params, x, x, lx, lx, ex, ex)
        factor = in_x * in_y + rest
    centred = x - x.mean(-2)[..., None, :]
    precision = array_namespace(x).exp(-2 * params["log_lengthscale"])

    def along(left, weight):
        """``sum w left(x) (x - y)``, input by input: half of ``sum w (x - y)^2`` if ``left`` is ``x``."""
        return (left * (centred * weight.sum(-1)[..., None] - weight @ centred)).sum(-2)

    def pull(weight: Array) -> dict[str, Array]:
        weight = weight * k
        square, mixed, total = along(centred, weight), along(lx, weight), weight.sum((-2, -1))[..., None]
        slope = -along(centred, weight * factor)  # of k
        if order == 1:
            slope = slope + 2 * mixed - 4 * precision * square + total
        else:
            one = weight * in_y  # the derivative of the other factor is that of this one, with x and y exchanged
            own = 2 * precision * along(centred, one + one.mT) - along(lx, one) - one.sum((-2, -1))[..., None]
            slope = slope + 2 * own + (lx * (weight @ lx)).sum(-2)
            slope = slope + 4 * precision * (total - 6 * precision * square + 2 * mixed)
        slope = -2 * precision * slope
        return {"log_lengthscale": slope if precision.shape[-1] == x.shape[-1] else slope.sum(-1)[..., None]}

    return k * factor, pull


def _scaled(params: Params, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Points from a common centre in units of the lengthscales, and ``1 / l (..., 1, d or 1)``."""
    rate = array_namespace(x).exp(-params["log_lengthscale"])[..., None, :]
    centre = y.mean(-2)[..., None, :]  # differences do not see it; products of far points would lose digits
    scaled_x = (x - centre) * rate
    return scaled_x, scaled_x if x is y else (y - centre) * rate, rate


def _exponential(scaled_x: Array, scaled_y: Array) -> Array:
    """``exp(-|a - b|^2 / 2)`` at all pairs, by one matrix product."""
    half_x = -0.5 * inner(scaled_x, scaled_x)
    half_y = half_x if scaled_x is scaled_y else -0.5 * inner(scaled_y, scaled_y)
    return array_namespace(scaled_x).exp(bilinear((scaled_x, half_x, 1.0), (scaled_y, 1.0, half_y)))


def _trace(precision: Array, dim: int) -> Array:
    """``tr D``, ``(..., 1)``, from its diagonal ``(..., d)`` or from the one entry ``(..., 1)`` that it repeats."""
    return precision.sum(-1)[..., None] * (dim // precision.shape[-1])
