"""Kernels and the Stein kernels made of them.

One convention of lengthscales everywhere: ``exp(-sum_j (x_j - y_j)^2 / (2 l_j^2))``. In Sun, Barp and Briol,
Appendices D.1 and E.4, the parameter is ``l^2``.
"""

from lowvar.integrals.kernels.interface import Kernel, Params, separable_stein
from lowvar.integrals.kernels.polynomial import polynomial
from lowvar.integrals.kernels.preconditioned import preconditioned
from lowvar.integrals.kernels.squared_exponential import squared_exponential
from lowvar.registry import Registry

__all__ = [
    "KERNELS",
    "Kernel",
    "Params",
    "kernel",
    "polynomial",
    "preconditioned",
    "separable_stein",
    "squared_exponential",
]

KERNELS = Registry(
    "kernel",
    {
        "squared_exponential": squared_exponential,
        "preconditioned": preconditioned,
        "polynomial": polynomial,
    },
)


def kernel(name: str, **options) -> Kernel:
    """The kernel called ``name`` in ``KERNELS``; the options are those of its factory.

    Raises:
        UserError: no kernel has that name, or an option is unknown, missing or out of range.
    """
    KERNELS.check_options(name, options, where="kernel")
    return KERNELS.get(name)(**options)
