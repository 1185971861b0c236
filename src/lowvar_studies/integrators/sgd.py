"""Stochastic vector-valued control variates: Adam on mini-batches, for all repetitions at once, gradients by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lowvar.integrals.kernels import Kernel, Params
from lowvar_studies.integrators.adam import Adam
from lowvar_studies.integrators.data import Columns
from lowvar_studies.integrators.descent_settings import Descent
from lowvar_studies.integrators.minibatches import plan


@dataclass(frozen=True)
class Estimated:
    """How ``B = L L'`` is estimated along with the rest (Algorithm 1).

    Attributes:
        rate: of Adam for ``L``, times the common decay; None for that of the coefficients.
        penalty: of ``|B|^2``.
        coasting: a block that is held while the other is improved still moves by its momentum.
        B_first: ``B`` before the rest, as in the published code; else after it, as in Algorithm 1.
    """

    rate: float | None
    penalty: float
    coasting: bool
    B_first: bool


@dataclass(frozen=True)
class Descended:
    """Where the descent ended.

    Attributes:
        theta: ``(R, G, N, T)`` for ``G = 1`` Gram matrix, or ``(R, T, N, 1)``.
        beta: ``(R, T)``.
        relation: ``B (R, T, T)``.
        residuals: ``(R, N, T)``, fitted minus observed, zero where a row is no observation of a task.
        trace: ``(R, E)``, estimates of the last task.
        steps: updates of ``theta``.
    """

    theta: torch.Tensor
    beta: torch.Tensor
    relation: torch.Tensor
    residuals: torch.Tensor
    trace: torch.Tensor
    steps: int


def descend(
    data: Columns, kernel: Kernel, params: Params, start: np.ndarray, descent: Descent, estimated: Estimated | None,
    rngs: Sequence[np.random.Generator],
) -> Descended:  # fmt: skip
    """Algorithm 2, or with ``estimated`` Algorithm 1.

    The objective of a batch is ``sum_t (1 / b_t) sum_j (f_t(x_tj) - g_t(x_tj) - beta_t)^2 + lambda |theta|^2``, and
    ``+ |B|^2`` in Algorithm 1, from ``theta = 0`` and ``beta`` the sample means. Where the sizes of tasks differ
    ``b_t`` is the mean size of a batch.

    Args:
        data: the samples.
        kernel: the base kernel.
        params: its parameters.
        start: ``B``, or where it starts, ``(T, T)``.
        descent: the settings.
        estimated: those of ``B``.
        rngs: one for each repetition.

    References:
        Sun, Barp and Briol, Algorithms 1 and 2, Section 4 and Appendix A.2.
    """
    gram = data.gram(kernel, params, data.points, data.own)
    repetitions, grams, rows, _ = gram.shape
    single = grams == 1
    observed = data.mask * (data.values - data.shift[:, None])
    theta = gram.new_zeros((repetitions, 1, rows, data.tasks) if single else (repetitions, grams, rows, 1))
    beta = observed.sum(1) / data.mask.sum(0)  # less the shift
    of_theta, of_beta, relation = Adam(theta), Adam(beta), _Relation(start, repetitions)

    cut = plan(data.blocks, descent.batch, max(data.blocks))
    share = data.mask * (max(data.blocks) / (0.5 * descent.batch * data.mask.sum(0)))  # 2 / b_t
    share = share[torch.tensor(cut.layout, device=share.device)]
    flat = gram.reshape(-1, rows)
    first = torch.arange(repetitions * grams, device=gram.device).reshape(repetitions, grams, 1) * rows
    rate = descent.rate_at(sum(data.sizes) / data.tasks)
    slow = rate if estimated is None or estimated.rate is None else estimated.rate
    turns = (False,) if estimated is None else (estimated.B_first, not estimated.B_first)
    trace = []

    for epoch in range(descent.epochs):
        order = torch.tensor(cut.order(rngs, descent.shuffle and epoch > 0), device=gram.device)
        values = observed.gather(1, order[..., None].expand(-1, -1, data.tasks))
        for batch in cut.batches():
            k = flat.index_select(0, (order[:, None, batch] + first).flatten()).reshape(repetitions, grams, -1, rows)
            weight, y = share[batch], values[:, batch]
            for moves_B in turns:
                raw = data.predict(k, theta)
                residual = weight * (raw @ relation.matrix + beta[:, None] - y)
                if estimated is not None and moves_B:
                    relation.step(residual.mT @ raw, estimated.penalty, slow)
                    if estimated.coasting:
                        of_theta.coast(rate)
                        of_beta.coast(rate)
                    continue
                spread = residual @ relation.matrix
                gradient = k.mT @ (spread[:, None] if single else spread.mT[..., None])
                of_theta.step(gradient.add_(theta, alpha=2 * descent.penalty), rate)
                of_beta.step(residual.sum(1), rate)
                if estimated is not None and estimated.coasting:
                    relation.coast(slow)
        rate, slow = rate * descent.decay, slow * descent.decay
        if descent.record and (epoch + 1) % descent.record == 0:
            trace.append((beta + data.shift)[:, -1])
    residuals = data.mask * (data.predict(gram, theta) @ relation.matrix + beta[:, None]) - observed
    kept = torch.stack(trace, 1) if trace else beta.new_zeros((repetitions, 0))
    return Descended(theta, beta + data.shift, relation.matrix, residuals, kept, descent.epochs * len(cut.counts))


class _Relation:
    """``B = L L'``; ``L`` is lower triangular, and what Adam moves has the logarithm of its diagonal."""

    def __init__(self, start: np.ndarray, repetitions: int):
        factor = torch.linalg.cholesky(torch.tensor(start, dtype=torch.float64))
        self._lower = (factor.tril(-1) + factor.diagonal().log().diag()).repeat(repetitions, 1, 1)
        self._adam = Adam(self._lower)
        self._update()

    def step(self, slope: torch.Tensor, penalty: float, rate: float) -> None:
        """Improve ``L``, given the gradient ``slope (R, T, T)`` of the data's part in ``B``."""
        gradient = ((slope + slope.mT + 4 * penalty * self.matrix) @ self._factor).tril()
        diagonal = gradient.diagonal(dim1=-2, dim2=-1) * self._factor.diagonal(dim1=-2, dim2=-1)
        self._adam.step(gradient.tril(-1) + torch.diag_embed(diagonal), rate)
        self._update()

    def coast(self, rate: float) -> None:
        """Move ``L`` by its momentum."""
        self._adam.coast(rate)
        self._update()

    def _update(self) -> None:
        self._factor = self._lower.tril(-1) + torch.diag_embed(self._lower.diagonal(dim1=-2, dim2=-1).exp())
        self.matrix = self._factor @ self._factor.mT
