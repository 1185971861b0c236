"""Adam for local latent variables, each row by its own visits."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def row_adam(step_size, rows: Any, b1=0.9, b2=0.999, eps=1e-8) -> optax.GradientTransformation:
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
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: added to the root of the second moment.

    References:
        Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1; Zhou et al., "AdaShift:
        decorrelation and convergence of adaptive learning rate methods", 2019, for the bias.
    """
    N, d = rows.own.shape

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
