"""Matrix products that round alike for any number of repetitions."""

import torch


def times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left @ right``, one column being multiplied as two.

    Libraries have another routine for a single matrix times a single column, whose last digits differ, and a search for
    hyper-parameters makes more digits of them: a repetition's result would depend on how many others there are.

    Args:
        left: ``(R, n, k)``.
        right: ``(R, k, c)``.
    """
    if right.shape[-1] > 1:
        return left @ right
    return (left @ torch.cat([right, right], -1))[..., :1]
