"""The exact points of a published experiment, whose code seeds its generator with the repetition."""

import jax
import numpy as np

from lowvar.errors import UserError
from lowvar_studies.integrals.problem import IntegralProblem


def published(problem: IntegralProblem, sizes: tuple[int, ...], keys: jax.Array) -> tuple[np.ndarray, ...]:
    """Independent points, ``(R, m_t, d)``: PyTorch's generator, seed ``2 r + t``, input by input, single precision.

    Only the number of keys is used. The points of a smaller size are not the first of a larger one.

    Raises:
        UserError: PyTorch is missing.

    References:
        Sun, Barp and Briol, the published code of the balanced borehole experiment (Table 2).
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UserError("the sampler 'published' needs PyTorch: pip install 'lowvar[torch]'") from error
    assert problem.gaussian is not None  # else the problem does not list this sampler
    drawn = []
    for t, m in enumerate(sizes):
        mean, deviation = (
            torch.tensor(of, dtype=torch.float32, device="cpu") for of in problem.gaussian[problem.target[t]]
        )
        of_task = []
        for r in range(len(keys)):
            generator = torch.Generator("cpu").manual_seed(2 * r + t)
            inputs = [torch.randn(m, 1, generator=generator, device="cpu") for _ in range(problem.dim)]
            noise = torch.cat(inputs, 1)
            of_task.append((mean + deviation * noise).double().numpy())
        drawn.append(np.stack(of_task))
    return tuple(drawn)
