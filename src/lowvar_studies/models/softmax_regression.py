"""Multinomial logistic regression with a standard Gaussian prior: a NumPyro model, and its fused implementation.

``Z (d, C) ~ N(0, 1)``, ``y_n ~ Categorical(softmax(x_n Z))``, no intercept; all ``C`` classes have coefficients.
"""

from typing import Any

import numpy as np

from lowvar.core.backend import get
from lowvar.errors import UserError
from lowvar.vi.designs import Dense
from lowvar.vi.linear import LinearProblem, linear, standard_normal
from lowvar.vi.links import Categorical
from lowvar_studies.models.split import held_out

DATA = ("x", "y")  # arrays that the model needs


def model(x, classes, y=None, batch_size=None):
    """The NumPyro model.

    Args:
        x: features, ``(N, d)``.
        classes: number of classes.
        y: labels in ``0 .. classes - 1``, ``(N,)``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    z = numpyro.sample("z", dist.Normal(0, 1).expand([x.shape[1], classes]).to_event(2))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        labels = None if y is None else y[index]
        label: Any = dist.Categorical(logits=x[index] @ z)
        numpyro.sample("y", label, obs=labels)


def problem(arrays, backend: str = "jax", name: str = "softmax_regression") -> LinearProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in 0 .. C - 1}``, in either backend.

    Optional data: the number ``"classes"`` (the largest label plus one if not given), and the test rows ``test_x`` and
    ``test_y``.
    """
    ops, classes = get(backend), count_classes(arrays)
    rows = len(arrays["x"])

    def design(x):
        return Dense(ops, ops.asarray(x), classes)

    def link(y, rows, where=name):
        return Categorical(ops, ops.asarray(labels(y, rows, classes, where)), classes)

    of_y, of_x = link(arrays["y"], rows), design(arrays["x"])
    test = held_out(arrays, name, design, lambda y: link(y, len(y), f"{name}, test part"))
    return linear(
        name, rows, arrays["x"].dtype, of_x, of_y, *standard_normal(ops, of_x.dim), quadratic_prior=True, held_out=test
    )


def count_classes(arrays) -> int:
    """``"classes"``; if not given, one more than the largest label of ``y`` and of ``test_y``."""
    if "classes" in arrays:
        return int(arrays["classes"])
    return max(int(np.max(arrays[key])) for key in ("y", "test_y") if np.size(arrays.get(key, ()))) + 1


def labels(y, rows: int, classes, name: str) -> np.ndarray:
    """Class labels as int32, checked.

    Raises:
        UserError: not one whole number for each of ``rows`` rows, or one out of range.
    """
    y = np.asarray(y)
    if y.shape != (rows,):
        raise UserError(f"{name}: x has {rows} rows and y has shape {y.shape}; they must agree")
    if np.any(y != np.floor(y)) or y.min() < 0:
        raise UserError(f"{name}: y must hold classes 0, 1, 2, ...; it has {y[(y != np.floor(y)) | (y < 0)][0]}")
    if classes is not None and y.max() >= int(classes):
        raise UserError(f"{name}: y has class {int(y.max())}, but there are {int(classes)} classes, counted from 0")
    return y.astype(np.int32)
