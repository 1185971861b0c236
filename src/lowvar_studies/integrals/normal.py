"""Problems whose targets are independent normal coordinates: two smooth integrands, two steps, and the borehole."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError, check_known
from lowvar_studies.integrals.problem import IntegralProblem, Truth

INPUTS = ("r_w", "r", "T_u", "T_l", "H_u", "H_l", "L", "K_w")
MEAN = np.array([0.1, 100.0, 89335.0, 89.55, 1050.0, 760.0, 1400.0, 10950.0])
SECOND = np.array([0.0161812, 0.01, 20.0, 1.0, 1.0, 1.0, 10.0, 30.0])  # as printed; that of r_w is a standard deviation
NODES = (13, 3, 3, 3, 3, 3, 3, 3)  # the flow is nearly linear in all but r_w, whose last node is still positive


def independent_normals(
    name: str,
    tasks: tuple[str, ...],
    target: tuple[int, ...],
    gaussian: tuple[tuple[np.ndarray, np.ndarray], ...],
    value: Callable,
    truth: Callable,
    **more,
) -> IntegralProblem:
    """An ``IntegralProblem`` whose densities, scores and samplers follow from the targets' means and deviations."""

    def log_density(mean, deviation):
        def log_density(x):
            z = (x - jnp.asarray(mean)) / jnp.asarray(deviation)
            return -0.5 * jnp.sum(z * z)

        return log_density

    def score(k, points):
        mean, deviation = gaussian[k]
        return (mean - points) / deviation**2

    return IntegralProblem(
        name=name,
        dim=len(gaussian[0][0]),
        tasks=tasks,
        target=target,
        log_densities=tuple(log_density(*one) for one in gaussian),
        value=value,
        score=score,
        truth=truth,
        samplers=("iid", "rqmc", "nuts"),
        gaussian=gaussian,
        start=tuple(mean for mean, _ in gaussian),
        **more,
    )


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


def flow(points: np.ndarray, factor: float, constant: float) -> np.ndarray:
    """``factor T_u (H_u - H_l) / (log(r / r_w) (constant + 2 L T_u / (log(r / r_w) r_w^2 K_w) + T_u / T_l))``.

    Args:
        points: ``(n, 8)``, columns as in ``INPUTS``.
        factor: ``2 pi`` in the high fidelity and 5 in the low one.
        constant: 1 in the high fidelity and 1.5 in the low one.
    """
    r_w, r, t_u, t_l, h_u, h_l, length, k_w = points.T
    log = np.log(r / r_w)
    return factor * t_u * (h_u - h_l) / (log * (constant + 2 * length * t_u / (log * r_w**2 * k_w) + t_u / t_l))


def borehole(second_arguments: str = "variances") -> IntegralProblem:
    """The borehole's flow in two fidelities, under independent normal inputs.

    Args:
        second_arguments: meaning of the second arguments of the normal inputs, except that of ``r_w``, which is printed
            as a square: ``variances`` (which reproduces the published numbers) or ``deviations``.

    Raises:
        UserError: another word.

    References:
        Sun, Barp and Briol, Section 5.1, Appendix E.4 and Table 4; Xiong, Qian and Wu (2013).
    """
    check_known("second_arguments", second_arguments, ("variances", "deviations"), where="borehole")
    deviation = SECOND if second_arguments == "deviations" else np.r_[SECOND[0], np.sqrt(SECOND[1:])]
    fidelities = ((5.0, 1.5), (2 * np.pi, 1.0))

    def truth(effort):
        value = gauss_hermite(lambda x: np.stack([flow(x, *one) for one in fidelities], 1), MEAN, deviation, NODES)
        return Truth(value, np.zeros(2), f"tensor Gauss-Hermite quadrature, {' x '.join(map(str, NODES))} nodes")

    problem = independent_normals(
        "borehole",
        ("low", "high"),
        (0, 0),
        ((MEAN, deviation),),
        lambda t, points: flow(points, *fidelities[t]),
        truth,
    )
    return replace(problem, samplers=(*problem.samplers, "published"))


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
