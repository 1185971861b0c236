"""Stochastic gradient descent with local latent variables: a step updates the shared parameters and its rows'.

An epoch visits each row once. The state of the rows, in the order of the epoch's batches, is therefore the input of a
loop, and their new state its output: the work of a step does not depend on the number of rows.

**Convention.** The gradient is unbiased for that of the whole ELBO: a batch's rows count ``N / B`` times, all others
have gradient zero. ``adam`` moves a row at its visits, which it counts row by row, see ``row_adam``. With a
transformation of optax, the convention is that of PyTorch's ``SparseAdam``: averages of a row's gradients change at
its visits only, while the count of steps, which corrects their bias and drives schedules, is that of the run. Rows
that are visited a few dozen times then move far less than under dense Adam.
"""

from typing import Any

import jax
import jax.numpy as jnp

from lowvar.noise import Noise, Plan
from lowvar.problems.rows import OfBatch
from lowvar.solvers.descent import Descent, DescentState


class RowDescent(Descent):
    """A solver whose steps compute with the rows of their batch only; its estimator is of an ``OfBatch``.

    States have the coordinates of all rows: every vector of that length, such as a moment, is divided by rows.
    """

    @property
    def _problem(self) -> OfBatch:
        return self.estimator.problem  # type: ignore[return-value]

    def step(self, state: DescentState, noise: Noise) -> DescentState:
        """One update."""
        return self.steps(state, jax.tree.map(lambda leaf: leaf[None], noise))

    def steps(self, state: DescentState, noise: Noise | Plan, part: Any = None) -> DescentState:
        """Successive updates, or those of ``part``, see ``Descent``."""
        rows, backend = self._problem.rows, self._problem.backend
        leaves, tree = jax.tree.flatten(state)
        local = [leaf.shape == (rows.dim,) for leaf in leaves]
        shared, own = jnp.asarray(rows.shared), jnp.asarray(rows.own)[noise.index]  # (D,), (steps, B, d)

        def body(carried, batch):
            (carried, mine), (t, noise) = carried, batch
            before = iter(mine)
            here = [
                rows.joined(leaf, next(before)[t]) if one else leaf for one, leaf in zip(local, carried, strict=True)
            ]
            moved = self._moved(jax.tree.unflatten(tree, here), self.sampler.drawn(noise))
            pairs = list(zip(local, jax.tree.leaves(moved), strict=True))
            after = [rows.own_of(v) for one, v in pairs if one]
            return [rows.shared_of(v) if one else v for one, v in pairs], backend.set_rows(mine, t, after)

        carried = [leaf[shared] if one else leaf for one, leaf in zip(local, leaves, strict=True)]
        mine = [leaf[own] for one, leaf in zip(local, leaves, strict=True) if one]
        times = jnp.arange(len(noise.index))
        carried, mine = backend.scan_or_loop(body, (carried, mine), (times, noise), part)
        # padding repeats a row that the batch has already: it is not written
        to, mine = jnp.where((noise.weight > 0)[..., None], own, rows.dim), iter(mine)
        moved = [
            old.at[shared].set(new).at[to].set(next(mine), mode="drop") if one else new
            for one, old, new in zip(local, leaves, carried, strict=True)
        ]
        return jax.tree.unflatten(tree, moved)

    def _moved(self, state: DescentState, noise: Noise) -> DescentState:
        """One update of the state of a batch."""
        problem = self._problem
        gradient, estimator = self.estimator.estimate(state.estimator, state.params, noise)
        counted = problem.rows.by_row(problem.N * noise.weight)
        gradient = jax.tree.map(lambda g: g * counted, gradient)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.params)
        params = jax.tree.map(lambda p, u: p + u, state.params, updates)
        return DescentState(params, estimator, optimizer)
