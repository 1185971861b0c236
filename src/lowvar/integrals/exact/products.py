"""Matrix products that round alike for any number of repetitions."""

import torch


def times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left (R, n, k) @ right (R, k, c)``, one column being multiplied as two.

    Libraries have another routine for a single matrix times a single column, whose last digits differ, and a search for
    hyper-parameters makes more digits of them: a repetition's result would depend on how many others there are.
    """
    if right.shape[-1] > 1:
        return left @ right
    return (left @ torch.cat([right, right], -1))[..., :1]


def pulled_back(z: torch.Tensor, *pairs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Vector-Jacobian product in ``z``: of the derivatives ``slope`` in ``of``, summed over the pairs ``(of, slope)``.

    What does not depend on ``z``, because it was given and is not learnt, adds nothing.
    """
    moving = [(of, slope) for of, slope in pairs if of.requires_grad]
    return torch.autograd.grad([of for of, _ in moving], z, [slope for _, slope in moving])[0]
