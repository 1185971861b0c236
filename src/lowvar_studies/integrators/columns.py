"""Samples as the paper's algorithms see them, one set of columns for all tasks."""

from dataclasses import dataclass

import numpy as np
import torch

from lowvar.integrals.base import Samples
from lowvar.integrals.kernels import Kernel, Params


def tensor(array: np.ndarray) -> torch.Tensor:
    """A copy as float64 on torch's default device, with torch's alignment: NumPy's differs from run to run."""
    return torch.tensor(np.asarray(array, order="C"), dtype=torch.float64, device=torch.get_default_device())


def numpy(array: torch.Tensor) -> np.ndarray:
    """On the host."""
    return array.detach().cpu().numpy()


@dataclass(frozen=True)
class Columns:
    """All points, one below the other.

    The model is ``g_t(x) = sum_s B_ts sum_j k0(x, x_j; l_t, l_s) theta_js`` (special case I). With one target it is
    ``k0(x, X) theta B`` (special case II), ``G = 1`` Gram matrix instead of ``T``. With shared points the ``T`` blocks
    of ``theta`` have equal gradients and stay equal, so that one block, counted ``T`` times in the predictions, does
    what all of them would.

    Attributes:
        points: ``(R, N, d)``; ``N`` is the number of all points, or ``m`` where they are shared.
        own: ``(R, N, d)``, scores of the target of each point's task.
        scores: ``G`` arrays ``(R, N, d)``: scores of the target of task ``s``, or ``own`` alone with one target.
        values: ``(R, N, T)``, zero where ``mask`` is.
        mask: ``(N, T)``, one where a row is an observation of a task.
        shift: ``(R, T)``, the first value of each task. Without it a constant is zero to the last bit, which matters
            because Adam makes steps of full length of rounding errors.
        sizes: ``m_t``.
        tasks: ``T``.
        shared: whether all tasks have the same points.
    """

    points: torch.Tensor
    own: torch.Tensor
    scores: tuple[torch.Tensor, ...]
    values: torch.Tensor
    mask: torch.Tensor
    shift: torch.Tensor
    sizes: tuple[int, ...]
    tasks: int
    shared: bool

    @property
    def blocks(self) -> tuple[int, ...]:
        """Points of each block of rows: ``m_t``, or ``m`` once."""
        return self.sizes[:1] if self.shared else self.sizes

    @property
    def copies(self) -> int:
        """How often a block of ``theta`` counts."""
        return self.tasks if self.shared else 1

    def predict(self, gram: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        """``sum_j k0(x, x_j; l_t, l_s) theta_js``, which ``B`` has yet to mix, ``(R, n, T)``.

        Args:
            gram: ``(R, G, n, N)``.
            theta: ``(R, 1, N, T)``, or ``(R, T, N, 1)`` for ``T`` Gram matrices.
        """
        product = gram @ theta
        return self.copies * (product[:, 0] if gram.shape[1] == 1 else product[..., 0].mT)

    def gram(self, kernel: Kernel, params: Params, points: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """``(R, G, n, N)``: Stein kernels between new points ``(R, n, d)`` and the columns.

        ``own (R, n, d)`` are the scores there, of the target of the task whose function is asked for.
        """
        grams = [kernel.stein(params, points, self.points, own, scores) for scores in self.scores]
        return torch.stack(grams, 1)


def columns(samples: Samples) -> Columns:
    """The samples on torch's default device. Without cross-scores the tasks are taken to have one target."""
    tasks, sizes = samples.tasks, samples.sizes
    if samples.shared:
        points, own = samples.points[0], samples.scores[0]
        values, mask = np.stack(samples.values, -1), np.ones((sizes[0], tasks))
    else:
        points, own = np.concatenate(samples.points, 1), np.concatenate(samples.scores, 1)
        mask = np.repeat(np.eye(tasks), sizes, axis=0)
        values = np.concatenate(samples.values, 1)[..., None] * mask
    scores = (tensor(own),)
    if samples.cross_scores is not None and tasks > 1 and not samples.shared:
        cross = np.concatenate(samples.cross_scores, 1)
        scores = tuple(tensor(cross[:, :, s]) for s in range(tasks))
    shift = tensor(np.stack([value[:, 0] for value in samples.values], 1))
    arrays = (tensor(points), tensor(own), scores, tensor(values), tensor(mask))
    return Columns(*arrays, shift, sizes, tasks, samples.shared)
