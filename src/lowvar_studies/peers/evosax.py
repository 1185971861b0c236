"""Evolution strategies of evosax as pure functions of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from evosax.algorithms import SNES, Open_ES, xNES

from lowvar.errors import UserError, check_known, positive
from lowvar.registry import declares
from lowvar.search.gradients import usable
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population, default_population
from lowvar.search.solvers.gaussian import diagonal_spread

OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd}


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


def evosax_solver(
    name: str,
    backend,
    domain,
    population: int | None,
    algorithm: Callable[..., Any],
    begin: Callable[[Any, Any, Any], Any],
    spread: Callable[[Any], tuple[Any, Any]],
    keep: tuple[str, ...] = (),
    **settings: Any,
) -> SearchSolver:
    """A distribution-based algorithm of evosax as a ``SearchSolver``: its own ``ask`` and ``tell``, its own state.

    The noise of a generation is evosax's key. ``tell`` recomputes from the same key what evosax's ``ask`` leaves in the
    state; a program that compiles both computes it once, or never if the algorithm leaves nothing.

    Args:
        name: as in the registry.
        backend: JAX.
        domain: a real one.
        population: ``N``; lowvar's default if not given.
        algorithm: evosax's class.
        begin: ``(state, params, sigma0) -> state``: evosax's initial state with ``sigma0``.
        spread: see ``SearchSolver``.
        keep: fields of the state that ``tell`` must not change.
        **settings: settings of the class.

    Raises:
        UserError: another backend, a domain that is not real, or a population too small.
    """
    if backend.name != "jax":
        raise UserError(f"{name} runs on jax, not on {backend.name}")
    check_domain(name, domain, "real")
    dim = domain.dim
    population = default_population(dim) if population is None else population
    check_population(population)
    strategy = algorithm(population, jnp.zeros(dim), **settings)
    params = strategy.default_params

    def init(x0, sigma0):
        x0 = jnp.asarray(x0, float)
        with jax.numpy_rank_promotion("allow"):
            state = strategy.init(jax.random.key(0), x0, params)  # the key is not used
        state = begin(state, params, jnp.asarray(sigma0, x0.dtype))
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf, leaf.dtype), state
        )  # no weak types, since loops carry the state

    def ask(state, noise):
        with jax.numpy_rank_promotion("allow"):
            return strategy.ask(noise, state, params)[0]

    def tell(state, noise, points, values):
        values = usable(backend, values)
        with jax.numpy_rank_promotion("allow"):
            asked = strategy.ask(noise, state, params)[1]
            told = strategy.tell(noise, points, values, asked, params)[0]
        told = told.replace(**{field: getattr(state, field) for field in keep})
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), told, state)

    return SearchSolver(
        name, backend, domain, population, lambda key: key, init, ask, tell,
        mean=lambda state: state.mean, spread=spread,
    )  # fmt: skip
