"""Guides with a triangular factor: full rank, or full rank within each site."""

from dataclasses import dataclass

import numpy as np

from lowvar.errors import UserError
from lowvar.vi.guides.guide import Gaussian

_MOST = 2**25  # entries of the factor: 5800 dimensions


@dataclass(frozen=True)
class Triangular(Gaussian):
    """``z = mu + sigma o (I + U) eps``, with ``U`` strictly lower triangular within each of some parts of ``z``.

    ``L = diag(sigma) (I + U)`` is the Cholesky factor of the covariance, with ``log_sigma`` the logarithm of its
    diagonal. The block ``lower`` holds the square matrices of the parts, row by row; entries on and above their
    diagonals stay 0. Squares are multiplied faster than packed triangles are unpacked.

    Attributes:
        parts: the parts, which divide ``z``, in order.
    """

    parts: tuple[slice, ...] = ()

    @property
    def about(self) -> str:
        """See ``Gaussian``."""
        return "a full-rank" if self.name == "full_rank" else "a block-diagonal"

    @property
    def misses(self) -> tuple[str, str]:
        """See ``Gaussian``."""
        across = "" if self.name == "full_rank" else "correlated across sites, "
        return f"{across}skewed", f"{across}skewed or heavy-tailed"

    @property
    def wider(self) -> str:
        """See ``Gaussian``."""
        return "" if self.name == "full_rank" else "fit with guide='full_rank', "

    @property
    def name(self) -> str:
        """See ``Gaussian``."""
        return "full_rank" if len(self.parts) == 1 else "block_diagonal"

    @property
    def shape(self) -> dict[str, int]:
        """See ``Gaussian``."""
        return {"lower": sum((part.stop - part.start) ** 2 for part in self.parts)}

    def directions(self, params, eps):
        """``(I + U) eps``."""
        noisy = self._noisy(eps)
        moved = [U @ noisy[part] for part, U in self._factors(params)]
        return eps + (moved[0] if len(moved) == 1 else self.backend.xp.concat(moved))

    def shape_gradient(self, params, eps, scaled):
        """``dz_i / dU_ij = sigma_i eps_j`` for ``j < i`` within a part."""
        xp = self.backend.xp
        rows, columns = self._noisy(scaled), self._noisy(eps)
        outer = [xp.tril(rows[part][:, None] * columns[part][None, :], k=-1) for part in self.parts]
        flat = [xp.reshape(one, (-1,)) for one in outer]
        return {"lower": flat[0] if len(flat) == 1 else xp.concat(flat)}

    def whitened(self, params, eps):
        """``(I + U)'^-1 eps``."""
        xp, noisy, out = self.backend.xp, self._noisy(eps), []
        for part, U in self._factors(params):
            unit = U + xp.eye(U.shape[0], dtype=U.dtype)
            out.append(self.backend.solve_triangular(unit, noisy[part][:, None], transposed=True)[:, 0])
        return out[0] if len(out) == 1 else xp.concat(out)

    def widths(self, params):
        """See ``Gaussian``."""
        xp = self.backend.xp
        widths = [xp.sqrt(1 + xp.sum(U * U, axis=1)) for _, U in self._factors(params)]
        return widths[0] if len(widths) == 1 else xp.concat(widths)

    def part(self, block: str, where: slice) -> slice:
        """See ``Gaussian``; of ``lower``, the rows of those coordinates."""
        if block != "lower":
            return where
        offset, ends = 0, []
        for part in self.parts:
            size = part.stop - part.start
            first, last = (min(max(at, part.start), part.stop) - part.start for at in (where.start, where.stop))
            if first < last:
                ends += [offset + first * size, offset + last * size]
            offset += size * size
        return slice(min(ends), max(ends))

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """See ``Gaussian``: independent coordinates."""
        return {**super().start(mu, log_sigma), "lower": np.zeros(self.shape["lower"])}

    def from_factor(self, mu, factor) -> dict[str, np.ndarray]:
        """The parameters with mean ``mu`` and Cholesky factor ``factor (dim, dim)`` of the covariance."""
        sigma = np.diag(factor)
        unit = np.tril(factor / sigma[:, None], -1)
        lower = np.concatenate([unit[part, part].ravel() for part in self.parts])
        return {"mu": np.asarray(mu), "log_sigma": np.log(sigma), "lower": lower}

    def _factors(self, params):
        """The parts with their ``U``."""
        xp, offset, lower = self.backend.xp, 0, params["lower"]
        for part in self.parts:
            size = part.stop - part.start
            yield part, xp.reshape(lower[offset : offset + size * size], (size, size))
            offset += size * size


def _bounded(guide: Triangular) -> Triangular:
    """Rejects guides whose parameters would not fit in memory several times."""
    if guide.shape["lower"] > _MOST:
        raise UserError(
            f"{guide.name}: {guide.dim} dimensions would need {guide.shape['lower']} parameters; use guide='low_rank', "
            "or 'mean_field'"
        )
    return guide


def full_rank(dim, backend, noiseless, sites) -> Triangular:
    """``z = mu + L eps``, ``L`` lower triangular: any Gaussian."""
    return _bounded(Triangular(dim, backend, noiseless, (slice(0, dim),)))


def block_diagonal(dim, backend, noiseless, sites) -> Triangular:
    """A full-rank Gaussian for each latent site; sites are independent.

    Raises:
        UserError: the model names no sites.
    """
    if not sites:
        raise UserError("block_diagonal: the model names no latent variables that its blocks could be; use 'full_rank'")
    return _bounded(Triangular(dim, backend, noiseless, tuple(sites.values())))
