"""Kernels from their values alone: every derivative by automatic differentiation."""

from collections.abc import Callable

import torch
from torch.func import grad, hessian, jacfwd, vmap

from lowvar.integrals.kernels.interface import Kernel, Params, Parts


def from_value(
    name: str,
    value: Callable[[Params, torch.Tensor, torch.Tensor], torch.Tensor],
    defaults: Callable[[int], dict[str, torch.Tensor]],
    smoothness: float,
) -> Kernel:
    """A kernel of which only the value is written down: slower than a hand-written one, by a factor of about ``d``.

    Args:
        name: for messages.
        value: ``(params, x (d,), y (d,)) -> ()``, in operations that ``torch.func`` differentiates; ``params`` without
            leading axes.
        defaults: ``d -> params``.
        smoothness: how many derivatives in each argument exist.

    Returns:
        A kernel whose functions take leading axes as all others do.
    """

    def mixed(params, x, y):
        return torch.trace(jacfwd(grad(value, 1), 2)(params, x, y))

    def stein(params, x, y, lx, ly):  # eq. (3)
        slopes = lx @ grad(value, 2)(params, x, y) + ly @ grad(value, 1)(params, x, y)
        return mixed(params, x, y) + slopes + lx @ ly * value(params, x, y)

    def stein2(params, x, y, lx, ly):  # Theorem C.1: the operator in y, then in x
        def operator(function, score):
            return lambda z: torch.trace(hessian(function)(z)) + score @ grad(function)(z)

        return operator(lambda a: operator(lambda b: value(params, a, b), ly)(y), lx)(x)

    values, gx, gy, traces = (_pairs(f) for f in (value, grad(value, 1), grad(value, 2), mixed))
    diagonal = _batched(vmap(lambda params, x, lx: stein(params, x, x, lx, lx), (None, 0, 0)), 2)
    return Kernel(
        name,
        defaults,
        values,
        lambda params, x, y: Parts(*(f(params, x, y) for f in (values, gx, gy, traces))),
        _pairs(stein),
        diagonal,
        _pairs(stein2),
        smoothness,
    )


def _pairs(function: Callable) -> Callable:
    """``function`` at all pairs: ``(params, x (..., n, d), y (..., m, d), scores alike ...) -> (..., n, m, *)``."""

    def at_pairs(params, x, y, *scores):
        def at_row(x, lx):
            return vmap(lambda y, ly: function(params, x, y, *lx, *ly))(y, tuple(scores[1:]))

        return vmap(at_row)(x, tuple(scores[:1]))

    return _batched(at_pairs, 2)


def _batched(function: Callable, trailing: int) -> Callable:
    """``function`` with leading axes: those of its arguments beyond ``trailing``, and of params beyond one."""

    def over(params, *arrays):
        shapes = [p.shape[:-1] for p in params.values()] + [a.shape[:-trailing] for a in arrays]
        lead = torch.broadcast_shapes(*shapes)
        if not lead:
            return function(params, *arrays)
        flat = {name: p.expand(*lead, p.shape[-1]).reshape(-1, p.shape[-1]) for name, p in params.items()}
        whole = [a.expand(*lead, *a.shape[-trailing:]).reshape(-1, *a.shape[-trailing:]) for a in arrays]
        return vmap(function)(flat, *whole).unflatten(0, lead)

    return over
