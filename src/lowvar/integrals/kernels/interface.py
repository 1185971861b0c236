"""A kernel: a function of pairs of points, and the Stein kernels made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from lowvar.errors import UserError

Array = Any  # of NumPy or PyTorch
Params = Mapping[str, Array]


@dataclass(frozen=True)
class Kernel:
    """A kernel ``k(x, y)`` on R^d and its Stein kernels. All functions are analytic in ``params``.

    ``params`` are logarithms of positive parameters, arrays ``(p,)`` by name, or with leading axes ``(..., p)`` that
    broadcast against those of the points. Points ``x (..., n, d)`` and ``y (..., m, d)``, scores ``lx``, ``ly`` alike;
    all of NumPy or all of PyTorch.

    Attributes:
        name: as in the registry.
        defaults: ``d -> params``, without leading axes, to start a search from: arrays of NumPy.
        stein: ``(params, x, y, lx, ly) -> (..., n, m)``, of the first-order Langevin operator ``div u + u . l``.
        stein2: as ``stein``, of the second-order operator ``Lap u + grad u . l``.
        vjp: ``(params, x, lx, order) -> (matrix, pull)``: ``stein(params, x, x, lx, lx)`` (or ``stein2``) and
            a function of a symmetric ``weight (..., n, n)``: derivatives by name, ``(..., p)``, of ``weight`` times the
            matrix, added up over all pairs, in those parameters of which the kernel knows them. If not given, none.

    References:
        Sun, Barp and Briol, eq. (3), Appendix D.1, Theorem C.1.
    """

    name: str
    defaults: Callable[[int], dict[str, Array]]
    stein: Callable[[Params, Array, Array, Array, Array], Array]
    stein2: Callable[[Params, Array, Array, Array, Array], Array]
    vjp: Callable[[Params, Array, Array, int], tuple[Array, Callable[[Array], dict[str, Array]]]] | None = None

    def with_slopes(self, params: Params, x: Array, lx: Array, order: int = 1):
        """As ``vjp``, in all parameters: in others than the kernel knows by ``complex_slope``."""
        stein = self.stein if order == 1 else self.stein2
        matrix, known = self.vjp(params, x, lx, order) if self.vjp else (stein(params, x, x, lx, lx), lambda weight: {})

        def pull(weight: Array) -> dict[str, Array]:
            found = known(weight)
            for name in params.keys() - found.keys():
                found[name] = complex_slope(lambda of: (weight * stein(of, x, x, lx, lx)).sum((-2, -1)), params, name)
            return found

        return matrix, pull

    def check(self, x: Array, lx: Array, order: int = 1) -> None:
        """Refuses a kernel that would mislead a search for its parameters: ``x``, ``lx (n, d)``, a few points.

        Raises:
            UserError: its matrix is not symmetric, or its derivatives are not those that differences have.
        """
        stein, params = self.stein if order == 1 else self.stein2, self.defaults(x.shape[-1])
        matrix, pull = self.with_slopes(params, x, lx, order)
        size = np.abs(matrix).max()
        if np.shape(matrix) != (len(x), len(x)) or not np.abs(matrix - matrix.mT).max() <= 1e-6 * size:
            raise UserError(f"kernel {self.name!r}: its Stein kernel of {len(x)} points is not a symmetric matrix")
        weight = matrix / size
        for name, slope in pull(weight).items():
            for i, step in enumerate(1e-4 * np.eye(len(params[name]))):
                ahead, behind = (stein({**params, name: params[name] + s}, x, x, lx, lx) for s in (step, -step))
                if not abs((weight * (ahead - behind)).sum() / 2e-4 - slope[i]) <= 1e-4 * len(x) * size:
                    raise UserError(
                        f"kernel {self.name!r}: the derivative in {name!r} is not that of a difference; without vjp"
                        " its formulas must be analytic (no abs, maximum or conjugate of what depends on a parameter)"
                    )


STEP = 1e-100  # of a parameter, along the imaginary axis: its square is nothing


def complex_slope(function: Callable[[Params], Array], params: Params, name: str) -> Array:
    """Derivatives ``(..., p)`` of a function ``(...)`` that is analytic, in a parameter, exact up to rounding.

    References:
        Squire and Trapp, "Using complex variables to estimate derivatives of real functions", 1998.
    """
    value = params[name]
    xp = array_namespace(value)
    steps = 1j * STEP * xp.eye(value.shape[-1], dtype=value.dtype)
    return xp.stack([xp.imag(function({**params, name: value + step})) / STEP for step in steps], axis=-1)


def bilinear(left: Sequence[Array | float], right: Sequence[Array | float]) -> Array:
    """``sum_i left_i right_i'`` as one matrix product.

    Args:
        left: blocks of columns ``(..., n, c_i)``; a number is one column of it.
        right: blocks ``(..., m, c_i)``, alike.

    Returns:
        ``(..., n, m)``.
    """
    return _columns(left) @ _columns(right).mT


def inner(x: Array, y: Array) -> Array:
    """``(..., n, 1)``: the inner product of each row of ``x (..., n, d)`` with the same row of ``y``."""
    return (x * y).sum(-1)[..., None]


def _columns(blocks: Sequence[Array | float]) -> Array:
    """The blocks side by side, ``(..., n, sum c_i)``."""
    arrays = [block for block in blocks if not isinstance(block, (int, float))]
    xp, dtype, where = array_namespace(*arrays), arrays[0].dtype, device(arrays[0])
    shape = np.broadcast_shapes(*(block.shape[:-1] for block in arrays))
    whole = [
        xp.full((1,), block, dtype=dtype, device=where) if isinstance(block, (int, float)) else block
        for block in blocks
    ]
    return xp.concat([xp.broadcast_to(block, (*shape, block.shape[-1])) for block in whole], axis=-1)


def separable_stein(
    kernel: Kernel, params: Params, B: Array, x: Array, y: Array, lx: Array, ly: Array, order: int = 1
) -> Array:
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
    xp = array_namespace(x)

    def rows(points, scores):
        """Each point once for each target."""
        each = xp.broadcast_to(points[..., None, :], (*points.shape[:-1], tasks, dim))
        return (of.reshape(*of.shape[:-3], -1, dim) for of in (each, scores))

    (x, lx), (y, ly) = rows(x, lx), rows(y, ly)
    scalar = (kernel.stein if order == 1 else kernel.stein2)(params, x, y, lx, ly)
    by_target = scalar.reshape(*scalar.shape[:-2], n, tasks, m, tasks)
    return B[..., None, None, :, :] * xp.moveaxis(by_target, -3, -2)
