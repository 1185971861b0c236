"""Hyper-parameters of a fit, and their ranges."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

LENGTHSCALE = 1e-2, 1e5  # bounds, in standard deviations of the points
NUGGET = 1e-10, 1.0  # bounds, relative to the mean diagonal of the kernel matrix
TREND = 1e-8, 1e4  # bounds, relative to the scores' part of the kernel
OTHER = 1e-6, 1e6  # bounds of other parameters of kernels
FACTOR = 1e3  # bound of the entries of B's factor, whose first is one
LEAST_DIAGONAL = 1e-8
LIKELY = 100.0, 3.0  # of a lengthscale beforehand: median in standard deviations, spread of the logarithm


@dataclass(frozen=True)
class Hyper:
    """Hyper-parameters of ``R`` repetitions.

    Attributes:
        kernel: the kernel's parameters, each ``(R, p)``.
        nugget: ``(R,)``, relative to the mean diagonal.
        factor: ``(R, q, q)``, ``B = factor factor'``; its scale has no meaning.
    """

    kernel: dict[str, torch.Tensor]
    nugget: torch.Tensor
    factor: torch.Tensor

    def pick(self, which: torch.Tensor | slice) -> "Hyper":
        """These repetitions alone."""
        return Hyper({name: p[which] for name, p in self.kernel.items()}, self.nugget[which], self.factor[which])

    def put(self, which: torch.Tensor, some: "Hyper") -> "Hyper":
        """With those of ``some`` in the place of the repetitions ``which``."""
        kernel = {name: p.index_copy(0, which, some.kernel[name]) for name, p in self.kernel.items()}
        nugget = self.nugget.index_copy(0, which, some.nugget)
        return Hyper(kernel, nugget, self.factor.index_copy(0, which, some.factor))

    @staticmethod
    def of(several: "Sequence[Hyper]") -> "Hyper":
        """Those of all, one after the other."""
        kernel = {name: torch.cat([one.kernel[name] for one in several]) for name in several[0].kernel}
        return Hyper(kernel, torch.cat([one.nugget for one in several]), torch.cat([one.factor for one in several]))
