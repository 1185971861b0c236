"""States of solvers as lists of arrays, for checkpoints."""

from typing import Any

import jax
import numpy as np


def wait(backend, state: Any) -> None:
    """Returns when the arrays of ``state`` have been computed."""
    if backend.name == "jax":
        jax.block_until_ready(state)


def flatten(backend, state: Any) -> list[np.ndarray]:
    """The arrays of ``state`` as NumPy, in a fixed order; ``unflatten`` is the inverse."""
    return _tree(backend).tree_leaves(backend.to_numpy(state))


def unflatten(backend, leaves: list[np.ndarray], *, like: Any) -> Any:
    """The state, of the structure of ``like``, whose arrays are ``leaves``."""
    tree = _tree(backend)
    structure = tree.tree_structure(like)
    arrays = [backend.asarray(np.array(leaf)) for leaf in leaves]  # copies, since states are donated
    if backend.name == "jax":
        return jax.tree_util.tree_unflatten(structure, arrays)  # type: ignore[arg-type]
    return tree.tree_unflatten(arrays, structure)  # type: ignore[arg-type]


def _tree(backend):
    if backend.name == "jax":
        return jax.tree_util
    from torch.utils import _pytree

    return _pytree
