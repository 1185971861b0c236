"""Thermodynamic integration: the evidence of a van der Pol oscillator from means and squares at 31 temperatures."""

from functools import lru_cache
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError, check_known
from lowvar_studies.datasets.load import Prepared
from lowvar_studies.integrals.ode import trajectory
from lowvar_studies.integrals.problem import IntegralProblem, Tempering, Truth, measurements
from lowvar_studies.integrals.rowwise import remembered, rowwise

LADDER = (np.arange(31) / 30) ** 5
PRIOR_DEVIATION = 0.25  # prior standard deviation of log x, whose mean is 0
NOISE = 0.1
START = (0.0, 2.0)
TIMES = np.arange(11.0)
NODES = 2001  # nodes of the trapezoidal rule, up to 9 standard deviations of the prior
Observations = Literal["published", "simulated"]
_ABSURD = -1e10  # log-likelihood where the ODE solver fails
_SAMPLING, _EXACT = 1e-7, 1e-10  # tolerances of the ODE solver for samplers, and for reported values


def van_der_pol(
    data: Prepared | None = None, observations: Observations = "published", constants: int = 1
) -> IntegralProblem:
    """``u'' - x (1 - u^2) u' + u = 0``, noisy observations of ``u`` at times 0 to 10, and its log evidence.

    Target ``k`` is the power posterior ``p(y | x)^t p(x)`` at ``t = LADDER[k]``, ``x > 0`` with ``log x ~ N(0,
    0.25^2)``. Tasks ``mean 01`` to ``mean 31`` are means of the log-likelihood, ``square 01`` to ``square 31`` those of
    its square. ``derived`` computes ``log_evidence`` from their values by the trapezoidal rule, corrected with the
    derivatives, which are the variances.

    Args:
        data: the prepared dataset ``van_der_pol``; not needed for simulated observations.
        observations: ``published``, or ``simulated`` from the same model with parameter 1.
        constants: how often the log-likelihood contains ``-11/2 log(2 pi 0.1^2)``. Once is correct; the log evidence
            published as the truth, 25.58, contains it twice.

    Raises:
        UserError: another value of an option, or another dataset.

    References:
        Sun, Barp and Briol, Section 5.2 and Appendix E.5 (where the sum runs to ``w``: it must end at ``w - 1``);
        Oates, Papamarkou and Girolami (2016); Friel, Hurn and Wyse (2014).
    """
    check_known("observations", observations, get_args(Observations), where="van_der_pol")
    if constants not in (1, 2):
        raise UserError(f"van_der_pol: constants {constants!r}; it must be 1, or 2 for the published evidence")
    if observations == "simulated":
        times, seen = TIMES, _simulated()
    else:
        times, columns = measurements(data, "van_der_pol", ("u1",))
        seen = columns[:, 0]
    constant = -constants * len(seen) / 2 * np.log(2 * np.pi * NOISE**2)
    loose_misfit, misfit = _programs(tuple(times), tuple(seen))

    def sampling(x):
        return constant + loose_misfit(x)

    def log_likelihood(points):
        return constant + misfit(points)[0]

    count = len(LADDER)

    def log_density(t):
        return lambda x: t * sampling(x) - jnp.log(x[0]) - 0.5 * (jnp.log(x[0]) / PRIOR_DEVIATION) ** 2

    def value(t, points):
        found = log_likelihood(points)
        return found if t < count else found**2

    def score(k, points):
        return LADDER[k] * misfit(points)[1] - (1 + np.log(points) / PRIOR_DEVIATION**2) / points

    def truth(effort):
        moments, evidence = by_quadrature(log_likelihood, *trapezoid(9, NODES))
        how = f"trapezoidal rule in log x, {NODES} nodes; solver's tolerance {_EXACT:g}"
        return Truth(moments, np.zeros(2 * count), how, {"log_evidence": (evidence, 0.0)})

    numbers = [f"{k:02d}" for k in range(1, count + 1)]
    return IntegralProblem(
        name="van_der_pol",
        dim=1,
        tasks=(*(f"mean {n}" for n in numbers), *(f"square {n}" for n in numbers)),
        target=(*range(count), *range(count)),
        log_densities=tuple(log_density(t) for t in LADDER),
        value=value,
        score=score,
        truth=truth,
        samplers=("tempered",),
        start=(np.ones(1),) * count,
        tempering=Tempering(
            LADDER, lambda z: sampling(jnp.exp(PRIOR_DEVIATION * z)), lambda z: jnp.exp(PRIOR_DEVIATION * z)
        ),
        groups=tuple(
            tuple(first + k for k in range(start, min(start + 4, count)))
            for first in (0, count)
            for start in range(0, count, 4)
        ),
        derived={"log_evidence": log_evidence},
        about={
            "ladder": LADDER,
            "observations": seen,
            "times": times,
            "series": ("u",),
            "task_times": (),
            "solve": solve,
            "posterior": count - 1,
        },
    )


