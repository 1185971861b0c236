"""Solutions of ordinary differential equations as functions of their parameters, with cheap derivatives."""

from collections.abc import Callable

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

METHODS = {"tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8}  # for loose tolerances, for tight ones


def trajectory(
    field: Callable,
    problem: Callable,
    times,
    *,
    tolerance: float,
    method: str = "dopri8",
    begin: float = 0.0,
    steps: int = 1024,
) -> Callable:
    """``theta (p,) -> states (k, n)`` at ``times (k,)``; all NaN if the solver fails.

    The solver stops at each time, so that no state is interpolated, and keeps its step size. Derivatives in ``theta``,
    in either mode, use forward sensitivities: with few parameters and small batches they are faster than reverse mode
    through the solver, and compile in half the time.

    Args:
        field: ``(time, state (n,), arguments) -> (n,)``.
        problem: ``theta -> (initial state (n,), arguments)``.
        times: ``(k,)``, increasing, none before ``begin``.
        tolerance: relative and absolute tolerance of each step.
        method: one of ``METHODS``.
        begin: time of the initial state.
        steps: maximum number of steps between two times.
    """
    times = np.asarray(times, dtype=np.float64)
    at_begin = int(times[0] == begin)
    ends = times[at_begin:]
    starts = np.concatenate([[begin], ends[:-1]])
    controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)

    def states(theta):
        start, arguments = problem(theta)

        def leg(carry, ends):
            state, step, fine = carry
            first, last = ends
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                METHODS[method](),
                first,
                jnp.where(fine, last, first),  # an empty interval after a failure
                None,
                state,
                arguments,
                saveat=diffrax.SaveAt(t1=True),
                stepsize_controller=_Starting(controller, step),
                max_steps=steps,
                throw=False,
                adjoint=diffrax.ForwardMode(),
            )
            assert solution.ys is not None  # SaveAt asked for them
            taken = jnp.maximum(solution.stats["num_accepted_steps"], 1)
            fine = fine & (solution.result == diffrax.RESULTS.successful)
            return (solution.ys[0], (last - first) / taken, fine), solution.ys[0]

        step = jnp.asarray(0.1 * (ends[0] - begin), start.dtype)
        legs = jnp.asarray(starts, start.dtype), jnp.asarray(ends, start.dtype)
        (_, _, fine), path = lax.scan(leg, (start, step, jnp.asarray(True)), legs)
        path = jnp.concatenate([start[None], path]) if at_begin else path
        return jnp.where(fine, path, jnp.nan)

    return _with_forward_derivatives(states)


class _Starting(diffrax.AbstractStepSizeController):
    """A controller with a given first step.

    The check of ``diffeqsolve``'s own argument for it keeps programs out of JAX's compilation cache, as do the times of
    ``SaveAt``.
    """

    inner: diffrax.PIDController
    first: jax.Array

    def wrap(self, direction):
        return _Starting(self.inner.wrap(direction), self.first)

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        return self.inner.init(terms, t0, t1, y0, lax.stop_gradient(self.first), args, func, error_order)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        return self.inner.adapt_step_size(t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state)


def _with_forward_derivatives(function: Callable) -> Callable:
    """``function`` with derivatives as products with its forward-mode Jacobian; 0 where not finite."""

    def twice(theta):
        value = function(theta)
        return value, value

    wrapped = jax.custom_jvp(function)

    @wrapped.defjvp
    def _(primals, tangents):
        jacobian, value = jax.jacfwd(twice, has_aux=True)(*primals)
        return value, jnp.dot(jnp.where(jnp.isfinite(jacobian), jacobian, 0), *tangents)

    return wrapped
