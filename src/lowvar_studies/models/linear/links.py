"""Links: maps from linear predictors to log-likelihoods, ``log p(y_n | a_n)``."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.core.backend import Backend
from lowvar_studies.models.linear import glm
from lowvar_studies.models.linear.designs import rows


@dataclass(frozen=True, eq=False)
class Bernoulli:
    """``log p = log sigmoid(sign_n a_n)`` with one predictor; ``sign (N,)`` is 1 or -1.

    All links have these methods; ``a`` and ``t`` are ``(B, C)``, ``index`` is ``(B,)``, or None for all rows.
    """

    backend: Backend
    sign: Any

    def log(self, a, index):
        """``log p(y_n | a_n)``, ``(B,)``, nats."""
        xp, margin = self.backend.xp, self._sign(index) * a[:, 0]
        return -xp.logaddexp(-margin, xp.zeros_like(margin))

    def residual(self, a, index):
        """The gradient of ``-log p`` in the predictors, ``(B, C)``."""
        sign = self._sign(index)
        return (-sign * self._sigmoid(-sign * a[:, 0]))[:, None]

    def curvature(self, a, t, index):
        """The Hessian of ``-log p`` times ``t``, ``(B, C)``."""
        return self.curvature_diagonal(a, index) * t

    def curvature_diagonal(self, a, index):
        """Its diagonal, ``(B, C)``."""
        p = self._sigmoid(a)
        return p * (1 - p)

    def expected_log(self, mean, sd, index):
        """``E log p`` for predictors ``N(mean, sd^2)``, ``(B,)``, by quadrature."""
        return glm.expected_log_sigmoid(self.backend, self._sign(index) * mean[:, 0], sd[:, 0])

    def _sign(self, index):
        return rows(self.backend, self.sign, index)

    def _sigmoid(self, a):
        xp = self.backend.xp
        return 0.5 * (1 + xp.tanh(0.5 * a))


@dataclass(frozen=True, eq=False)
class Categorical:
    """``log p = log softmax(a_n)[y_n]`` with labels ``label (N,)`` in ``0 .. classes - 1``; see ``Bernoulli``."""

    backend: Backend
    label: Any
    classes: int

    def log(self, a, index):
        """``log p(y_n | a_n)``, ``(B,)``, nats."""
        xp = self.backend.xp
        shifted = self._below_the_largest(a)
        return xp.sum(self._one_hot(a, index) * shifted, axis=1) - xp.log(xp.sum(xp.exp(shifted), axis=1))

    def residual(self, a, index):
        """The gradient of ``-log p`` in the predictors, ``(B, C)``."""
        return self._softmax(a) - self._one_hot(a, index)

    def curvature(self, a, t, index):
        """The Hessian of ``-log p`` times ``t``, ``(B, C)``."""
        p = self._softmax(a)
        return p * (t - self.backend.xp.sum(p * t, axis=1, keepdims=True))

    def curvature_diagonal(self, a, index):
        """Its diagonal, ``(B, C)``."""
        p = self._softmax(a)
        return p * (1 - p)

    def expected_log(self, mean, sd, index):
        """``E log p`` for independent predictors ``N(mean, sd^2)``, ``(B,)``."""
        return glm.expected_log_softmax(self.backend, mean, sd, rows(self.backend, self.label, index))

    def _one_hot(self, a, index):
        xp = self.backend.xp
        label = rows(self.backend, self.label, index)
        classes = self.backend.asarray(np.arange(self.classes, dtype=np.int32))
        return xp.astype(label[:, None] == classes[None, :], a.dtype)

    def _softmax(self, a):
        xp = self.backend.xp
        e = xp.exp(self._below_the_largest(a))
        return e / xp.sum(e, axis=1, keepdims=True)

    def _below_the_largest(self, a):
        # The largest is a constant: its derivative would look for the predictors that equal it, and a compiler that
        # computes them twice, with other roundings, finds none and divides by zero.
        return a - self.backend.stop_gradient(self.backend.xp.max(a, axis=1, keepdims=True))
