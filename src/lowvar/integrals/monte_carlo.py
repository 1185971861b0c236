"""The mean of the values: what every other integrator is measured against."""

import numpy as np

from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.chains import effective_size
from lowvar.integrals.samples import Samples

TOO_FEW = 10  # effective points, below which autocorrelations cannot be told


def monte_carlo(correlated: bool | None = None) -> Integrator:
    """``(1 / m) sum_j f(x_j)``, with the standard error ``s / sqrt(m)``, or ``s / sqrt(effective m)`` along a chain.

    Args:
        correlated: whether the points depend on their predecessors; whether they are a chain if not given.

    Returns:
        An integrator whose ``info`` has the effective sizes, ``effective (R, T)``. It warns of ``few_states`` where
        correlated points are worth fewer than ten.
    """

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        dependent = samples.chain if correlated is None else correlated
        value = np.stack([values.mean(axis=1) for values in samples.values], axis=1)
        spread = np.stack([values.std(axis=1, ddof=1) for values in samples.values], axis=1)
        if dependent:
            effective = np.stack([effective_size(values) for values in samples.values], axis=1)
        else:
            effective = np.broadcast_to(np.array(samples.sizes, dtype=float), value.shape).copy()

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            return np.repeat(value[:, task, None], points.shape[1], axis=1)

        return Integrals(
            value=value,
            standard_error=spread / np.sqrt(effective),
            condition=np.full(samples.repetitions, np.nan),
            flags={"few_states": np.any(effective < TOO_FEW, axis=1)} if dependent else {},
            info={"effective": effective},
            fitted=fitted,
        )

    return Integrator("monte_carlo", IntegralProperties(scores=False, exact_on="constants", fewest=2), integrate)
