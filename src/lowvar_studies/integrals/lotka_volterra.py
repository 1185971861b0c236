"""Posterior abundance of hares or lynxes: a Lotka-Volterra system fitted to 21 years of their pelts."""

from functools import lru_cache
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError, check_known
from lowvar_studies.datasets.load import Prepared
from lowvar_studies.integrals.importance import posterior_means
from lowvar_studies.integrals.ode import trajectory
from lowvar_studies.integrals.problem import IntegralProblem, Truth, measurements
from lowvar_studies.integrals.rowwise import remembered, rowwise

PARAMETERS = ("alpha", "beta", "delta", "gamma", "v_1(0)", "v_2(0)", "sigma_1", "sigma_2")  # logarithms of these
PRIOR_MEAN = np.array([0, -3, -3, 0, np.log(10), np.log(10), -1, -1])
PRIOR_DEVIATION = np.array([0.5] * 4 + [1.0] * 4)
SERIES = ("hare", "lynx")
BEGIN = 1900.0
START = np.log([0.55, 0.028, 0.024, 0.80, 34.0, 5.9, 0.25, 0.25])
TASK_TIMES = np.round(1912 + 0.2 * np.arange(20), 1)  # union of all sets of tasks
FIRST_TIME = {  # (second set, tasks) -> year
    (False, 2): 1913.0,
    (False, 5): 1912.0,
    (False, 10): 1912.0,
    (True, 2): 1915.0,
    (True, 5): 1915.0,
    (True, 10): 1914.0,
}
POINTS = 16384  # points per scramble of the truth
Observations = Literal["published", "simulated"]
Species = Literal["hare", "lynx"]
_SAMPLING, _EXACT = 1e-7, 1e-8  # tolerances of the ODE solver for samplers, and for reported values
_ABSURD = -1e10  # log density where the ODE solver fails


def lotka_volterra(
    data: Prepared | None = None,
    tasks: int = 2,
    second: bool = False,
    observations: Observations = "published",
    species: Species = "hare",
) -> IntegralProblem:
    """``v_1' = alpha v_1 - beta v_1 v_2``, ``v_2' = delta v_1 v_2 - gamma v_2``; means of ``v_i(s)``.

    ``v_1`` are the hares and ``v_2`` the lynxes, from 1900 on, both observed with log-normal noise. A point holds the
    logarithms of the parameters, in the order of ``PARAMETERS``, with independent normal priors. Both initial states
    are exponentials; the paper prints none for ``v_2``. All tasks share their points. Where the ODE solver fails, the
    log density is -1e10 and the values are NaN.

    Args:
        data: the prepared dataset ``hudson_bay``; not needed for simulated observations.
        tasks: number of times ``s``, 2, 5 or 10, at intervals of 0.2 years.
        second: use the second set of times, which starts in 1915 (1914 for ten tasks) rather than in 1913 (1912).
        observations: ``published``, or ``simulated`` from the same model near the posterior's mean.
        species: the integrands are ``v_1(s)`` (hare) or ``v_2(s)`` (lynx). The paper names ``v_1`` for both sets of
            times; the errors that it prints for the second one are those of ``v_2``.

    Raises:
        UserError: another value of an option, or another dataset.

    References:
        Sun, Barp and Briol, Section 5.3, Appendices E.6 and E.6.1.
    """
    check_known("observations", observations, get_args(Observations), where="lotka_volterra")
    check_known("species", species, get_args(Species), where="lotka_volterra")
    if (second, tasks) not in FIRST_TIME:
        raise UserError(f"lotka_volterra: tasks {tasks!r}, second {second!r}; tasks must be 2, 5 or 10")
    if observations == "simulated":
        times, seen = np.arange(BEGIN, BEGIN + 21), _simulated()
    else:
        times, seen = measurements(data, "hudson_bay", SERIES)
    first = round((FIRST_TIME[second, tasks] - TASK_TIMES[0]) / 0.2)
    chosen = slice(first, first + tasks)
    sampling, score_and_states = _programs(tuple(times), tuple(map(tuple, seen)))
    column = SERIES.index(species)

    def truth(effort):
        points = 2 ** int(np.ceil(np.log2(POINTS * max(effort, 1))))
        return true_means(times, seen, TASK_TIMES[chosen], points=points, column=column)

    return IntegralProblem(
        name="lotka_volterra",
        dim=len(PARAMETERS),
        tasks=tuple(f"{species} {time:.1f}" for time in TASK_TIMES[chosen]),
        target=(0,) * tasks,
        log_densities=(sampling,),
        value=lambda t, points: score_and_states(points)[1][:, first + t, column],
        score=lambda k, points: score_and_states(points)[0],
        truth=truth,
        samplers=("nuts",),
        start=(START,),
        shared=True,
        about={
            "times": times,
            "observations": seen,
            "series": SERIES,
            "task_times": TASK_TIMES[chosen],
            "solve": solve,
        },
    )


