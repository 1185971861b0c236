"""Powers of ``B = rest I + V' diag(v) V`` for a few rows ``V``, to update a factor of the covariance.

A natural-gradient step changes ``Sigma^-1 = A^-T A^-1`` into ``A^-T B A^-1``; ``A B^(-1/2)`` is a factor of the new
covariance, and ``B^(1/2) q`` is in the new whitened coordinates what ``q`` was in the old ones. ``B`` differs from a
multiple of ``I`` only in the span of its ``n`` rows: if ``n < d``, its eigenvectors there come from an ``n x n``
matrix.
"""

from typing import Any, NamedTuple

import numpy as np

from lowvar.search.solvers.sampling import LEAST


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of ``B``.

    Attributes:
        rest: the eigenvalue of all unlisted directions, a scalar.
        eigenvalues: eigenvalues of the listed directions, ``(k,)``.
        directions: listed directions, orthonormal columns, ``(d, k)``.
    """

    rest: Any
    eigenvalues: Any
    directions: Any

    def times(self, rows: Any, exponent: float) -> Any:
        """``rows B^exponent`` for ``rows (d,)`` or ``(n, d)``; ``B`` is symmetric."""
        outside = self.rest**exponent
        change = self.eigenvalues**exponent - outside
        change = change[None, :] if rows.ndim == 2 else change
        return outside * rows + ((rows @ self.directions) * change) @ self.directions.T


def gram_factor(backend, rows: Any) -> Any:
    """The Cholesky factor of ``rows rows'``, ``(n, n)``, with a ridge for dependent rows, such as antithetic ones."""
    xp, gram = backend.xp, rows @ rows.T
    ridge = 16 * rows.shape[0] * xp.finfo(rows.dtype).eps * xp.max(xp.linalg.diagonal(gram)) + xp.finfo(rows.dtype).tiny
    return xp.linalg.cholesky(gram + ridge * backend.asarray(np.eye(rows.shape[0]), rows))


def spectrum(backend, rest: Any, rows: Any, weights: Any, least: float = LEAST) -> Spectrum:
    """The spectrum of ``rest I + rows' diag(weights) rows``, with eigenvalues kept above ``least``.

    Args:
        backend: backend of the arrays.
        rest: a scalar.
        rows: ``(n, d)``; they may be linearly dependent.
        weights: ``(n,)``, of either sign.
        least: lower bound on the eigenvalues.
    """
    xp, (n, dim) = backend.xp, rows.shape
    if n < dim:
        lower = gram_factor(backend, rows)
        eigenvalues, vectors = xp.linalg.eigh(lower.T @ (weights[:, None] * lower))
        directions = backend.solve_triangular(lower, vectors, transposed=True)  # rows' of it are orthonormal
        directions = rows.T @ directions
    else:
        eigenvalues, directions = xp.linalg.eigh(rows.T @ (weights[:, None] * rows))
    return Spectrum(xp.clip(rest, min=least), xp.clip(rest + eigenvalues, min=least), directions)
