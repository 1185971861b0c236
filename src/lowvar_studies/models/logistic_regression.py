"""Logistic regression with a standard Gaussian prior, of two classes (also in NumPyro) or several: one fused problem.

Two classes: ``z ~ N(0, I)``, ``y_n ~ Bernoulli(sigmoid(x_n . z))``. Several, as `softmax_regression`: ``Z (d, C) ~
N(0, 1)``, ``y_n ~ Categorical(softmax(x_n Z))``; all ``C`` classes have coefficients. No intercepts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar_studies.models.checks import count_classes, features, numbers
from lowvar_studies.models.linear.designs import Dense
from lowvar_studies.models.linear.links import Bernoulli, Categorical
from lowvar_studies.models.linear.problem import LinearProblem, linear, standard_normal
from lowvar_studies.models.split import TEST, held_out

DATA = ("x", "y")  # arrays that the models need


def model(x, y=None, batch_size=None):
    """The NumPyro model of two classes.

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
    """The model of two classes on data ``{"x": (N, d) floating, "y": (N,) in {0, 1}}``, in either backend.

    ``test_x`` and ``test_y`` in the data are the test rows.

    Raises:
        UserError: arrays of other shapes, or labels other than 0 and 1.
    """
    ops = get(backend)
    return classifier(arrays, ops, name, lambda x: Dense(ops, ops.asarray(x)))


def softmax_problem(arrays, backend: str = "jax", name: str = "softmax_regression") -> LinearProblem:
    """The model of several classes on data ``{"x": (N, d) floating, "y": (N,) in 0 .. C - 1}``, in either backend.

    Optional data: the number ``"classes"`` (the largest label plus one if not given), and the test rows ``test_x`` and
    ``test_y``.

    Raises:
        UserError: arrays of other shapes, or labels out of range.
    """
    ops, classes = get(backend), count_classes(arrays)
    return classifier(arrays, ops, name, lambda x: Dense(ops, ops.asarray(x), classes), classes)


def classifier(
    arrays, ops, name: str, design: Callable[[Any], Any], classes: int | None = None, prior=None, **more: Any
) -> LinearProblem:
    """A linear model of the labels ``y``, with the test rows of the data.

    Args:
        arrays: ``x``, ``y``, and perhaps ``test_x`` and ``test_y``.
        ops: the backend.
        name: name in reports.
        design: ``x``, a NumPy array, to its design.
        classes: number of classes of a softmax; two classes with one logit if None.
        prior: ``log p(z)`` and its mean under a mean-field guide; a standard Gaussian if None.
        more: arguments of `linear`.
    """
    x = features(arrays["x"], name)

    def link(y, rows, key="y"):
        y = numbers(y, rows, classes or 2, name, key)
        if classes is None:
            return Bernoulli(ops, ops.asarray(np.where(y == 1, 1.0, -1.0).astype(x.dtype)))
        return Categorical(ops, ops.asarray(y), classes)

    fitted, labels = design(x), link(arrays["y"], len(x))
    test = held_out(arrays, name, design, lambda y: link(y, len(y), f"{TEST}y"))
    log_prior, expected = prior or standard_normal(ops, fitted.dim)
    more["quadratic_prior"] = prior is None
    return linear(name, len(x), x.dtype, fitted, labels, log_prior, expected, held_out=test, **more)
