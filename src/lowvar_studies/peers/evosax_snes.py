"""Separable natural evolution strategy of evosax."""

import jax.numpy as jnp
from evosax.algorithms import SNES

from lowvar.registry import declares
from lowvar.search.solvers.base import SearchSolver
from lowvar.search.solvers.fast_ingo import diagonal_spread
from lowvar_studies.peers.evosax_solver import evosax_solver


@declares(packages=("evosax",), extra="peers", backends=("jax",))
def evosax_snes(backend, domain, population: int | None = None) -> SearchSolver:
    """``evosax.algorithms.SNES`` with its own learning rates and ranks.

    Args:
        backend: JAX.
        domain: a real one.
        population: ``N``; lowvar's default if not given.

    Raises:
        UserError: another backend, a domain that is not real, or a population too small.

    References:
        Wierstra et al., JMLR 15 (2014), Algorithm 6; Lange, arXiv:2212.04180.
    """

    def begin(state, params, sigma0):
        return state.replace(std=sigma0 * jnp.ones_like(state.mean))

    return evosax_solver(
        "evosax_snes", backend, domain, population, SNES, begin, lambda state: diagonal_spread(jnp, state.std)
    )
