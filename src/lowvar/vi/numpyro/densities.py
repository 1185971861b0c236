"""The densities of a NumPyro model, as functions of the latent vector or of the part of it that a batch concerns."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.distributions.util import sum_rightmost
from numpyro.infer.util import _unconstrain_reparam

from lowvar.vi.numpyro.trace import FixedIndex, by_row, each, frame_of, is_latent, log_prob_of, sites_of
from lowvar.vi.rows import Rows


class Layout:
    """Where the sites lie in ``z`` and in the vector of a batch, see ``Rows``.

    Args:
        free: unconstrained values by site, a tree, those of all rows.
        local: the latent sites in the data plate, with the axis of their values that has the rows, negative.
        N: number of rows.
    """

    def __init__(self, free: Mapping[str, Any], local: Mapping[str, int], N: int):
        shared_sites = {site: value for site, value in free.items() if site not in local}
        _, self._unravel = jax.flatten_util.ravel_pytree(shared_sites)
        coordinates, offset, own = [], 0, [np.zeros((N, 0), np.int32)]
        self._parts: list[tuple[str, slice, tuple[int, ...], int]] = []
        for site in sorted(free):  # the order of ravel_pytree
            size = sum(leaf.size for leaf in jax.tree.leaves(free[site]))
            where = np.arange(offset, offset + size, dtype=np.int32)
            offset += size
            if site not in local:
                coordinates.append(where)
                continue
            rows = np.moveaxis(where.reshape(free[site].shape), local[site], 0)
            before = sum(part.shape[1] for part in own)
            own.append(rows.reshape(N, -1))
            self._parts.append((site, slice(before, before + own[-1].shape[1]), rows.shape[1:], local[site]))
        self.rows = Rows(np.concatenate([np.zeros(0, np.int32), *coordinates]), np.concatenate(own, axis=1))

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The latent sites in the data plate, with the shape of one row's values in R^d."""
        return {site: shape for site, _, shape, _ in self._parts}

    def batch(self, z, index):
        """The part of ``z`` that the rows ``index (B,)`` concern."""
        return z[self.rows.of(index)] if self._parts else z

    def among(self, z, places):
        """The same for the rows at some ``places`` of a batch with the vector ``z``."""
        if not self._parts:
            return z
        return self.rows.joined(self.rows.shared_of(z), self.rows.own_of(z)[places])

    def free(self, z) -> dict[str, Any]:
        """Unconstrained values by site, from the vector of a batch."""
        values = dict(self._unravel(self.rows.shared_of(z)))
        for site, columns, shape, axis in self._parts:
            rows = self.rows.own_of(z)[:, columns].reshape(-1, *shape)
            values[site] = jnp.moveaxis(rows, 0, axis)
        return values


class Densities(NamedTuple):
    """Functions of a model, in nats.

    Attributes:
        traced: ``(z, index, watch) -> the sites of a batch``.
        log_joint: ``(z, index (B,)) -> ((B,), ())``: log-likelihoods, with the densities of local latent variables, and
            the log prior, from one run of the model.
        log_likelihood: ``(z, index (B,)) -> (B,)``.
        log_prior: ``(z, index) -> ()``.
        likelihood_of_batch: as ``log_likelihood``, of the vector of the batch.
        prior_of_batch: ``z -> log_prior``, of the vector of a batch.
        layout: where the variables are.
    """

    traced: Callable
    log_joint: Callable
    log_likelihood: Callable
    log_prior: Callable
    likelihood_of_batch: Callable
    prior_of_batch: Callable
    layout: Layout


