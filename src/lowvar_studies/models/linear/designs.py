"""Designs: products of the latent vector with ``X_n``, ``a_n = X_n z``, and of predictors with its transpose."""

from dataclasses import dataclass
from typing import Any

from lowvar.core.backend import Backend


def rows(backend, array, index):
    """Rows ``index`` of ``array``; all of them for None."""
    return array if index is None else backend.take(array, index)


@dataclass(frozen=True, eq=False)
class Dense:
    """``a_n = x_n Z`` with ``z`` the entries of ``Z (d, classes)``, row by row.

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
        """``(X_n o X_n) v``, ``(B, C)``: the predictors' variances if ``v`` holds those of ``z``."""
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
        return (x[:, None, :] @ z)[:, 0, :]  # a matrix product; XLA may recompute a sum in each consumer

    def _matrix(self, z):
        return self.backend.xp.reshape(z, (-1, self.classes))


@dataclass(frozen=True, eq=False)
class Affine:
    """``a_n = x_n Z + b``; ``z`` holds ``start`` other entries, then ``Z``, then ``b``; see ``Dense``.

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
        """Adds each row's ``r`` to its first entry and subtracts it from its second."""
        first, second = self._ends(index)
        zero = self.backend.xp.zeros((self.dim,), dtype=r.dtype)
        return self.backend.add_rows(self.backend.add_rows(zero, first, r[:, 0]), second, -r[:, 0])

    def forward_squares(self, v, index):
        """The sums of both entries, ``(B, 1)``; zero where both are the same entry, whose difference is zero."""
        take, (first, second) = self.backend.take, self._ends(index)
        both = take(v, first) + take(v, second)
        return self.backend.xp.where(first != second, both, self.backend.xp.zeros_like(both))[:, None]

    def back_squares(self, r, index):
        """Adds each row's ``r`` to both of its entries, if they are distinct."""
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
        x, group = self._rows_and_groups(index)
        return (x[:, None, :] @ self.backend.take(self._matrices(z), group))[:, 0, :]

    def back(self, r, index):
        """``sum_n X_n' r_n``, ``(dim,)``."""
        x, group = self._rows_and_groups(index)
        return self._added(group, x[:, :, None] * r[:, None, :])

    def forward_squares(self, v, index):
        """The predictors' variances, ``(B, C)``."""
        x, group = self._rows_and_groups(index)
        return ((x * x)[:, None, :] @ self.backend.take(self._matrices(v), group))[:, 0, :]

    def back_squares(self, r, index):
        """``sum_n (X_n o X_n)' r_n``, ``(dim,)``."""
        x, group = self._rows_and_groups(index)
        return self._added(group, (x * x)[:, :, None] * r[:, None, :])

    def forward_by_row(self, z, index):
        """The predictors, row ``n`` from its own ``z_n``."""
        x, group = self._rows_and_groups(index)
        own = self.backend.vmap(lambda z, group: self.backend.take(self._matrices(z), group[None])[0])(z, group)
        return (x[:, None, :] @ own)[:, 0, :]

    def _rows_and_groups(self, index):
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
