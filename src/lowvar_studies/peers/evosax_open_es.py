"""OpenAI's evolution strategy of evosax."""

import jax.numpy as jnp
import optax
from evosax.algorithms import Open_ES

from lowvar.errors import check_known, positive
from lowvar.registry import declares
from lowvar.search.solvers.base import SearchSolver, check_population, default_population
from lowvar_studies.peers.evosax_solver import evosax_solver

OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}


@declares(packages=("evosax",), extra="peers", backends=("jax",))
def evosax_open_es(
    backend, domain, population: int | None = None, optimizer: str = "sgd", step_size: float = 1e-3
) -> SearchSolver:
    """``evosax.algorithms.Open_ES``: antithetic pairs, centred ranks, a standard deviation that stays ``sigma0``.

    Args:
        backend: JAX.
        domain: a real one.
        population: ``N``, even; lowvar's default if not given.
        optimizer: ``sgd``, evosax's default, or ``adam``.
        step_size: step size of the optimizer; evosax's default is 0.001.

    Raises:
        UserError: another backend, a domain that is not real, or a setting out of range.

    References:
        Salimans et al., arXiv:1703.03864; Lange, arXiv:2212.04180.
    """
    check_known("optimizer", optimizer, OPTIMIZERS)
    positive("step_size", step_size)
    population = default_population(domain.dim) if population is None else population
    check_population(population, even=True)

    def begin(state, params, sigma0):
        return state.replace(std=sigma0)

    return evosax_solver(
        "evosax_open_es", backend, domain, population, Open_ES, begin,
        spread=lambda state: (state.std, jnp.ones_like(state.std)),
        keep=("std",),  # keeps the ``sigma0`` of each run in place of evosax's constant
        optimizer=OPTIMIZERS[optimizer](step_size),
    )  # fmt: skip
