"""Products of kernels, each on inputs of its own."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from lowvar.errors import UserError
from lowvar.estimators.integral.kernels.interface import Kernel, Params, Parts
from lowvar.estimators.integral.kernels.stein import from_value


def product(factors: Sequence[Mapping[str, Any]], lookup: Callable[..., Kernel]) -> Kernel:
    """``k(x, y) = prod_b k_b(x_b, y_b)`` over blocks ``b`` of inputs, which share no input and leave none out.

    The Stein kernel is ``sum_b k0_b prod_(c != b) k_c``: as fast as its factors. The second-order one is found by
    automatic differentiation. The parameter ``p`` of factor ``b`` is called ``b.p``.

    Args:
        factors: for each block ``{"kernel": name, "inputs": indices, ...}``; the rest are options of that kernel.
        lookup: ``(name, **options) -> Kernel``.

    Raises:
        UserError: no factor, or one without a kernel or inputs, or an input that has two factors or none.

    References:
        Sun, Barp and Briol, Appendix D.1.
    """
    for factor in factors:
        if not {"kernel", "inputs"} <= set(factor):
            raise UserError(f"factor {dict(factor)} of a product of kernels: it needs a kernel and its inputs")
    blocks = [list(factor["inputs"]) for factor in factors]
    inputs = [index for block in blocks for index in block]
    if not inputs or set(inputs) != set(range(len(inputs))):
        raise UserError(f"inputs {blocks} of a product of kernels: each input, counted from 0, needs one factor")
    kernels = [lookup(f["kernel"], **{k: v for k, v in f.items() if k not in ("kernel", "inputs")}) for f in factors]

    def own(params: Params, b: int) -> dict[str, torch.Tensor]:
        return {name.partition(".")[2]: value for name, value in params.items() if name.split(".")[0] == str(b)}

    def split(params: Params, *arrays: torch.Tensor):
        """For each factor, its parameters and its inputs of each array."""
        if arrays[0].shape[-1] != len(inputs):
            raise UserError(f"a product of kernels on {len(inputs)} inputs: points have {arrays[0].shape[-1]}")
        return [(own(params, b), *(array[..., block] for array in arrays)) for b, block in enumerate(blocks)]

    def defaults(dim: int) -> dict[str, torch.Tensor]:
        named = enumerate(zip(kernels, blocks, strict=True))
        return {f"{b}.{name}": value for b, (k, block) in named for name, value in k.defaults(len(block)).items()}

    def values(params, x, y):
        return [k.value(*args) for k, args in zip(kernels, split(params, x, y), strict=True)]

    def value(params, x, y):
        return functools.reduce(torch.mul, values(params, x, y))

    def parts(params, x, y):
        found = [k.parts(*args) for k, args in zip(kernels, split(params, x, y), strict=True)]
        k = [part.k for part in found]
        whole = functools.reduce(torch.mul, k)
        gx, gy = whole.new_zeros(*whole.shape, x.shape[-1]), whole.new_zeros(*whole.shape, x.shape[-1])
        for b, (part, block) in enumerate(zip(found, blocks, strict=True)):
            rest = _others(k, b)[..., None]
            gx[..., block], gy[..., block] = part.gx * rest, part.gy * rest
        return Parts(whole, gx, gy, _total([part.mixed for part in found], k))

    def stein(params, x, y, lx, ly):
        terms = [k.stein(*args) for k, args in zip(kernels, split(params, x, y, lx, ly), strict=True)]
        return _total(terms, values(params, x, y))

    def stein_diagonal(params, x, lx):
        terms = [k.stein_diagonal(*args) for k, args in zip(kernels, split(params, x, lx), strict=True)]
        alone = {name: value.unsqueeze(-2) for name, value in params.items()}
        return _total(terms, [k[..., 0, 0] for k in values(alone, x[..., None, :], x[..., None, :])])

    smoothness = min(k.smoothness for k in kernels)
    whole = from_value("product", lambda p, x, y: value(p, x[None], y[None])[0, 0], defaults, smoothness)
    return Kernel("product", defaults, value, parts, stein, stein_diagonal, whole.stein2, smoothness)


def _others(values: Sequence[torch.Tensor], b: int) -> torch.Tensor:
    """The product of all values but the one of factor ``b``."""
    rest = [value for c, value in enumerate(values) if c != b]
    return functools.reduce(torch.mul, rest, torch.ones_like(values[b]))


def _total(terms: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> torch.Tensor:
    """``sum_b terms_b prod_(c != b) values_c``."""
    return torch.stack([term * _others(values, b) for b, term in enumerate(terms)]).sum(0)
