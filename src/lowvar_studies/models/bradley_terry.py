"""The Bradley-Terry model of paired comparisons: the NumPyro model, and its fused implementation.

``theta_m ~ N(0, 1)`` is a player's strength; the winner of a match beats the loser with probability
``sigmoid(theta_winner - theta_loser)``.
"""

from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.designs import Pairs
from lowvar.vi.linear import LinearProblem, linear, standard_normal
from lowvar.vi.links import Bernoulli

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
    winner, loser = (_players(arrays[key], key, players, name) for key in ("winner", "loser"))
    if len(winner) != len(loser):
        raise UserError(f"{name}: winner has {len(winner)} rows and loser {len(loser)}; they must agree")
    design = Pairs(ops, ops.asarray(winner), ops.asarray(loser), players)
    link = Bernoulli(ops, ops.asarray(np.ones(len(winner), dtype)))
    prior, sites = standard_normal(ops, players), {"theta": slice(0, players)}
    return linear(name, len(winner), dtype, design, link, *prior, sites=sites, quadratic_prior=True)


def _players(who, key, players, name):
    who = np.asarray(who)
    if who.dtype.kind not in "iu" or who.ndim != 1:
        raise UserError(f"{name}: {key} must be a vector of player numbers, not {who.dtype} of shape {who.shape}")
    if who.size and (who.min() < 0 or who.max() >= players):
        bad = who[(who < 0) | (who >= players)][0]
        raise UserError(f"{name}: {key} has player {bad}, but there are {players} players, counted from 0")
    return who.astype(np.int32)
