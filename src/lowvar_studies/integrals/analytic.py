"""One-dimensional integrals with known exact values."""

import numpy as np

from lowvar.errors import UserError
from lowvar_studies.integrals.normal import independent_normals
from lowvar_studies.integrals.problem import IntegralProblem, Truth


def south(variance: float = 1.25, swapped: bool = False) -> IntegralProblem:
    """Two similar smooth integrands, under normal targets of different variances.

    ``f_1 = 3/2 + x + 3/2 x^2 + 7/4 sin(pi x) exp(-x^2)`` under ``N(0, 1)`` and
    ``f_2 = 1 + x + x^2 + sin(pi x) exp(-x^2)`` under ``N(0, variance)``: the odd terms integrate to zero.

    Args:
        variance: variance of the second target; at 1 both tasks have the same target.
        swapped: ``f_1`` has the target of the given variance and ``f_2`` has ``N(0, 1)``. The paper's text and its
            published code differ in this.

    Raises:
        UserError: the variance is not positive.

    References:
        Sun, Barp and Briol, Appendix E.2; f_2 is from South, Riabiz, Teymur and Oates (2022).

    >>> south(1.1).truth(1).value.tolist(), south(1.1, swapped=True).truth(1).value.round(12).tolist()
    ([3.0, 2.1], [3.15, 2.0])
    """
    if not variance > 0:
        raise UserError(f"south: variance {variance}; it must be positive")
    own = (variance, 1.0) if swapped else (1.0, variance)
    exact = np.array([1.5 + 1.5 * own[0], 1 + own[1]])

    def value(t, points):
        x = points[:, 0]
        bump = np.sin(np.pi * x) * np.exp(-(x**2))
        return 1.5 + x + 1.5 * x**2 + 1.75 * bump if t == 0 else 1 + x + x**2 + bump

    one = variance == 1
    return independent_normals(
        "south",
        ("f_1", "f_2"),
        (0, 0) if one else (0, 1),
        tuple((np.zeros(1), np.array([np.sqrt(v)])) for v in (own[:1] if one else own)),
        value,
        lambda effort: Truth(exact, np.zeros(2), "in closed form"),
        about={"variance": variance, "swapped": swapped},
    )


def step() -> IntegralProblem:
    """Two step functions under ``N(0, 1)``: a cheap one, on [-1, 2], and the integrand of interest, on [0, 1].

    References:
        Sun, Barp and Briol, Section 5.1 and Appendix E.3.

    >>> step().truth(1).value.tolist()
    [0.5, 0.5]
    """

    def value(t, points):
        right = points[:, 0] >= 0
        return np.where(right, 2.0, -1.0) if t == 0 else np.where(right, 1.0, 0.0)

    target = (np.zeros(1), np.ones(1))
    exact = Truth(np.array([0.5, 0.5]), np.zeros(2), "in closed form")
    return independent_normals("step", ("low", "high"), (0, 0), (target,), value, lambda effort: exact)
