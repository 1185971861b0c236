"""A problem whose rows are divided among devices: data parallelism by JAX's own sharding.

Every evaluation of the likelihood, of a batch, in a full pass or for an ELBO, is constrained to be divided by rows. The
compiler derives the rest: each device gathers and evaluates its share of the rows, sums over rows become sums over
devices, and parameters are the same on all of them.

References:
    Xu, Lee, Chen, Hechtman et al., "GSPMD: general and scalable parallelization for ML computation graphs", 2021.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lowvar.errors import UserError, whole
from lowvar.vi.numpyro.model import NumPyroProblem


def divided(problem: Any, devices: int, size: int) -> Any:
    """``problem`` with its rows divided among the first ``devices`` devices of JAX.

    Args:
        problem: of a NumPyro model.
        devices: how many.
        size: rows of a batch.

    Raises:
        UserError: fewer devices, a batch that they cannot share equally, rows with latent variables of their own, or
            a model in PyTorch.
    """
    devices, there = whole("devices", devices, 1), jax.devices()
    if devices > len(there):
        raise UserError(
            f"devices {devices}: JAX has {len(there)}, of kind {there[0].platform}; on a CPU it has as many as "
            "XLA_FLAGS=--xla_force_host_platform_device_count says before Python starts"
        )
    if not isinstance(problem, NumPyroProblem) or problem.densities is not None:
        kind = "latent variables in the data plate" if isinstance(problem, NumPyroProblem) else "a model in PyTorch"
        raise UserError(f"{problem.name}: devices: {kind} cannot be divided among devices; leave devices out")
    if size % devices:
        raise UserError(f"devices {devices}: the batch size, {size}, must be a multiple of it")
    by_row = NamedSharding(Mesh(np.array(there[:devices]), ("rows",)), PartitionSpec("rows"))

    def share(rows):
        return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, by_row), rows)

    likelihood, joint = problem.log_likelihood, problem.log_joint
    return replace(
        problem, log_likelihood=lambda z, index: likelihood(z, share(index)),
        log_joint=lambda z, index: joint(z, share(index)),
    )  # fmt: skip