class Functions:
    """The densities of a model; for data in any precision.

    ``local`` has the latent sites in the data plate, with the axis of their values in R^d that has the rows.
    """

    def __init__(self, model, data, plate, N, transforms, dtype, local, other=False):
        self.model, self.data, self.plate, self.N = model, data, plate, N
        self.transforms, self.dtype, self.local = transforms, dtype, local
        self._other = other  # whether the data have another precision than ``dtype``

    def cast(self, dtype) -> "Functions":
        """The same functions with floating data in another precision.

        They are cast where they are read, inside of a program: a copy of all rows would cost more than a few of them.
        """
        return Functions(self.model, self.data, self.plate, self.N, self.transforms, dtype, self.local, other=True)

    def of(self, free) -> Densities:
        """The densities, for unconstrained values with the form of ``free``."""
        layout = Layout(free, self.local, self.N)
        traced, likelihood, prior = (partial(one, layout) for one in (self._traced, self._likelihood, self._prior))
        joint = partial(self._joint, layout)
        first = np.zeros(1, np.int32)

        def whole(function):
            return lambda z, index, *watch: function(layout.batch(z, index), index, *watch)

        def prior_of_batch(z):
            return prior(layout.among(z, first), jnp.asarray(first))

        return Densities(
            whole(traced), whole(joint), whole(likelihood), whole(prior), likelihood, prior_of_batch, layout
        )

    def _traced(self, layout, z, index, watch=lambda model: model):
        free, jacobians = layout.free(z), {}

        def substitute(site):
            if site["name"] in self.local:
                return _constrained(site, free, jacobians)
            if site["type"] == "param" and site["name"] in free:
                return self.transforms[site["name"]](free[site["name"]])
            return _unconstrain_reparam(free, site)

        substituted = handlers.substitute(self.model, substitute_fn=substitute)
        seeded = handlers.seed(FixedIndex(watch(substituted), self.plate, index), jax.random.key(0))
        data = self.data
        if self._other:
            data = {key: each(lambda _, leaf: _cast(self.dtype, leaf), key, value) for key, value in data.items()}
        trace = sites_of(seeded, **data)
        return {key: {**site, "jacobian": jacobians.get(key, 0.0)} for key, site in trace.items()}

    def _joint(self, layout, z, index):
        rows, N = index.shape[0], self.N
        if self.plate and rows == N > 1:
            # with all N rows numpyro.subsample does not subsample: two halves, as one mapped program; every other row
            # each, since devices share the rows in order
            def halves(rows):
                return jnp.append(rows, rows[: N % 2]).reshape(-1, 2)

            def of_half(places, index):
                return self._joint(layout, layout.among(z, places), index)

            each = jax.vmap(of_half, in_axes=1, out_axes=(1, 0))
            likelihood, prior = each(halves(jnp.arange(N)), halves(index))
            return likelihood.reshape(-1)[:N], prior[0]
        return self._in_order(layout, z, index)

    def in_order(self, free):
        """``z -> ((N,), ())``: as ``log_joint`` of all rows of the data, as they stand."""
        layout = Layout(free, self.local, self.N)
        return lambda z: self._in_order(layout, z, jnp.arange(self.N))

    def _in_order(self, layout, z, index):
        sites, rows = self._traced(layout, z, index), index.shape[0]
        likelihood = self._of_rows(sites, rows) if self.plate else jnp.broadcast_to(self._of_data(sites), index.shape)
        return self._cast(likelihood), self._of_prior(sites)

    def _likelihood(self, layout, z, index):
        return self._joint(layout, z, index)[0]

    def _prior(self, layout, z, index):
        return self._of_prior(self._traced(layout, z, index))

    def _of_rows(self, sites, rows):
        total = jnp.zeros(rows, self.dtype)
        for site in sites.values():
            frame = frame_of(site, self.plate)
            if site["type"] == "sample" and frame is not None:
                # the model's own scale of the site, without the plate's N / B
                scale = 1.0 if site["scale"] is None else site["scale"] * (rows / self.N)
                total = total + by_row((log_prob_of(site) + site["jacobian"]) * scale, frame.dim, rows)
        return total

    def _of_data(self, sites):
        """Of a model without a plate, whose rows are one."""
        observed = (site for site in sites.values() if site["type"] == "sample" and not is_latent(site))
        return sum((_total(site) for site in observed), jnp.zeros((), self.dtype))

    def _of_prior(self, sites):
        # XLA drops the data plate's sites, which are traced too
        total, plate = jnp.zeros((), self.dtype), self.plate
        for site in sites.values():
            if site["type"] == "sample" and frame_of(site, plate) is None and (plate or is_latent(site)):
                total = total + _total(site)
        return self._cast(total)

    def _cast(self, value):
        """Some log densities of NumPyro are float64 for data in float32; complex ones stay, to be refused."""
        return value.astype(self.dtype) if jnp.issubdtype(value.dtype, jnp.floating) else value


def _constrained(site, free, jacobians):
    """The batch's values of a latent site in the plate; notes the logarithm of the Jacobian."""
    point, onto = free[site["name"]], biject_to(site["fn"].support)
    value = onto(point)
    jacobian = onto.log_abs_det_jacobian(point, value)
    jacobians[site["name"]] = sum_rightmost(jacobian, jacobian.ndim - len(site["fn"].batch_shape))
    return value


def _total(site):
    """A site's log density, nats, with its scale."""
    return jnp.sum(log_prob_of(site)) * (1.0 if site["scale"] is None else site["scale"])


def _cast(dtype, value):
    floating = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating)
    return value.astype(dtype) if floating else value
