"""Objective (10), of the function, the constants and the task relationship ``B`` together."""

from dataclasses import dataclass, replace

import torch

from lowvar.integrals.exact.products import times


@dataclass(frozen=True)
class TaskObjective:
    """``sum_t 1/m_t |f_t - g_t - beta_t|^2 + penalty |g|^2 + |B|^2``, for standardised values.

    The norms are those of the space of ``B k0``, whose mean diagonal is that of ``B``, and Frobenius'. For given ``B``
    the first two terms are least at the generalised least squares fit with ``M = K + penalty diag(m_t)``; there they
    are ``penalty y'Py``.

    Attributes:
        matrix: ``k0 (R, M, M)``, each point with its own target's score, with a mean diagonal of one.
        y: ``(R, M)``.
        member: ``(M, T)``.
        penalty: ``lambda``.
    """

    matrix: torch.Tensor
    y: torch.Tensor
    member: torch.Tensor
    penalty: float

    @property
    def noise(self) -> torch.Tensor:
        """``penalty m_t`` of every row, ``(1, M)``."""
        return self.penalty * (self.member @ self.member.sum(0))[None]

    def pick(self, which: torch.Tensor) -> "TaskObjective":
        """Of these repetitions alone."""
        return replace(self, matrix=self.matrix[which], y=self.y[which])

    def covariance(self, B: torch.Tensor) -> torch.Tensor:
        """``M (R, M, M)``."""
        return self.matrix * (self.member @ B @ self.member.mT) + torch.diag_embed(self.noise)

    def best(self, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective at the best function and constants, and ``A' k0 A`` there.

        ``A (M, T)`` has the weight of each value in the column of its task. The function's coefficients are ``A B``,
        its squared norm is the trace of ``B A' k0 A``, and ``-penalty A' k0 A`` is the derivative in ``B`` of what the
        first two terms of the objective are.

        Args:
            B: ``(R, T, T)``, positive semi-definite.

        Returns:
            ``(R,)``, infinite where ``M`` is not positive definite, and ``(R, T, T)``.
        """
        factor, failed = torch.linalg.cholesky_ex(self.covariance(B))
        design = self.member.expand(len(B), -1, -1)
        half = torch.linalg.solve_triangular(factor, torch.cat([design, self.y[:, :, None]], 2), upper=False)
        q = torch.linalg.qr(half[:, :, :-1]).Q
        left = half[:, :, -1:] - times(q, times(q.mT, half[:, :, -1:]))
        weights = torch.linalg.solve_triangular(factor.mT, left, upper=True)
        value = self.penalty * left.square().sum((1, 2)) + B.square().sum((1, 2))
        spread = weights * self.member
        bad = (failed > 0) | ~value.isfinite()
        return torch.where(bad, torch.inf, value), spread.mT @ self.matrix @ spread


def relation_of(squares: torch.Tensor, penalty: float) -> torch.Tensor:
    """The ``B`` that minimises ``penalty trace(B^-1 S) + |B|^2``: of ``S``'s eigenvectors, with ``2 b^3 = penalty s``.

    Args:
        squares: ``S (R, T, T)``, positive semi-definite.
        penalty: ``lambda``.
    """
    values, vectors = torch.linalg.eigh(squares)
    return vectors * (penalty * values.clamp(min=0) / 2).pow(1 / 3)[:, None] @ vectors.mT
