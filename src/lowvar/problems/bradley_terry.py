"""The Bradley-Terry model of paired comparisons: NumPyro models, and their fused implementations.

``theta_m ~ N(0, 1)`` is a player's strength; the winner of a match beats the loser with probability
``sigmoid(theta_winner - theta_loser)``. With a scale, ``player_sd ~ HalfNormal(1)`` and
``theta_m ~ N(0, player_sd^2)``.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from lowvar.backends import get
from lowvar.errors import UserError
from lowvar.problems.designs import Pairs
from lowvar.problems.linear import LinearProblem, linear, standard_normal
from lowvar.problems.links import Bernoulli

_LOG_2PI = math.log(2 * math.pi)

DATA = ("winner", "loser", "players")  # arrays that the model needs


def model(winner, loser, players, scale=False, batch_size=None):
    """The NumPyro model.

    Args:
        winner: the player who won each match, ``(N,)`` integers from 0.
        loser: the player who lost, ``(N,)``.
        players: number of players.
        scale: whether the strengths' standard deviation is latent too.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    sd = numpyro.sample("player_sd", dist.HalfNormal(1.0)) if scale else 1.0
    theta: Any = numpyro.sample("theta", dist.Normal(0, sd).expand([players]).to_event(1))
    with numpyro.plate("data", winner.shape[0], subsample_size=batch_size) as index:
        won = np.ones(index.shape, np.int32)
        numpyro.sample("y", dist.Bernoulli(logits=theta[winner[index]] - theta[loser[index]]), obs=won)


def problem(arrays, backend: str = "jax", name: str = "bradley_terry", scale: bool = False) -> LinearProblem:
    """The model on data ``{"winner": (N,), "loser": (N,), "players": ()}``, in either backend.

    The data are integers, so the floating type is JAX's default.

    Args:
        arrays: the data.
        backend: ``"jax"`` or ``"torch"``.
        name: name in reports.
        scale: whether ``z`` starts with ``log player_sd``.
    """
    import jax.numpy as jnp

    ops = get(backend)
    players, dtype = int(arrays["players"]), np.dtype(jnp.zeros(0).dtype)
    winner, loser = (_players(arrays[key], key, players, name) for key in ("winner", "loser"))
    if len(winner) != len(loser):
        raise UserError(f"{name}: winner has {len(winner)} rows and loser {len(loser)}; they must agree")
    first = int(scale)
    design = Pairs(ops, ops.asarray(winner + first), ops.asarray(loser + first), players + first)
    link = Bernoulli(ops, ops.asarray(np.ones(len(winner), dtype)))
    prior = _with_scale(ops, players) if scale else standard_normal(ops, players)
    sites = {"theta": slice(first, first + players)}
    if scale:
        sites = {"player_sd": slice(0, 1), **sites}
    return linear(name, len(winner), dtype, design, link, *prior, sites=sites, quadratic_prior=not scale)


problem_with_scale = partial(problem, scale=True)


def _with_scale(ops, players):
    """``log p(log player_sd, theta)`` with the logarithm's Jacobian, and its mean under a mean-field guide."""
    xp = ops.xp
    constant = math.log(2) - 0.5 * (players + 1) * _LOG_2PI

    def log_prior(z):
        u, theta = z[0], z[1:]
        return constant - 0.5 * xp.exp(2 * u) + (1 - players) * u - 0.5 * xp.exp(-2 * u) * xp.sum(theta * theta)

    def expected_log_prior(params):
        mu, variance = params["mu"], xp.exp(2 * params["log_sigma"])
        u, theta_squared = mu[0], xp.sum(mu[1:] ** 2 + variance[1:])
        square, inverse_square = xp.exp(2 * u + 2 * variance[0]), xp.exp(-2 * u + 2 * variance[0])
        return constant - 0.5 * square + (1 - players) * u - 0.5 * inverse_square * theta_squared

    return log_prior, expected_log_prior


def _players(who, key, players, name):
    who = np.asarray(who)
    if who.dtype.kind not in "iu" or who.ndim != 1:
        raise UserError(f"{name}: {key} must be a vector of player numbers, not {who.dtype} of shape {who.shape}")
    if who.size and (who.min() < 0 or who.max() >= players):
        bad = who[(who < 0) | (who >= players)][0]
        raise UserError(f"{name}: {key} has player {bad}, but there are {players} players, counted from 0")
    return who.astype(np.int32)
