"""Neural control variates: one small network for all tasks."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch

from lowvar.errors import UserError, positive, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples
from lowvar.integrals.regression import effective_sizes
from lowvar.integrals.stacked import stack
from lowvar.registry import declares
from lowvar_studies.integrators.additive import Relation, in_one_unit, row_sums
from lowvar_studies.integrators.columns import numpy, tensor
from lowvar_studies.integrators.descent import Adam

Weights = list[torch.Tensor]


@declares(packages=("torch",), extra="torch")
def neural(
    hidden: Sequence[int] = (20,),
    steps: int = 300,
    rate: float = 0.03,
    penalty: float = 1e-4,
    folds: int = 1,
    B: Relation | None = None,
) -> Integrator:
    """``f_t = beta_t + s_t (div phi + phi . l_t)`` with a tanh network ``phi: R^d -> R^d`` for all tasks, eq. (13).

    ``s_t`` is the sum of row ``t`` of ``B``, which is all that the paper's construction sees of it: see ``additive``.
    Adam minimises ``sum_t (1 / m_t) sum_j (f_t - g_t - beta_t)^2 + penalty |theta|^2`` over all points at once, with
    ``beta`` at its optimum for each ``theta``, for points and values of unit spread, its rate falling to zero as a
    cosine.

    Args:
        hidden: widths of one or two hidden layers.
        steps: of Adam.
        rate: of Adam, at the first step.
        penalty: of the squared Euclidean norm of all weights.
        folds: 1 fits and averages over the same points, as the paper does: the standard error, from residuals that
            were fitted, is then too small. With more, each point's residual is of a network that has not seen it:
            the estimate is unbiased and its error nearly fair, for as many times the work, but networks that saw fewer
            points leave more variance.
        B: ``(T, T)``, symmetric; if not given, all tasks have the same scale.

    Returns:
        An integrator; its seeds draw the networks' first weights. It warns of ``few_points`` where one network has
        more weights than half of the points that it is fitted and averaged over.

    Raises:
        UserError: an option out of range; when it integrates, a ``B`` that does not fit, or fewer points than folds.

    References:
        Sun, Barp and Briol, Appendix C.2; Wan, Zhong, Gao, Hernandez-Lobato and Turner, "Neural control variates for
        Monte Carlo variance reduction", 2019; Si, Oates, Duncan, Carin and Briol, "Scalable control variates for
        Monte Carlo methods via stochastic optimization", 2021.
    """
    hidden = tuple(hidden)
    if len(hidden) not in (1, 2) or not all(isinstance(width, int) and width >= 1 for width in hidden):
        raise UserError(f"hidden {hidden} of neural: it must be the widths of one or two layers")
    whole("steps", steps, 0)
    whole("folds", folds, 1)
    positive("rate", rate, or_zero=True)
    positive("penalty", penalty, or_zero=True)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        scale, data = tensor(row_sums(B, samples.tasks, "neural")), stack(samples)
        if min(samples.sizes) < 2 * folds - 1:
            raise UserError(f"{folds} folds of neural: a task has {min(samples.sizes)} points, too few to split")
        y, unit, member = map(tensor, (*in_one_unit(data), data.member))
        left_out = _folds(samples.sizes, folds).to(y)
        weight = (1 - left_out if folds > 1 else left_out)[:, :, None] * member
        weight = (weight / weight.sum(1, keepdim=True)).sum(2)  # (folds, M): one over the task's points

        def each_fold(array: torch.Tensor) -> torch.Tensor:
            return array.repeat_interleave(folds, 0)

        weights = [each_fold(start) for start in start_weights(samples.dim, hidden, [int(seed) for seed in seeds])]
        x, scores, rows = each_fold(tensor(data.x)), each_fold(tensor(data.scores)), member @ scale
        weight = weight.repeat(len(y), 1)

        def loss() -> torch.Tensor:
            left = each_fold(y) - rows * langevin(weights, x, scores)
            left = left - ((left * weight) @ member) @ member.mT
            return (weight * left.square()).sum() + penalty * sum(w.square().sum() for w in weights)

        _descend(loss, weights, steps, rate)
        residual = y - ((rows * langevin(weights, x, scores)).unflatten(0, (-1, folds)) * left_out).sum(1)
        sizes = member.sum(0)
        beta = residual @ member / sizes
        residual = residual - beta @ member.mT
        effective = effective_sizes(numpy(residual)[:, :, None], numpy(member), samples.chain)[:, :, 0]
        error = (residual.square() @ member / (sizes - 1) / tensor(effective)).sqrt()
        value = data.y_shift + numpy(unit * beta)
        few = folds == 1 and sum(w[0].numel() for w in weights) > y.shape[1] / 2

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            found = langevin(weights, *(each_fold(tensor(array)) for array in data.points(points, scores)))
            return (found.unflatten(0, (-1, folds)).mean(1) * scale[task] * unit).cpu().numpy() + value[:, task, None]

        return Integrals(
            value=value,
            standard_error=(unit * error).cpu().numpy(),
            condition=np.full(len(value), np.nan),
            flags={"few_points": np.full(len(value), few)},
            info={"effective": effective},
            fitted=fitted,
        )

    return Integrator("neural", IntegralProperties(transfers=True, exact_on="nothing", random=True), integrate)


def _folds(sizes: Sequence[int], folds: int) -> torch.Tensor:
    """Which points each fold leaves out, ``(folds, M)``: successive ones, as neighbours in a chain are alike."""
    fold = torch.cat([torch.arange(m, device="cpu") * folds // m for m in sizes])
    return fold == torch.arange(folds, device="cpu")[:, None]


def _descend(loss: Callable[[], torch.Tensor], weights: Weights, steps: int, rate: float) -> None:
    """Minimises a sum over networks, in place: none of them sees another's gradient."""
    moments = [Adam(w) for w in weights]
    for step in range(steps):
        for w in weights:
            w.requires_grad_()
        with torch.enable_grad():
            gradients = torch.autograd.grad(loss(), weights)
        for w, adam, gradient in zip(weights, moments, gradients, strict=True):
            w.requires_grad_(False)
            adam.step(gradient, rate * 0.5 * (1 + math.cos(math.pi * step / steps)))