@lru_cache(maxsize=4)
def _programs(times, seen):
    """``-1/2 sum ((y - u) / noise)^2``: in JAX for a sampler; in NumPy with its derivative, at the exact tolerance."""

    def misfit(tolerance, method):
        solution = _solution(times, tolerance, method)

        def at(x):
            states = solution(x)
            fine = jnp.all(jnp.isfinite(states))
            z = (jnp.asarray(seen) - jnp.where(fine, states[:, 0], 0)) / NOISE
            return jnp.where(fine, -0.5 * jnp.sum(z * z), _ABSURD)

        return at

    return jax.jit(misfit(_SAMPLING, "tsit5")), remembered(rowwise(jax.value_and_grad(misfit(_EXACT, "dopri8"))))


def solve(points: np.ndarray, times: np.ndarray) -> np.ndarray:
    """``u`` at given times, for parameters ``(n, 1)``: ``(n, s, 1)``.

    >>> solve(np.ones((2, 1)), np.arange(3.0))[:, 0, 0].tolist()  # the initial value
    [0.0, 0.0]
    """
    return rowwise(_solution(times, _EXACT, "dopri8"))(points)[:, :, :1]


def log_evidence(values: np.ndarray) -> np.ndarray:
    """The log evidence ``(R,)`` from means and squares of the log-likelihood ``(R, 62)`` along the ladder.

    ``sum_i (t_{i+1} - t_i) / 2 (mu_{i+1} + mu_i) - (t_{i+1} - t_i)^2 / 12 (v_{i+1} - v_i)``.
    """
    mean, square = np.split(np.asarray(values), 2, axis=1)
    variance, gap = square - mean**2, np.diff(LADDER)
    return (gap / 2 * (mean[:, 1:] + mean[:, :-1]) - gap**2 / 12 * np.diff(variance)).sum(1)


def by_quadrature(log_likelihood, z: np.ndarray, log_weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Means and squares at every temperature ``(62,)``, and the log evidence.

    Args:
        log_likelihood: NumPy ``(n, 1) -> (n,)``.
        z: nodes ``(n,)`` of a rule for the standard normal density, the density of the scaled ``log x``.
        log_weight: ``(n,)``, log weights of the nodes.
    """
    likelihoods = log_likelihood(np.exp(PRIOR_DEVIATION * z)[:, None])
    log_posterior = log_weight + LADDER[:, None] * likelihoods
    highest = log_posterior.max(1, keepdims=True)
    weight = np.exp(log_posterior - highest)
    total = weight.sum(1)
    moments = np.concatenate([weight @ likelihoods / total, weight @ likelihoods**2 / total])
    return moments, float(highest[-1, 0] + np.log(total[-1]))


def trapezoid(half_width: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes ``(n,)`` and log weights ``(n,)`` of the trapezoidal rule for ``E f(Z)``, ``Z ~ N(0, 1)``.

    For smooth ``f`` of slow growth, the error falls faster than any power of the spacing, down to the contribution of
    the tails beyond ``half_width`` standard deviations.

    >>> z, log_weight = trapezoid(9, 100)
    >>> round(float(np.exp(log_weight) @ z**4), 10)
    3.0
    """
    z = np.linspace(-half_width, half_width, nodes)
    return z, -0.5 * z**2 + np.log(z[1] - z[0]) - 0.5 * np.log(2 * np.pi)


def _solution(times, tolerance, method):
    def field(time, state, x):
        return jnp.stack([state[1], x[0] * (1 - state[0] ** 2) * state[1] - state[0]])

    return trajectory(field, lambda x: (jnp.array(START, x.dtype), x), times, tolerance=tolerance, method=method)


def _simulated():
    from scipy.integrate import solve_ivp

    def field(time, state):
        return [state[1], (1 - state[0] ** 2) * state[1] - state[0]]

    solution = solve_ivp(field, (0, 10), START, "DOP853", TIMES, rtol=1e-10, atol=1e-10)
    return solution.y[0] + NOISE * np.random.default_rng(11).standard_normal(len(TIMES))
