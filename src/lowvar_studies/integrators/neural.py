"""Neural control variates: one small network for all tasks."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from lowvar.errors import UserError, positive, whole
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.parametric.regression import effective_sizes
from lowvar.integrals.parametric.sharing import Relation, in_one_unit, row_sums
from lowvar.integrals.samples import Samples
from lowvar.integrals.stacked import numpy, stack, tensor
from lowvar.registry import declares
from lowvar_studies.integrators.adam import Adam
from lowvar_studies.integrators.network import Weights, langevin, start_weights


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
        scale, data = row_sums(B, samples.tasks, "neural"), stack(samples)
        if min(samples.sizes) < 2 * folds - 1:
            raise UserError(f"{folds} folds of neural: a task has {min(samples.sizes)} points, too few to split")
        (y, unit), member = in_one_unit(data), data.member
        left_out = _folds(samples.sizes, folds).to(y)
        weight = (1 - left_out if folds > 1 else left_out)[:, :, None] * member
        weight = (weight / weight.sum(1, keepdim=True)).sum(2)  # (folds, M): one over the task's points

        def each_fold(array: torch.Tensor) -> torch.Tensor:
            return array.repeat_interleave(folds, 0)

        weights = [each_fold(start) for start in start_weights(samples.dim, hidden, [int(seed) for seed in seeds])]
        x, scores, rows = each_fold(data.x), each_fold(data.scores), member @ scale
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
        value = (data.y_shift + unit * beta).cpu().numpy()
        few = folds == 1 and sum(w[0].numel() for w in weights) > y.shape[1] / 2

        def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
            found = langevin(weights, *(each_fold(array) for array in data.points(points, scores)))
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
