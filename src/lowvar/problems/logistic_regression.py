"""Binary logistic regression with a standard Gaussian prior: a NumPyro model and its PyTorch twin.

``z ~ N(0, I)``, ``y_n ~ Bernoulli(sigmoid(x_n . z))``, no intercept.
"""

import dataclasses

import numpy as np

from lowvar.backends import get
from lowvar.errors import UserError
from lowvar.problems.glm import exact_elbo
from lowvar.problems.numpyro_model import from_numpyro
from lowvar.problems.variational import VariationalProblem


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


def problem(arrays, backend: str = "jax", name: str = "logistic_regression") -> VariationalProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in {0, 1}}``, in either backend."""
    ops = get(backend)
    if len(arrays["x"]) != len(arrays["y"]):
        raise UserError(f"{name}: x has {len(arrays['x'])} rows and y {len(arrays['y'])}; they must agree")
    x, sign = ops.asarray(arrays["x"]), ops.asarray(np.where(np.asarray(arrays["y"]) == 1, 1.0, -1.0))
    sign = ops.asarray(sign, like=x)
    if backend == "jax":
        data = {"x": x, "y": ops.asarray(np.asarray(arrays["y"]).astype(np.int32))}
        made = from_numpyro(model, data, name=name)
    else:
        made = _twin(ops, x, sign, name)
    return dataclasses.replace(made, exact_elbo=exact_elbo(ops, x, sign, made.guide))


def _twin(ops, x, sign, name):
    import torch

    N, dim = x.shape

    def log_likelihood(z, index):
        predictor = sign[index] * (x[index] @ z)
        return -torch.logaddexp(-predictor, torch.zeros_like(predictor))

    def log_prior(z):
        return -0.5 * torch.sum(z * z) - 0.5 * dim * np.log(2 * np.pi)

    dtype = {torch.float32: np.float32, torch.float64: np.float64}[x.dtype]
    return VariationalProblem(name, ops, N, dim, log_likelihood, log_prior, sites={"z": slice(0, dim)}, dtype=dtype)
