"""Binary logistic regression with a standard Gaussian prior: a NumPyro model, and its fused implementation.

``z ~ N(0, I)``, ``y_n ~ Bernoulli(sigmoid(x_n . z))``, no intercept.
"""

import numpy as np

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.designs import Dense
from lowvar.vi.linear import LinearProblem, linear, standard_normal
from lowvar.vi.links import Bernoulli
from lowvar_studies.models.split import held_out

DATA = ("x", "y")  # arrays that the model needs


def model(x, y=None, batch_size=None):
    """The NumPyro model.

    Args:
        x: features, ``(N, d)``.
        y: labels in {0, 1}, ``(N,)``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    z = numpyro.sample("z", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        labels = None if y is None else y[index]
        numpyro.sample("y", dist.Bernoulli(logits=x[index] @ z), obs=labels)


def problem(arrays, backend: str = "jax", name: str = "logistic_regression") -> LinearProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in {0, 1}}``, in either backend.

    ``test_x`` and ``test_y`` in the data are the test rows.
    """
    ops = get(backend)
    if len(arrays["x"]) != len(arrays["y"]):
        raise UserError(f"{name}: x has {len(arrays['x'])} rows and y {len(arrays['y'])}; they must agree")
    x = ops.asarray(arrays["x"])

    def link(y):
        return Bernoulli(ops, ops.asarray(np.where(np.asarray(y) == 1, 1.0, -1.0), like=x))

    test = held_out(arrays, name, lambda x: Dense(ops, ops.asarray(x)), link)
    prior = standard_normal(ops, x.shape[1])
    design = Dense(ops, x)
    return linear(
        name, len(x), arrays["x"].dtype, design, link(arrays["y"]), *prior, quadratic_prior=True, held_out=test
    )
