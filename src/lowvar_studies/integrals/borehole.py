"""Water flow through a borehole: two fidelities, eight uncertain inputs."""

from dataclasses import replace

import numpy as np

from lowvar.errors import check_known
from lowvar_studies.integrals.normal import independent_normals
from lowvar_studies.integrals.problem import IntegralProblem, Truth
from lowvar_studies.integrals.quadrature import gauss_hermite

INPUTS = ("r_w", "r", "T_u", "T_l", "H_u", "H_l", "L", "K_w")
MEAN = np.array([0.1, 100.0, 89335.0, 89.55, 1050.0, 760.0, 1400.0, 10950.0])
SECOND = np.array([0.0161812, 0.01, 20.0, 1.0, 1.0, 1.0, 10.0, 30.0])  # as printed; that of r_w is a standard deviation
NODES = (13, 3, 3, 3, 3, 3, 3, 3)  # the flow is nearly linear in all but r_w, whose last node is still positive


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
        about={"inputs": INPUTS, "second_arguments": second_arguments},
    )
    return replace(problem, samplers=(*problem.samplers, "published"))
