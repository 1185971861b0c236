"""A batch of small tanh networks ``R^d -> R^d`` and their divergences, by hand."""

from collections.abc import Sequence
from itertools import pairwise

import torch

Weights = list[torch.Tensor]


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
