"""Local latent variables: the part of a model, of its guide and of an estimator that one batch of rows concerns.

Given the latent variables that all rows share, the rows are independent, each with its own latent variables ``z_n``:

    ELBO = E log p(z_shared) + H(q_shared) + sum_n [E log p(y_n, z_n | z_shared) + H(q_n)].

A batch's estimate is the shared part plus ``N / B`` times the sum over its rows. It depends on the parameters of the
shared variables and of these rows alone, so a step computes with these alone, whatever ``N`` is.

References:
    Hoffman, Blei, Wang and Paisley, "Stochastic variational inference", 2013, section 2, for local and global
    variables; Kucukelbir, Tran, Ranganath, Gelman and Blei, "Automatic differentiation variational inference", 2017.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.guides.gaussian import MeanField
from lowvar.vi.variational import VariationalProblem


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

    def of(self, index):
        """The coordinates of ``z`` that the rows ``index (B,)`` concern, ``(dim_of(B),)``."""
        return self.joined(jnp.asarray(self.shared), jnp.asarray(self.own)[index])

    def shared_of(self, vector):
        """The shared coordinates of a batch's vector, ``(D,)``."""
        return vector[: len(self.shared)]

    def own_of(self, vector):
        """The coordinates of a batch's rows in its vector, ``(B, d)``."""
        return vector[len(self.shared) :].reshape(-1, self.own.shape[1])

    def joined(self, shared, own):
        """A batch's vector, from ``shared (D,)`` and ``own (B, d)``."""
        return jnp.concatenate([shared, own.reshape(-1)])

    def by_row(self, values):
        """``values (B,)`` at the coordinates of each row, and ones at the shared ones, ``(dim_of(B),)``."""
        own = jnp.broadcast_to(values[:, None], (values.shape[0], self.own.shape[1]))
        return self.joined(jnp.ones(len(self.shared), values.dtype), own)


@dataclass(frozen=True)
class MeanFieldOfRows(MeanField):
    """The mean-field guide with both control variates of ``log_sigma`` that ``Gaussian.controls`` gives.

    The noise of a row's own gradient is Monte Carlo noise alone. Where the guide fits the row, the second control
    removes that of its ``log_sigma``.
    """

    @property
    def controlled(self) -> dict[str, int]:
        """See ``Gaussian``."""
        return {"log_sigma": 2}

    def controls(self, params, eps, gradient):
        """See ``Gaussian``."""
        second = self._noisy(jnp.mean(eps**2, axis=0) - 1)
        return {"log_sigma": [*super().controls(params, eps, gradient)["log_sigma"], second]}


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

    def gradient(self, z, index, weight):
        """The gradient of ``energy``, ``(dim,)``; in a row's own variables without its factor ``N weight``."""
        padded = weight == 0
        each = jnp.where(padded, 0, 1 / (self.N * jnp.where(padded, 1, weight)))
        return jax.grad(self.energy)(z, index, weight) * self.rows.by_row(each)

    def full_gradient(self, z):
        """The gradient of ``-log p(x, z)`` in the variables of all rows, ``(rows.dim,)``: a pass over all rows."""
        rows = self.rows

        def add(total, chunk):
            def energy(z):
                return -self.N * jnp.sum(chunk["weight"] * self.log_likelihood(z, chunk["index"]))

            where = rows.of(chunk["index"])
            return total.at[where].add(jax.grad(energy)(z[where])), None

        first = rows.of(jnp.zeros(1, jnp.int32))
        start = jnp.zeros_like(z).at[first].add(self.prior_gradient(z[first]))
        return jax.lax.scan(add, start, self.chunks)[0]


def of_batch(problem, size: int):
    """``problem`` as a step with ``size`` rows sees it: itself, unless rows have variables of their own."""
    make = getattr(problem, "of_batch", None)
    return problem if make is None else make(size)


def rows_of(problem) -> Rows | None:
    """The rows of a problem as a batch sees it, see ``OfBatch``; None if rows have no variables of their own."""
    return getattr(problem, "rows", None)


def amortised(estimator: Estimator, problem: OfBatch) -> Estimator:
    """An estimator of a batch's mean-field gradient, through the encoder to the parameters of an ``AmortisedGuide``.

    The rows' gradients count ``N`` times their weights, so the estimate is unbiased where the batch's is.
    """
    guide, rows, whole = problem.whole.guide, problem.rows, problem.whole

    def estimate(state, params, noise):
        here, back = jax.vjp(lambda params: guide.of_batch(params, noise.index), params)
        if noise.eps.shape[-1] == whole.noise_dim:  # the noise of all rows
            noise = noise._replace(eps=noise.eps[:, rows.of(noise.index)])
        gradient, state = estimator.estimate(state, here, noise)
        counted = rows.by_row(problem.N * noise.weight)
        return back({block: value * counted for block, value in gradient.items()})[0], state

    return replace(estimator, problem=whole, estimate=estimate)


@dataclass(frozen=True)
class Shared:
    """The part of a problem that a decomposition of the gradient in what rows share reads; see ``Objective``."""

    name: str
    backend: Any
    N: int
    noise_dim: int
    dtype: Any
    blocks: Mapping[str, int]
    sites: Mapping[str, slice]

    def part(self, block: str, where: slice) -> slice:
        """See ``Objective``."""
        return where


def shared(problem: OfBatch) -> Shared:
    """The shared variables of a problem with local ones.

    Raises:
        UserError: rows share nothing.
    """
    whole, D = problem.whole, len(problem.rows.shared)
    if not D:
        raise UserError(
            f"{problem.name}: all latent variables are in the data plate: rows share none, so there is no subsampling "
            "noise to decompose"
        )
    sites, offset = {}, 0
    for site, where in sorted(whole.sites.items(), key=lambda item: item[1].start):
        if where.start in problem.rows.shared:
            sites[site] = slice(offset, offset + where.stop - where.start)
            offset = sites[site].stop
    return Shared(
        problem.name, whole.backend, whole.N, whole.noise_dim, whole.dtype, dict.fromkeys(whole.blocks, D), sites
    )


def of_shared(estimator: Estimator) -> Estimator:
    """An estimator restricted to the gradient in what rows share: all of it, unless it is of an ``OfBatch``.

    Its state, parameters and base noise are those of all rows. A row's own variables have no subsampling noise: only
    batches with the row concern them. Of an amortised guide, the rows share the encoder too.
    """
    problem: Any = estimator.problem
    rows = rows_of(problem)
    if rows is None and problem.guide.amortised:
        p = problem
        return replace(estimator, problem=Shared(p.name, p.backend, p.N, p.noise_dim, p.dtype, p.blocks, {}))
    if rows is None:
        return estimator

    def estimate(state, params, noise):
        at = rows.of(noise.index)
        state_here, params_here = jax.tree.map(
            lambda leaf: leaf[at] if leaf.shape == (rows.dim,) else leaf, (state, params)
        )
        gradient, _ = estimator.estimate(state_here, params_here, noise._replace(eps=noise.eps[:, at]))
        return {block: rows.shared_of(values) for block, values in gradient.items()}, state

    return replace(estimator, problem=shared(problem), estimate=estimate)