@lru_cache(maxsize=2)
def _programs(times, seen):
    """The log density for a sampler, and score and both species at all ``TASK_TIMES``, for every choice of tasks."""
    every = np.unique(np.concatenate([times, TASK_TIMES]))
    at_times, at_tasks = np.searchsorted(every, times), np.searchsorted(every, TASK_TIMES)
    logs = np.log(seen)
    loose, exact = _log_states(times, _SAMPLING, "tsit5"), _log_states(every, _EXACT, "dopri8")

    def log_density(x, states):
        fine = jnp.all(jnp.isfinite(states))
        z = (jnp.asarray(logs) - jnp.where(fine, states, 0)) / jnp.exp(x[6:])[None]
        likelihood = -0.5 * jnp.sum(z * z) - len(logs) * jnp.sum(x[6:])
        return jnp.where(fine, likelihood + _log_prior(x), _ABSURD)

    def log_density_and_states(x):
        states = exact(x[:6])
        return log_density(x, states[at_times]), jnp.exp(states[at_tasks])

    def sampling(x):
        return log_density(x, loose(x[:6]))

    return jax.jit(sampling), remembered(rowwise(jax.grad(log_density_and_states, has_aux=True)))


def solve(points: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Hares and lynxes ``(n, k, 2)`` for points ``(n, 8)`` at ``times (k,)``, in years, increasing from 1900."""
    return np.exp(rowwise(lambda x: _log_states(times, _EXACT, "dopri8")(x[:6]))(points))


def true_means(
    times: np.ndarray,
    seen: np.ndarray,
    asked: np.ndarray,
    *,
    points: int,
    column: int = 0,
    scrambles: int = 16,
    rounds=None,
) -> Truth:
    """Posterior means of the hares or lynxes at ``asked``, with the two noise parameters integrated out.

    Given the other six parameters, the likelihood of each series depends on the sum of its squared residuals alone,
    and a trapezoidal rule integrates it over the logarithm of the noise. ``posterior_means`` handles the other six.

    Args:
        times: years of the observations ``(n,)``.
        seen: observations ``(n, 2)``.
        asked: years ``(T,)``.
        points: Sobol points per scramble, a power of two.
        column: 0 for the hares, 1 for the lynxes.
        scrambles: number of scrambles.
        rounds: see ``posterior_means``.
    """
    every = np.unique(np.concatenate([times, asked]))
    solution = _log_states(every, _EXACT, "dopri8")
    at_times, at_asked = np.searchsorted(every, times), np.searchsorted(every, asked)
    noise = np.arange(-6.0, 6.01, 0.05)  # log standard deviations

    def evaluate(x):
        states = solution(x)
        fine = jnp.all(jnp.isfinite(states))
        states = jnp.where(fine, states, 0)
        squares = jnp.sum((jnp.asarray(np.log(seen)) - states[at_times]) ** 2, 0)
        grid = jnp.asarray(noise)[:, None]
        prior = ((grid - PRIOR_MEAN[-1]) / PRIOR_DEVIATION[-1]) ** 2
        exponent = -len(times) * grid - 0.5 * jnp.exp(-2 * grid) * squares[None] - 0.5 * prior
        marginal = jnp.sum(jax.scipy.special.logsumexp(exponent, axis=0))
        return jnp.where(fine, marginal + _log_prior(x), _ABSURD), jnp.exp(states[at_asked, column])

    more = {} if rounds is None else {"rounds": rounds}
    value, error, effective = posterior_means(
        rowwise(evaluate, chunk=1024), START[:6], np.full(6, 0.1), points=points, scrambles=scrambles, **more
    )
    how = (
        f"importance sampling, noise parameters integrated out: {scrambles} scrambles of {points} Sobol points, "
        f"{100 * effective:.0f} % effective, whose spread gives the error; solver's tolerance {_EXACT:g}"
    )
    return Truth(value, error, how)


def _log_prior(x):
    """Log density of the prior of the first coordinates ``x (k,)``, up to a constant."""
    z = (x - jnp.asarray(PRIOR_MEAN[: x.shape[0]])) / jnp.asarray(PRIOR_DEVIATION[: x.shape[0]])
    return -0.5 * jnp.sum(z * z)


def _log_states(times, tolerance, method):
    """``x (6,) -> `` logarithms ``(k, 2)`` of hares and lynxes; solving for logarithms keeps the states positive."""

    def field(time, state, rates):
        alpha, beta, delta, gamma = rates
        hare, lynx = jnp.exp(state)
        return jnp.stack([alpha - beta * lynx, delta * hare - gamma])

    return trajectory(field, lambda x: (x[4:], jnp.exp(x[:4])), times, tolerance=tolerance, method=method, begin=BEGIN)


def _simulated():
    from scipy.integrate import solve_ivp

    rates, times = np.exp(START), np.arange(21.0)

    def field(time, state):
        hare, lynx = state
        return [(rates[0] - rates[1] * lynx) * hare, (rates[2] * hare - rates[3]) * lynx]

    states = solve_ivp(field, (0, 20), rates[4:6], "DOP853", times, rtol=1e-10, atol=1e-10).y.T
    return states * np.exp(rates[6:] * np.random.default_rng(21).standard_normal(states.shape))
