"""Models whose likelihood depends on ``z`` through a few linear predictors per data row, with fused kernels.

``a_n = X_n z`` with ``C`` predictors: generalised linear models, paired comparisons, rows of grouped regressions.
A design defines ``X_n``, a link defines ``log p(y_n | a_n)``. Gradients are then two products with ``X``. Under a
mean-field guide, the predictors are Gaussian with known mean and variance, and independent if no two share an entry
of ``z``, so the ELBO is a sum of ``C``-dimensional integrals.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.backends import Backend
from lowvar.problems import glm
from lowvar.problems.split import HeldOut, test_part
from lowvar.problems.variational import VariationalProblem


def rows(backend, array, index):
    """Rows ``index`` of ``array``; all of them for None."""
    return array if index is None else backend.take(array, index)


@dataclass(frozen=True, eq=False)
class Dense:
    """``a_n = x_n Z`` with ``z`` the entries of ``Z (d, classes)`` in their order.

    All designs have these methods; ``index`` is ``(B,)``, or None for all rows.
    """

    backend: Backend
    x: Any
    classes: int = 1

    @property
    def dim(self) -> int:
        """Entries of ``z``."""
        return self.x.shape[1] * self.classes

    def forward(self, z, index):
        """The predictors ``X_n z``, ``(B, C)``."""
        return rows(self.backend, self.x, index) @ self._matrix(z)

    def back(self, r, index):
        """``sum_n X_n' r_n`` for ``r (B, C)``, ``(dim,)``."""
        return self.backend.xp.reshape(rows(self.backend, self.x, index).T @ r, (-1,))

    def forward_squares(self, v, index):
        """``(X_n o X_n) v``, ``(B, C)``: the predictors' variances if ``v`` holds the latent ones."""
        x = rows(self.backend, self.x, index)
        return (x * x) @ self._matrix(v)

    def back_squares(self, r, index):
        """``sum_n (X_n o X_n)' r_n``, ``(dim,)``."""
        x = rows(self.backend, self.x, index)
        return self.backend.xp.reshape((x * x).T @ r, (-1,))

    def forward_by_row(self, z, index):
        """``X_n z_n`` for ``z (B, dim)``, ``(B, C)``."""
        x = rows(self.backend, self.x, index)
        z = self.backend.xp.reshape(z, (z.shape[0], -1, self.classes))
        return (x[:, None, :] @ z)[:, 0, :]  # a product keeps XLA from fusing it into its consumers, as it would a sum

    def _matrix(self, z):
        return self.backend.xp.reshape(z, (-1, self.classes))


