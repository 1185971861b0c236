"""Problems whose targets are independent normal coordinates."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from lowvar_studies.integrals.problem import IntegralProblem


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
