"""Solutions of ordinary differential equations as functions of their parameters, with derivatives that are cheap."""

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
    """``theta (p,) -> states (k, n)`` at ``times (k,)``, NaN throughout where the solver gave up.

    The solver goes from time to time, so that no state is interpolated, and takes its step along. Derivatives in
    ``theta``, of either mode, are those of the forward sensitivities: with few parameters and few points at once they
    are faster than going back through the solver, and compile in half the time.

    Args:
        field: ``(time, state (n,), arguments) -> (n,)``.
        problem: ``theta -> (initial state (n,), arguments)``.
        times: ``(k,)``, rising, none before ``begin``.
        tolerance: of each step, relative and absolute.
        method: of ``METHODS``.
        begin: time of the initial state.
        steps: at most so many of them from one time to the next.
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
                jnp.where(fine, last, first),  # nowhere to go once it gave up
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
        (_, _, fine), found = lax.scan(leg, (start, step, jnp.asarray(True)), legs)
        found = jnp.concatenate([start[None], found]) if at_begin else found
        return jnp.where(fine, found, jnp.nan)

    return _with_forward_derivatives(states)


class _Starting(diffrax.AbstractStepSizeController):
    """A controller whose first step is given.

    ``diffeqsolve`` has an argument for it, but checks it in a way that keeps programs out of JAX's compilation cache;
    so do the times of ``SaveAt``.
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