@dataclass(frozen=True, eq=False)
class Affine:
    """``a_n = x_n Z + b`` with ``z`` some ``start`` entries of other kinds, then ``Z``, then ``b``; see ``Dense``.

    Attributes:
        inner: the design of ``Z``.
        start: number of entries of ``z`` before ``Z``, which the design ignores.
        intercept: whether there is a ``b``, with an entry for each predictor.
    """

    inner: Dense
    start: int = 0
    intercept: bool = True

    @property
    def backend(self) -> Backend:
        """The array library."""
        return self.inner.backend

    @property
    def dim(self) -> int:
        """Entries of ``z``."""
        return self._end + self.inner.classes * self.intercept

    def forward(self, z, index):
        """The predictors, ``(B, C)``."""
        return self._plus(self.inner.forward(z[self.start : self._end], index), z[None, self._end :])

    def back(self, r, index):
        """``sum_n X_n' r_n``, ``(dim,)``."""
        return self._around(self.inner.back(r, index), r)

    def forward_squares(self, v, index):
        """The predictors' variances, ``(B, C)``."""
        return self._plus(self.inner.forward_squares(v[self.start : self._end], index), v[None, self._end :])

    def back_squares(self, r, index):
        """``sum_n (X_n o X_n)' r_n``, ``(dim,)``."""
        return self._around(self.inner.back_squares(r, index), r)

    def forward_by_row(self, z, index):
        """The predictors, row ``n`` from its own ``z_n``."""
        return self._plus(self.inner.forward_by_row(z[:, self.start : self._end], index), z[:, self._end :])

    @property
    def _end(self):
        return self.start + self.inner.dim

    def _plus(self, a, b):
        return a + b if self.intercept else a

    def _around(self, inside, r):
        xp = self.backend.xp
        parts = [xp.zeros((self.start,), dtype=inside.dtype), inside]
        return xp.concat([*parts, xp.sum(r, axis=0)] if self.intercept else parts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """``a_n = z[first_n] - z[second_n]``: one predictor, the difference of two entries; see ``Dense``."""

    backend: Backend
    first: Any
    second: Any
    dim: int

    def forward(self, z, index):
        """The differences, ``(B, 1)``."""
        take, (first, second) = self.backend.take, self._ends(index)
        return (take(z, first) - take(z, second))[:, None]

    def back(self, r, index):
        """Each row's ``r`` added to its first entry and subtracted from its second."""
        first, second = self._ends(index)
        zero = self.backend.xp.zeros((self.dim,), dtype=r.dtype)
        return self.backend.add_rows(self.backend.add_rows(zero, first, r[:, 0]), second, -r[:, 0])

    def forward_squares(self, v, index):
        """The sums of both entries, ``(B, 1)``; zero if they are the same entry, whose difference is zero."""
        take, (first, second) = self.backend.take, self._ends(index)
        both = take(v, first) + take(v, second)
        return self.backend.xp.where(first != second, both, self.backend.xp.zeros_like(both))[:, None]

    def back_squares(self, r, index):
        """Each row's ``r`` added to both of its entries, if they differ."""
        first, second = self._ends(index)
        zero = self.backend.xp.zeros((self.dim,), dtype=r.dtype)
        r = self.backend.xp.where(first != second, r[:, 0], self.backend.xp.zeros_like(r[:, 0]))
        return self.backend.add_rows(self.backend.add_rows(zero, first, r), second, r)

    def forward_by_row(self, z, index):
        """The differences, row ``n`` from its own ``z_n``."""
        first, second = self._ends(index)
        pick = self.backend.vmap(lambda z, first, second: z[first] - z[second])
        return pick(z, first, second)[:, None]

    def _ends(self, index):
        return rows(self.backend, self.first, index), rows(self.backend, self.second, index)


@dataclass(frozen=True, eq=False)
class Grouped:
    """``a_n = x_n Z_g`` with the matrix ``Z_g (d, classes)`` of the row's group ``g``; see ``Dense``.

    ``z[start:start + groups d classes]`` are the entries of all ``Z_g``; the design ignores the others.
    """

    backend: Backend
    x: Any
    group: Any
    groups: int
    classes: int
    start: int
    dim: int

    def forward(self, z, index):
        """The predictors, ``(B, C)``."""
        x, group = self._of(index)
        return (x[:, None, :] @ self.backend.take(self._matrices(z), group))[:, 0, :]

    def back(self, r, index):
        """``sum_n X_n' r_n``, ``(dim,)``."""
        x, group = self._of(index)
        return self._added(group, x[:, :, None] * r[:, None, :])

    def forward_squares(self, v, index):
        """The predictors' variances, ``(B, C)``."""
        x, group = self._of(index)
        return ((x * x)[:, None, :] @ self.backend.take(self._matrices(v), group))[:, 0, :]

    def back_squares(self, r, index):
        """``sum_n (X_n o X_n)' r_n``, ``(dim,)``."""
        x, group = self._of(index)
        return self._added(group, (x * x)[:, :, None] * r[:, None, :])

    def forward_by_row(self, z, index):
        """The predictors, row ``n`` from its own ``z_n``."""
        x, group = self._of(index)
        own = self.backend.vmap(lambda z, group: self.backend.take(self._matrices(z), group[None])[0])(z, group)
        return (x[:, None, :] @ own)[:, 0, :]

    def _of(self, index):
        return rows(self.backend, self.x, index), rows(self.backend, self.group, index)

    @property
    def _end(self):
        return self.start + self.groups * self.x.shape[1] * self.classes

    def _matrices(self, z):
        return self.backend.xp.reshape(z[self.start : self._end], (self.groups, -1, self.classes))

    def _added(self, group, values):
        xp = self.backend.xp
        zero = xp.zeros((self.groups, self.x.shape[1], self.classes), dtype=values.dtype)
        inside = xp.reshape(self.backend.add_rows(zero, group, values), (-1,))
        before = xp.zeros((self.start,), dtype=values.dtype)
        after = xp.zeros((self.dim - self._end,), dtype=values.dtype)
        return xp.concat([before, inside, after])


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
        """The gradient of ``-log p`` for the predictors, ``(B, C)``."""
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
        shifted = a - xp.max(a, axis=1, keepdims=True)
        return xp.sum(self._one_hot(a, index) * shifted, axis=1) - xp.log(xp.sum(xp.exp(shifted), axis=1))

    def residual(self, a, index):
        """The gradient of ``-log p`` for the predictors, ``(B, C)``."""
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
        e = xp.exp(a - xp.max(a, axis=1, keepdims=True))
        return e / xp.sum(e, axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class LinearProblem(VariationalProblem):
    """A ``VariationalProblem`` whose likelihood depends on ``z`` through linear predictors.

    Attributes:
        design: maps ``z`` to predictors and back: ``Dense``, ``Affine``, ``Pairs`` or ``Grouped``.
        link: maps predictors to ``log p``: ``Bernoulli`` or ``Categorical``.
    """

    design: Any = None
    link: Any = None

    def __post_init__(self):
        if self.exact_elbo is None:
            object.__setattr__(self, "exact_elbo", self.quadrature_elbo)

    def _prior_gradient_and_hvp(self, z, direction):
        return self.backend.jvp(self.prior_gradient, (z,), (direction,))

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``."""
        residual = self.link.residual(self.design.forward(z, index), index)
        return self.N * self.design.back(weight[:, None] * residual, index) + self.prior_gradient(z)

    def gradient_and_hvp(self, z, direction, index, weight):
        """The gradient of ``energy`` and its Hessian times ``direction``, both ``(dim,)``."""
        forward, back = self.design.forward, self.design.back
        a, t = forward(z, index), forward(direction, index)
        prior, prior_hvp = self._prior_gradient_and_hvp(z, direction)
        gradient = self.N * back(weight[:, None] * self.link.residual(a, index), index) + prior
        return gradient, self.N * back(weight[:, None] * self.link.curvature(a, t, index), index) + prior_hvp

    def approximation_by_row(self, points, noise):
        """As in ``Objective``; without storing the rows' gradients separately."""
        xp, index = self.backend.xp, noise.index
        z, step = points["mu"], points["sigma"] * xp.mean(noise.eps, axis=0)[None, :]
        a, t = self.design.forward_by_row(z, index), self.design.forward_by_row(step, index)
        prior, prior_hvp = self.backend.vmap(self._prior_gradient_and_hvp)(z, step)
        mean, deviation = (
            self.N * self.design.back(noise.weight[:, None] * r, index) + noise.weight @ of_prior
            for r, of_prior in ((self.link.residual(a, index), prior), (self.link.curvature(a, t, index), prior_hvp))
        )
        return {"mu": mean}, {"mu": deviation}

    def approximation_mean_by_row(self, points, index, weight):
        """As in ``Objective``; without storing the rows' gradients separately."""
        a = self.design.forward_by_row(points["mu"], index)
        prior = self.backend.vmap(self.prior_gradient)(points["mu"])
        return {"mu": self.N * self.design.back(weight[:, None] * self.link.residual(a, index), index) + weight @ prior}

    def likelihood_at_rows(self, z, step, index, weight):
        """As in ``VariationalProblem``; without storing the rows' gradients separately."""
        a, t = self.design.forward_by_row(z, index), self.design.forward(step, index)
        gradient = self.design.back(weight[:, None] * self.link.residual(a, index), index)
        return self.N * gradient, self.N * self.design.back(weight[:, None] * self.link.curvature(a, t, index), index)

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)``, ``(dim,)``: a pass over all rows."""
        residual = self.link.residual(self.design.forward(z, None), None)
        return self.design.back(residual, None) + self.prior_gradient(z)

    def full_energy(self, z):
        """``-log p(x, z)``, nats: a pass over all rows."""
        return -self.backend.xp.sum(self.link.log(self.design.forward(z, None), None)) - self.log_prior(z)

    def expected_log_likelihood(self, params):
        """``E log p(x | z)`` under the guide, nats, from the predictors' means and standard deviations."""
        xp = self.backend.xp
        mean = self.design.forward(params["mu"], None)
        variance = self.design.forward_squares(xp.exp(2 * params["log_sigma"]), None)
        sd = xp.sqrt(variance + 1e-30)
        take = self.backend.take

        def add(total, chunk):
            index = chunk["index"]
            values = self.link.expected_log(take(mean, index), take(sd, index), index)
            return total + self.N * xp.sum(chunk["weight"] * values)

        return self.backend.scan_or_loop(add, 0 * mean[0, 0], self.chunks)

    def quadrature_elbo(self, params):
        """The ELBO, nats, as accurate as ``link.expected_log``."""
        prior: Any = self.expected_log_prior
        return self.expected_log_likelihood(params) + prior(params) + self.guide.entropy(params)


def linear(
    name: str,
    N: int,
    dtype,
    design,
    link,
    log_prior,
    expected_log_prior,
    sites=None,
    quadratic_prior=False,
    held_out: HeldOut | None = None,
) -> LinearProblem:
    """The problem of a design, a link and a prior.

    Args:
        name: name in reports.
        N: number of data rows.
        dtype: floating type of the data.
        design: ``Dense``, ``Affine``, ``Pairs`` or ``Grouped``.
        link: ``Bernoulli`` or ``Categorical``.
        log_prior: ``z (dim,) -> ()``, nats.
        expected_log_prior: its mean under the mean-field guide, ``params -> ()``.
        sites: which entries of ``z`` are which latent site; one site ``z`` if not given.
        quadratic_prior: see ``VariationalProblem``.
        held_out: see ``VariationalProblem``.
    """
    backend, dim = design.backend, design.dim
    return LinearProblem(
        name, backend, N, dim, _log_likelihood(design, link), log_prior, sites=sites or {"z": slice(0, dim)},
        dtype=dtype, design=design, link=link, expected_log_prior=expected_log_prior, quadratic_prior=quadratic_prior,
        held_out=held_out,
    )  # fmt: skip


def held_out(arrays, name: str, design: Callable[[Any], Any], link: Callable[[Any], Any]) -> HeldOut | None:
    """The test part of ``{"x", "y", "test_x", "test_y"}``; None where the arrays have none.

    Args:
        arrays: the data.
        name: name of the problem in reports.
        design: maps ``x``, a NumPy array, to a design.
        link: maps ``y`` to a link.

    Raises:
        UserError: see ``test_part``.
    """
    if (test := test_part(arrays, ("x", "y"), name)) is None:
        return None
    return HeldOut(len(test["x"]), _log_likelihood(design(test["x"]), link(test["y"])))


def _log_likelihood(design, link):
    return lambda z, index: link.log(design.forward(z, index), index)


def standard_normal(backend: Backend, dim: int):
    """``log p(z)`` of ``N(0, I)``, and its mean under a mean-field guide, as functions."""
    xp = backend.xp

    def log_prior(z):
        return -0.5 * xp.sum(z * z) - 0.5 * dim * np.log(2 * np.pi)

    def expected_log_prior(params):
        second_moment = params["mu"] ** 2 + xp.exp(2 * params["log_sigma"])
        return -0.5 * xp.sum(second_moment) - 0.5 * dim * np.log(2 * np.pi)

    return log_prior, expected_log_prior
