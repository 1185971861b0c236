"""Algorithms of evosax as pure functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lowvar.errors import UserError
from lowvar.search.gradients import usable
from lowvar.search.solvers.base import SearchSolver, check_domain, check_population, default_population


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
