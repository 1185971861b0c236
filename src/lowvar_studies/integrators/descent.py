"""Adam on mini-batches as in the paper's code, gradients by hand: of lengthscales; of coefficients and ``B``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from lowvar.integrals.kernels import Kernel, Params
from lowvar_studies.integrators.columns import Columns, tensor
from lowvar_studies.integrators.settings import Descent, Tuning

_CONDITION = 1e6  # the largest allowed
_DECAY = 0.99  # of the rate of tuning, before every step


@dataclass(frozen=True)
class RelationDescent:
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
class DescentResult:
    """The end of a descent.

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
    data: Columns, kernel: Kernel, params: Params, start: np.ndarray, descent: Descent,
    estimated: RelationDescent | None, rngs: Sequence[np.random.Generator],
) -> DescentResult:  # fmt: skip
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
    return DescentResult(theta, beta + data.shift, relation.matrix, residuals, kept, descent.epochs * len(cut.counts))


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


class Adam:
    """One tensor's moments and its count of steps. Entries do not see each other.

    References:
        Kingma and Ba, "Adam: a method for stochastic optimization", 2015; ``torch.optim.Adam``, whose update this is.
    """

    def __init__(self, parameter: torch.Tensor):
        self.parameter = parameter
        self._first = torch.zeros_like(parameter)
        self._second = torch.zeros_like(parameter)
        self._scale = torch.empty_like(parameter)
        self._steps = 0

    def step(self, gradient: torch.Tensor, rate: float) -> None:
        """One update, in place."""
        self._first.lerp_(gradient, 0.1)
        self._second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        self._move(rate)

    def coast(self, rate: float) -> None:
        """An update with a gradient of zero: momentum alone. Before the first step nothing happens."""
        if self._steps:
            self._first.mul_(0.9)
            self._second.mul_(0.999)
            self._move(rate)

    def _move(self, rate: float) -> None:
        self._steps += 1
        torch.sqrt(self._second, out=self._scale)
        self._scale.div_((1 - 0.999**self._steps) ** 0.5).add_(1e-8)
        self.parameter.addcdiv_(self._first, self._scale, value=-rate / (1 - 0.9**self._steps))


def generators(seeds: np.ndarray, *stream: int) -> list[np.random.Generator]:
    """One generator for each repetition; streams of one seed are independent."""
    return [np.random.default_rng([int(seed) & (2**64 - 1), *stream]) for seed in seeds]


@dataclass(frozen=True)
class Plan:
    """How an epoch is cut. The rows of the blocks (one for each set of points) lie one below the other.

    Attributes:
        sizes: points of each block.
        layout: ``(N,)``, rows, batch after batch and within a batch block after block.
        counts: for each batch the number of rows of each block.
    """

    sizes: tuple[int, ...]
    layout: np.ndarray
    counts: tuple[tuple[int, ...], ...]

    def batches(self) -> Iterator[slice]:
        """The places of each batch in ``layout``."""
        for begin, end in pairwise(np.cumsum([0, *map(sum, self.counts)]).tolist()):
            yield slice(begin, end)

    def order(self, rngs: Sequence[np.random.Generator], shuffle: bool) -> np.ndarray:
        """Rows of one epoch, ``(R, N)``. Blocks of one size are shuffled alike, as in the published code."""
        if not shuffle:
            return np.tile(self.layout, (len(rngs), 1))
        start = np.cumsum([0, *self.sizes])[:-1]
        alike = len(set(self.sizes)) == 1
        drawn = [[rng.permutation(size) for size in (self.sizes[:1] if alike else self.sizes)] for rng in rngs]
        if alike:
            rows = (np.array(drawn) + start[:, None]).reshape(len(rngs), -1)
        else:
            rows = np.array([np.concatenate([a + b for a, b in zip(start, each, strict=True)]) for each in drawn])
        return rows[:, self.layout]


