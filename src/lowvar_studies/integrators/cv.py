"""Scalar control variates by mini-batches, each task alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.samples import Samples
from lowvar.registry import declares
from lowvar_studies.integrators.data import columns
from lowvar_studies.integrators.descent_settings import BOREHOLE_RATES, Descent, Tuning, check_batches, fewest
from lowvar_studies.integrators.minibatches import generators
from lowvar_studies.integrators.result import integrals, side_by_side
from lowvar_studies.integrators.sgd import descend
from lowvar_studies.integrators.tuning import tune


@declares(packages=("torch",), extra="torch")
def paper_cv(
    *,
    kernel: str = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    nu: float = 10.0,
    penalty: float = 1e-5,
    batch: int = 10,
    rate: float | Mapping[int, float] = BOREHOLE_RATES,
    decay: float = 0.99,
    epochs: int = 600,
    shuffle: bool = True,
    tuning_batch: int = 5,
    tuning_rate: float = 0.05,
    tuning_epochs: int = 20,
    tuning_constant: float = 1.0,
    joint: bool = False,
    record: int = 0,
) -> Integrator:
    """``g(x) = sum_j k0(x, x_j) theta_j``, with ``theta`` and ``beta`` by mini-batches: Algorithm 2 with ``B = 1``.

    What was learnt, ``info["lengthscale"] (R, T, d)`` and so on, has an axis of tasks.

    Args:
        kernel: as of ``paper_vv``, and so are the options that are not listed here.
        batch: points in a mini-batch. The paper gives a task alone as many as its vector-valued methods give all.
        joint: the same lengthscales for all tasks, tuned on all of them.

    Raises:
        UserError: a setting out of range, or, when it integrates, a batch larger than a task.

    References:
        Si, Oates, Duncan, Carin and Briol, "Scalable control variates for Monte Carlo methods via stochastic
        optimization", 2021; Sun, Barp and Briol, "CV" in Section 5 and Appendix E.
    """
    tuning = Tuning(kernel, kernel_options, nu, tuning_batch, tuning_rate, tuning_epochs, tuning_constant, joint)
    descent = Descent(penalty, batch, rate, decay, epochs, shuffle, record)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        results = []
        check_batches(samples, tuning)
        whole = tune(columns(samples), tuning, generators(seeds, 0)) if joint else None
        for t in range(samples.tasks):
            alone = samples.of_tasks([t])
            check_batches(alone, tuning, descent)
            data = columns(alone)
            params = tune(data, tuning, generators(seeds, 0)) if whole is None else whole
            ended = descend(data, tuning.chosen, params, np.eye(1), descent, None, generators(seeds, 1, t))
            results.append(integrals(data, tuning.chosen, params, ended))
        return side_by_side(results)

    properties = IntegralProperties(
        transfers=joint and tuning_epochs > 0, exact_on="constants", random=True, fewest=fewest(tuning, descent)
    )
    return Integrator("paper_cv", properties, integrate)
