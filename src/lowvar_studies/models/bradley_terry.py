"""The Bradley-Terry model of paired comparisons: the NumPyro model, and its fused implementation.

``theta_m ~ N(0, 1)`` is a player's strength; the winner of a match beats the loser with probability
``sigmoid(theta_winner - theta_loser)``.
"""

from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar_studies.models.checks import numbers
from lowvar_studies.models.linear.designs import Pairs
from lowvar_studies.models.linear.links import Bernoulli
from lowvar_studies.models.linear.problem import LinearProblem, linear, standard_normal

DATA = ("winner", "loser", "players")  # arrays that the model needs


def model(winner, loser, players, batch_size=None):
    """The NumPyro model.

    Args:
        winner: the player who won each match, ``(N,)`` integers from 0.
        loser: the player who lost, ``(N,)``.
        players: number of players.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    theta: Any = numpyro.sample("theta", dist.Normal(0, 1).expand([players]).to_event(1))
    with numpyro.plate("data", winner.shape[0], subsample_size=batch_size) as index:
        won = np.ones(index.shape, np.int32)
        numpyro.sample("y", dist.Bernoulli(logits=theta[winner[index]] - theta[loser[index]]), obs=won)


def problem(arrays, backend: str = "jax", name: str = "bradley_terry") -> LinearProblem:
    """The model on data ``{"winner": (N,), "loser": (N,), "players": ()}``, in either backend.

    The data are integers, so the floating type is JAX's default.

    Args:
        arrays: the data.
        backend: ``"jax"`` or ``"torch"``.
        name: name in reports.
    """
    import jax.numpy as jnp

    ops = get(backend)
    players, dtype = int(arrays["players"]), np.dtype(jnp.zeros(0).dtype)
    rows = len(arrays["winner"])
    winner, loser = (numbers(arrays[key], rows, players, name, key) for key in ("winner", "loser"))
    design = Pairs(ops, ops.asarray(winner), ops.asarray(loser), players)
    link = Bernoulli(ops, ops.asarray(np.ones(rows, dtype)))
    prior, sites = standard_normal(ops, players), {"theta": slice(0, players)}
    return linear(name, rows, dtype, design, link, *prior, sites=sites, quadratic_prior=True)