def plan(sizes: Sequence[int], batch: int, reference: int) -> Plan:
    """Batches of ``batch`` points of a block of ``reference`` points, and of the other blocks in proportion.

    Where ``batch`` times the ratio is not whole, batches are cut so that an epoch still sees every point once. The
    last batch may be short.
    """
    steps = -(-reference // batch)
    cuts = np.array([[min(k * batch * size // reference, size) for k in range(steps)] + [size] for size in sizes])
    start = np.cumsum([0, *sizes])[:-1]
    layout = [
        np.arange(cut[k], cut[k + 1]) + first for k in range(steps) for first, cut in zip(start, cuts, strict=True)
    ]
    counts = tuple(tuple(int(count) for count in row) for row in np.diff(cuts, axis=1).T)
    return Plan(tuple(sizes), np.concatenate(layout), counts)


def tune(data: Columns, tuning: Tuning, rngs: Sequence[np.random.Generator]) -> dict[str, torch.Tensor]:
    """Kernel parameters, ``(R, p)`` by name, after ``epochs`` of Adam on mini-batches.

    The objective is the sum over tasks of ``-log N(y_t; 0, k0 + c + lambda I)`` on the batch alone, with a mean of
    zero. ``lambda`` is 1e-6, or if the condition number is above 1e6 the smallest power of ten, from 1e-5 on, that
    brings it below. The rate is multiplied by 0.99 before every step, so that ``log nu`` moves by hardly more
    than ``99 rate`` however many steps there are. What is returned is where the last gradient was
    taken, one step behind the last update, as in the published code.

    References:
        Sun, Barp and Briol, Appendix D.2, whose display lacks the inverse.
    """
    repetitions, _, dim = data.points.shape
    params = {name: tensor(value).repeat(repetitions, 1) for name, value in tuning.chosen.defaults(dim).items()}
    if "log_lengthscale" not in params:
        return params
    log_nu = torch.full_like(params["log_lengthscale"], float(np.log(tuning.nu)))
    used, optimiser, rate = log_nu.clone(), Adam(log_nu), tuning.rate
    cut = plan(data.blocks, tuning.batch, min(data.blocks))
    for epoch in range(tuning.epochs):
        order = torch.tensor(cut.order(rngs, shuffle=epoch > 0), device=log_nu.device)
        for batch, counts in zip(cut.batches(), cut.counts, strict=True):
            rate *= _DECAY
            used = log_nu.clone()
            pieces = order[:, batch].split(counts, 1)
            groups = [torch.stack(pieces, 1)] if len(set(counts)) == 1 else [piece[:, None] for piece in pieces]
            slopes = [_gradient(data, tuning, params, used, rows) for rows in groups]
            optimiser.step(torch.stack(slopes).sum(0), rate)
    return params | {"log_lengthscale": 0.5 * used}


def _gradient(data: Columns, tuning: Tuning, params, log_nu: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The gradient of the objective in ``log nu``, ``(R, p)``; ``rows (R, A, b)`` are ``A`` blocks of equal size."""
    which = torch.arange(rows.shape[0], device=rows.device)[:, None, None]
    points, scores, values = data.points[which, rows], data.own[which, rows], data.values[which, rows]
    if not data.shared:
        values = values.sum(-1, keepdim=True)  # the one task that the row is an observation of
    with torch.enable_grad():
        leaf = log_nu.clone().requires_grad_()
        here = {name: value[:, None] for name, value in params.items()} | {"log_lengthscale": 0.5 * leaf[:, None]}
        k = tuning.chosen.stein(here, points, points, scores, scores) + tuning.constant
    spectrum, vectors = torch.linalg.eigh(k.detach())
    spectrum = _regularised(spectrum)[..., None, :]
    inverse = (vectors / spectrum) @ vectors.mT
    weights = inverse @ values
    slope = 0.5 * (values.shape[-1] * inverse - weights @ weights.mT)
    return torch.autograd.grad(k, leaf, slope)[0]


def _regularised(spectrum: torch.Tensor) -> torch.Tensor:
    """Eigenvalues ``(..., b)`` in rising order, plus ``lambda``."""
    least, most = spectrum[..., :1].clamp_min(0), spectrum[..., -1:]
    needed = (most - _CONDITION * least) / (_CONDITION - 1)
    powers = torch.ceil(torch.log10(needed.clamp_min(1e-5)))
    return spectrum + torch.where(needed > 0, 10.0**powers, 1e-6)
