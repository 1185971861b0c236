"""Adam as PyTorch defines it, for tensors that hold many repetitions and gradients computed by hand."""

import torch


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
