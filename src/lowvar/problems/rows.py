"""Local latent variables: the part of a model, and of its guide, that one batch of rows concerns.

Given the latent variables that all rows share, the rows are independent, each with its own latent variables ``z_n``:

    ELBO = E log p(z_shared) + H(q_shared) + sum_n [E log p(y_n, z_n | z_shared) + H(q_n)].

A batch's estimate is the shared part plus ``N / B`` times the sum over its rows. It depends on the parameters of the
shared variables and of these rows alone, so a step computes with these alone, whatever ``N`` is.

References:
    Hoffman, Blei, Wang and Paisley, "Stochastic variational inference", 2013, section 2, for local and global
    variables; Kucukelbir, Tran, Ranganath, Gelman and Blei, "Automatic differentiation variational inference", 2017.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lowvar.problems.variational import VariationalProblem


@dataclass(frozen=True, eq=False)
class Rows:
    """The coordinates of ``z`` that rows share, and those of each row.

    The vector of a batch has the shared coordinates first, then those of its rows, row by row.

    Attributes:
        shared: coordinates of the shared variables, ``(D,)`` integers.
        own: coordinates of each row's variables, ``(N, d)`` integers.
    """

    shared: np.ndarray
    own: np.ndarray

    @property
    def dim(self) -> int:
        """Coordinates of ``z``."""
        return len(self.shared) + self.own.size

    def dim_of(self, size: int) -> int:
        """Coordinates of a batch of ``size`` rows."""
        return len(self.shared) + size * self.own.shape[1]

    def of(self, backend, index):
        """The coordinates of ``z`` that the rows ``index (B,)`` concern, ``(dim_of(B),)``."""
        own = backend.take(backend.asarray(self.own), index)
        return backend.xp.concat([backend.asarray(self.shared), backend.xp.reshape(own, (-1,))])

    def by_row(self, xp, values):
        """``values (B,)`` for the coordinates of each row, and ones for the shared ones, ``(dim_of(B),)``."""
        own = xp.broadcast_to(values[:, None], (values.shape[0], self.own.shape[1]))
        return xp.concat([xp.ones_like(values, shape=len(self.shared)), xp.reshape(own, (-1,))])


@dataclass(frozen=True, eq=False)
class OfBatch(VariationalProblem):
    """A problem with local latent variables as one batch of rows sees it: ``z`` is the vector of the batch.

    Gradients in the variables of a row are those of the ELBO itself, without the factor ``N / B`` of the rows' sum:
    a row that is visited has no subsampling noise. Full passes take, and give, vectors of all rows.

    Attributes:
        whole: the problem of all rows.
        rows: which coordinates belong to which row.
    """

    whole: Any = None
    rows: Rows = None  # type: ignore[assignment]

    @cached_property
    def table_dim(self) -> int:
        """Coordinates of all rows."""
        return self.rows.dim

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``, in a row's own variables without the row's factor ``N weight``."""
        return self.backend.grad(self.energy)(z, index, weight) * self.rows.by_row(
            self.backend.xp, self.inverse(weight)
        )

    def inverse(self, weight):
        """``1 / (N weight)`` of each row, zero for padding."""
        xp = self.backend.xp
        padded = weight == 0
        return xp.where(padded, xp.zeros_like(weight), 1 / (self.N * xp.where(padded, xp.ones_like(weight), weight)))

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)`` in the variables of all rows, ``(rows.dim,)``: a pass over all rows."""
        backend, xp, rows = self.backend, self.backend.xp, self.rows

        def add(total, chunk):
            def energy(z):
                return -self.N * xp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))

            where = rows.of(backend, chunk["index"])
            return backend.add_rows(total, where, backend.grad(energy)(backend.take(z, where)))

        first = rows.of(backend, backend.asarray(np.zeros(1, np.int32)))
        prior = self.prior_gradient(backend.take(z, first))
        return backend.scan_or_loop(add, backend.add_rows(xp.zeros_like(z), first, prior), self.chunks)


def of_batch(problem, size: int):
    """``problem`` as a step with ``size`` rows sees it: itself, unless rows have variables of their own."""
    make = getattr(problem, "of_batch", None)
    return problem if make is None else make(size)
