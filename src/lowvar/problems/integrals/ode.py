"""Solutions of ordinary differential equations as functions of their parameters, with derivatives that are cheap."""

from collections.abc import Callable

import diffrax
import jax
import jax.numpy as jnp

METHODS = {"tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8}  # loose tolerances, tight ones


def trajectory(
    field: Callable,
    problem: Callable,
    times,
    *,
    tolerance: float,
    method: str = "dopri8",
    begin: float = 0.0,
    first_step: float = 0.05,
    steps: int = 4096,
) -> Callable:
    """``theta (p,) -> states (k, n)`` at ``times (k,)``, NaN throughout where the solver gave up.

    Derivatives in ``theta``, of either mode, are those of the forward sensitivities: with few parameters and few
    points at once they are faster than going back through the solver, and compile in half the time.

    Args:
        field: ``(time, state (n,), arguments) -> (n,)``.
        problem: ``theta -> (initial state (n,), arguments)``.
        times: ``(k,)``, rising, none before ``begin``.
        tolerance: of each step, relative and absolute.
        method: of ``METHODS``.
        begin: time of the initial state.
        first_step: length of the first step that is tried.
        steps: at most so many of them.
    """
    controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)
    end = float(times[-1])

    def states(theta):
        start, arguments = problem(theta)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            METHODS[method](),
            begin,
            end,
            first_step,
            start,
            arguments,
            saveat=diffrax.SaveAt(ts=jnp.asarray(times, start.dtype)),
            stepsize_controller=controller,
            max_steps=steps,
            throw=False,
            adjoint=diffrax.ForwardMode(),
        )
        found = solution.ys
        assert found is not None  # SaveAt asked for them
        return jnp.where(solution.result == diffrax.RESULTS.successful, found, jnp.nan)

    return _with_forward_derivatives(states)


def _with_forward_derivatives(function: Callable) -> Callable:
    """``function``, whose derivatives are products with its Jacobian, found by forward mode; 0 where not finite."""

    def twice(theta):
        value = function(theta)
        return value, value

    wrapped = jax.custom_jvp(function)

    @wrapped.defjvp
    def _(primals, tangents):
        jacobian, value = jax.jacfwd(twice, has_aux=True)(*primals)
        return value, jnp.dot(jnp.where(jnp.isfinite(jacobian), jacobian, 0), *tangents)

    return wrapped
