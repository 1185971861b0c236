"""Exponential natural evolution strategy of evosax."""

import jax.numpy as jnp
from evosax.algorithms import xNES

from lowvar.registry import declares
from lowvar.search.solvers.base import SearchSolver
from lowvar_studies.peers.evosax_solver import evosax_solver


@declares(packages=("evosax",), extra="peers", backends=("jax",))
def evosax_xnes(backend, domain, population: int | None = None) -> SearchSolver:
    """``evosax.algorithms.xNES`` with its own learning rates and ranks.

    evosax 0.3 multiplies its factor ``B`` by the elementwise exponential of the gradient, where xNES has the matrix
    exponential: ``B`` starts as the identity and stays diagonal.

    Args:
        backend: JAX.
        domain: a real one.
        population: ``N``; lowvar's default if not given.

    Raises:
        UserError: another backend, a domain that is not real, or a population too small.

    References:
        Glasmachers et al., GECCO 2010; Wierstra et al., JMLR 15 (2014), Algorithm 5; Lange, arXiv:2212.04180.
    """

    def begin(state, params, sigma0):  # evosax's initial state has the step size both in ``std`` and in ``B``
        return state.replace(std=sigma0, B=jnp.eye(domain.dim, dtype=state.mean.dtype))

    def spread(state):
        axes = jnp.linalg.svd(state.B, compute_uv=False)
        return state.std * jnp.exp(jnp.mean(jnp.log(axes))), (axes[0] / axes[-1]) ** 2

    return evosax_solver("evosax_xnes", backend, domain, population, xNES, begin, spread)
