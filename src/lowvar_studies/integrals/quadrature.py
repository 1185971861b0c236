"""Rules for integrals against normal densities."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np


def gauss_hermite(
    function: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, deviation: np.ndarray, nodes: Sequence[int]
) -> np.ndarray:
    """``E f(X)`` for independent normal coordinates, by a tensor product of Gauss-Hermite rules.

    Exact for polynomials of degree up to ``2 nodes[j] - 1`` in coordinate ``j``.

    Args:
        function: ``(n, d) -> (n, ...)``.
        mean: ``(d,)``.
        deviation: ``(d,)``, standard deviations.
        nodes: ``(d,)``, the number of nodes for each coordinate.

    >>> float(gauss_hermite(lambda x: x[:, 0] ** 2 * x[:, 1], np.array([0.0, 3.0]), np.array([2.0, 1.0]), (2, 1)))
    12.0
    """
    rules = [np.polynomial.hermite_e.hermegauss(n) for n in nodes]
    z = np.array(list(itertools.product(*(rule[0] for rule in rules))))
    weight = np.prod(list(itertools.product(*(rule[1] / rule[1].sum() for rule in rules))), axis=1)
    return np.tensordot(weight, function(mean + deviation * z), axes=1)


def trapezoid(half_width: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes ``(n,)`` and log weights ``(n,)`` of the trapezoidal rule for ``E f(Z)``, ``Z ~ N(0, 1)``.

    For smooth ``f`` of slow growth, the error falls faster than any power of the spacing, down to the contribution of
    the tails beyond ``half_width`` standard deviations.

    >>> z, log_weight = trapezoid(9, 100)
    >>> round(float(np.exp(log_weight) @ z**4), 10)
    3.0
    """
    z = np.linspace(-half_width, half_width, nodes)
    return z, -0.5 * z**2 + np.log(z[1] - z[0]) - 0.5 * np.log(2 * np.pi)