def start_weights(dim: int, hidden: Sequence[int], seeds: Sequence[int]) -> Weights:
    """Weights and biases, layer by layer, of one network for each seed.

    Normal with variance one over the number of inputs, without biases; zero in the last layer, so that a network is
    zero to begin with. On torch's default device, drawn on the CPU: seeds mean the same everywhere.

    Args:
        dim: ``d``.
        hidden: widths of one or two hidden layers.
        seeds: for each network.

    Returns:
        ``[(N, h_1, d), (N, h_1), ..., (N, d, h_last), (N, d)]``.
    """
    widths = [dim, *hidden]
    made = []
    for seed in seeds:
        generator = torch.Generator("cpu").manual_seed(int(seed))
        draw = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
        made.append([torch.randn(b, a, **draw) / a**0.5 for a, b in pairwise(widths)])
    weights: Weights = []
    for layer in zip(*made, strict=True):
        matrix = torch.stack(layer).to(torch.get_default_device())
        weights += [matrix, torch.zeros_like(matrix[:, :, 0])]
    return [*weights, weights[0].new_zeros(len(made), dim, hidden[-1]), weights[0].new_zeros(len(made), dim)]


def langevin(weights: Weights, x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """``div phi + phi . l (N, n)`` of ``N`` networks at ``x (N, n, d)``: its mean under the target of ``l`` is zero.

    The Jacobian of ``phi`` is ``V D_2 W_2 D_1 W_1`` with ``D`` diagonal. Its trace is a sum over hidden units, or over
    pairs of them: ``sum_ij d_2i d_1j W_2ij (W_1 V)_ji``. No Jacobian is formed.
    """
    *layers, last, shift = weights
    inner = torch.tanh(x @ layers[0].mT + layers[1][:, None])
    slope = 1 - inner * inner
    if len(layers) == 2:
        trace = (slope @ (layers[0] * last.mT).sum(2)[:, :, None])[:, :, 0]
    else:
        outer = torch.tanh(inner @ layers[2].mT + layers[3][:, None])
        paths = layers[2] * (layers[0] @ last).mT
        trace = ((1 - outer * outer) * (slope @ paths.mT)).sum(2)
        inner = outer
    return trace + ((inner @ last.mT + shift[:, None]) * scores).sum(2)
