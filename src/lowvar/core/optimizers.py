"""Optimizers by name, from the backend's namespace, with a schedule, and with an average of the iterates.

All follow optax's protocol: ``init(params) -> state`` and ``update(gradient, state, params) -> (updates, state)``.
A step size may be a traced scalar, so one program runs a whole grid of them.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lowvar.errors import UserError
from lowvar.registry import Registry


def _scheduled(backend, inner, eta_at):
    """``inner`` with its updates multiplied by ``eta_t``; updates of lowvar's optimizers are proportional to it."""
    xp = backend.xp

    def init(params):
        return {"of": inner.init(params), "t": xp.sum(xp.zeros_like(next(iter(params.values()))))}

    def update(updates, state, params=None):
        updates, of = inner.update(updates, state["of"], params)
        eta = backend.asarray(eta_at(state["t"], xp), like=state["t"])  # a caller's may be in float64
        return backend.tree_map(lambda u: eta * u, updates), {"of": of, "t": state["t"] + 1}

    return optax.GradientTransformation(init, update)


def _cast(backend, transformation):
    """``transformation`` with updates cast to the gradient's dtype: an optax schedule may promote them to float64."""

    def update(updates, state, params=None):
        raw, state = transformation.update(updates, state, params)
        return backend.tree_map(lambda u, g: backend.asarray(u, like=g), raw, updates), state

    return optax.GradientTransformation(transformation.init, update)


def _adam(backend, step_size, rows=None):
    return backend.optimizers.adam(step_size) if rows is None else row_adam(step_size, rows)


_LATE = 6  # the weight of step t in an average grows as t to this power: a quarter of the steps count


class Averaged(NamedTuple):
    """The state of an optimizer whose iterates are averaged.

    Attributes:
        of: the optimizer's own state.
        mean: the average of the parameters.
        steps: their number, by coordinate where a step moves some of them alone.
    """

    of: Any
    mean: Any
    steps: Any


def _averaged(backend, inner, rows=None):
    """``inner``, with the average of its iterates in its state; the iterates themselves are the same.

    At a constant step size the iterates fluctuate around the optimum. Their average comes closer to it, at any number
    of steps, and hardly contains the way there.

    References:
        Shamir and Zhang, "Stochastic gradient descent for non-smooth optimization", 2013, eq. 4; Polyak and Juditsky,
        "Acceleration of stochastic approximation by averaging", 1992.
    """
    xp = backend.xp

    def init(params):
        first = xp.zeros_like(next(iter(params.values())))
        mean = backend.tree_map(lambda leaf: xp.asarray(leaf, copy=True), params)
        return Averaged(inner.init(params), mean, xp.sum(first) if rows is None else first)

    def update(updates, state, params=None):
        updates, of = inner.update(updates, state.of, params)
        share = (_LATE + 1) / (state.steps + 1 + _LATE)  # (4), of the new iterate
        mean = backend.tree_map(lambda m, p, u: m + share * (p + u - m), state.mean, params, updates)
        return updates, Averaged(of, mean, state.steps + 1)

    return optax.GradientTransformation(init, update)


def answer(state):
    """The parameters that a solver's state stands for: the average of the iterates, if there is one, or the last."""
    of = getattr(state, "optimizer", None)
    return of.mean if isinstance(of, Averaged) else state.params


OPTIMIZERS = Registry(
    "optimizer",
    {"sgd": lambda backend, step_size, rows=None: backend.optimizers.sgd(step_size), "adam": _adam},
    given=("backend", "step_size", "rows"),
)


def optimizer(
    name: str | optax.GradientTransformation, step_size, backend, schedule=None, rows=None, average=False
) -> optax.GradientTransformation:
    """The optimizer called ``name`` with ``step_size``, for arrays of ``backend``.

    Args:
        name: as in specs; or an optax transformation, which has its own step size.
        step_size: a number, or a traced scalar.
        backend: the backend of the arrays.
        schedule: ``(t, xp) -> eta_t``, as of a ``Schedule``, multiplies the updates; constant if not given.
        rows: the ``Rows`` of local latent variables, if the problem has any.
        average: whether its state has the average of the iterates, see ``answer``.

    Raises:
        UserError: unknown name, or a step size that is not positive.
    """
    if (
        isinstance(name, str)
        and isinstance(step_size, int | float)
        and not (step_size > 0 and math.isfinite(step_size))
    ):
        raise UserError(f"step size {step_size}: it must be positive")
    transformation = OPTIMIZERS.get(name)(backend, step_size, rows) if isinstance(name, str) else _cast(backend, name)
    transformation = transformation if schedule is None else _scheduled(backend, transformation, schedule)
    return _averaged(backend, transformation, rows) if average else transformation


def row_adam(step_size, rows: Any) -> optax.GradientTransformation:
    """Adam on the vectors of batches: moments and bias corrections of a row count the visits of that row.

    Dense Adam lets the moments of a row decay in all of the ``S = N / B`` steps from one visit to the next. Its second
    moment at a visit then consists to a share ``(1 - b2) / (1 - b2^S)`` of the present gradient, which is divided by
    the root of that moment: for gradients of skewed distribution, as those of ``log_sigma`` are, this is a bias that no
    number of steps removes. Here the share is ``1 - b2``, as with a full batch. The step of a row is multiplied by the
    distance that dense Adam moves it from one visit to the next, in step sizes, while its gradient stays the same,

        sqrt((1 - b2^S) / (1 - b2)) (1 - b1) / (1 - b1^S) (1 - r^S) / (1 - r),   r = b1 / sqrt(b2):

    about ``sqrt(S)`` up to ``S = 300``, 25 at 1000, and at most 32. For the shared variables, and with ``S = 1``, this
    is Adam.

    Args:
        step_size: a number, or a traced scalar.
        rows: the ``Rows`` of the model: where the coordinates of rows are in a batch's vector.

    References:
        Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1; Zhou et al., "AdaShift:
        decorrelation and convergence of adaptive learning rate methods", 2019, for the bias.
    """
    (N, d), b1, b2, eps = rows.own.shape, 0.9, 0.999, 1e-8  # decays of the moments; eps is added to the root

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return {"m": zeros, "v": zeros, "visits": next(iter(zeros.values()))}

    def update(updates, state, params=None):
        size = (len(state["visits"]) - len(rows.shared)) // d
        S, r = -(-N // size), b1 / b2**0.5
        far = ((1 - b2**S) / (1 - b2)) ** 0.5 * (1 - b1) / (1 - b1**S) * (1 - r**S) / (1 - r)
        visits = state["visits"] + 1
        step = step_size * rows.by_row(jnp.full(size, far, visits.dtype))
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], updates)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], updates)

        def moved(m, v):
            return -step * (m / (1 - b1**visits)) / (jnp.sqrt(v / (1 - b2**visits)) + eps)

        return jax.tree.map(moved, m, v), {"m": m, "v": v, "visits": visits}

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]
