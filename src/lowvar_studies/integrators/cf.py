"""The paper's control functional: closed form, with the lengthscales and the ridge of the published code."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lowvar.errors import positive
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.kernels import Kernel, Params
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import numpy, tensor
from lowvar.registry import declares
from lowvar_studies.integrators.data import columns
from lowvar_studies.integrators.descent_settings import Tuning, check_batches, fewest
from lowvar_studies.integrators.minibatches import generators
from lowvar_studies.integrators.result import lengthscales, side_by_side
from lowvar_studies.integrators.tuning import tune

_CONDITION = 1e13  # above it rounding can show


@declares(packages=("torch",), extra="torch")
def paper_cf(
    *,
    kernel: str = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    nu: float = 10.0,
    ridge: float = 1e-3,
    tuning_batch: int = 5,
    tuning_rate: float = 0.05,
    tuning_epochs: int = 20,
    tuning_constant: float = 1.0,
    joint: bool = True,
) -> Integrator:
    """``beta = (1' M^-1 y) / (1' M^-1 1)`` with ``M = k0(X, X) + ridge I``, each task alone.

    Table 2 has the ridge 1e-3, whatever ``lambda`` the other methods have, and the lengthscales of the vector-valued
    methods, tuned on all tasks.

    Args:
        kernel: as of ``paper_vv``, and so are the options that are not listed here.
        ridge: in the unit of the Stein kernel.
        joint: the same lengthscales for all tasks, tuned on all of them.

    Returns:
        An integrator. Its standard errors are those of generalised least squares, with the scale of the covariance
        estimated from the data.

    Raises:
        UserError: a setting out of range, or, when it integrates, a batch larger than a task.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017; Sun, Barp and Briol, "CF"
        in Section 5.
    """
    tuning = Tuning(kernel, kernel_options, nu, tuning_batch, tuning_rate, tuning_epochs, tuning_constant, joint)
    positive("ridge", ridge)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_batches(samples, tuning)
        whole = tune(columns(samples), tuning, generators(seeds, 0)) if joint else None
        results = []
        for t in range(samples.tasks):
            alone = samples.of_tasks([t])
            params = tune(columns(alone), tuning, generators(seeds, 0)) if whole is None else whole
            results.append(_closed_form(alone, tuning.chosen, params, ridge))
        return side_by_side(results)

    tuned = tuning_epochs > 0
    properties = IntegralProperties(
        transfers=joint and tuned, exact_on="constants", random=tuned, fewest=fewest(tuning)
    )
    return Integrator("paper_cf", properties, integrate)


def _closed_form(samples: Samples, kernel: Kernel, params: Params, ridge: float) -> Integrals:
    """Generalised least squares for one task."""
    points, scores, y = (tensor(arrays[0]) for arrays in (samples.points, samples.scores, samples.values))
    m = y.shape[1]
    gram = kernel.stein(params, points, points, scores, scores)
    spectrum, vectors = torch.linalg.eigh(gram)
    spectrum = spectrum.clamp_min(0) + ridge
    ones, turned = vectors.sum(-2), (y[:, None] @ vectors)[:, 0]
    precision = (ones * ones / spectrum).sum(-1)
    beta = (ones * turned / spectrum).sum(-1) / precision
    rest = (turned - beta[:, None] * ones) / spectrum
    scale = (rest * rest * spectrum).sum(-1) / (m - 1)
    weights = (vectors @ rest[..., None])[..., 0]
    condition = numpy(spectrum[:, -1] / spectrum[:, 0])

    def fitted(task: int, x: np.ndarray, score: np.ndarray) -> np.ndarray:
        cross = kernel.stein(params, tensor(x), points, tensor(score), scores)
        return numpy((cross @ weights[..., None])[..., 0] + beta[:, None])

    return Integrals(
        value=numpy(beta)[:, None],
        standard_error=numpy((scale / precision).sqrt())[:, None],
        condition=condition,
        flags={"ill_conditioned": condition > _CONDITION},
        info=lengthscales(params, points.shape[2]),
        fitted=fitted,
    )
