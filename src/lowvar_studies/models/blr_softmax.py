"""Softmax regression with a hierarchical prior on its weights: a NumPyro model, and its fused implementation.

``alpha ~ Gamma(0.5, 0.5)``, ``mu ~ N(0, 1)``, ``w_jc ~ N(mu, 1 / alpha)`` for ``d`` features and an intercept, and
``C`` classes, ``y_n ~ Categorical(softmax((x_n, 1) w))``. On images of 784 pixels in 10 classes ``z`` has
7840 + 10 + 2 = 7852 entries, as in the paper. The intercepts have the weights' prior.

References:
    Fujisawa and Sato, "Multilevel Monte Carlo variational inference", JMLR 2021, section 5.2 and Appendix F.2.
"""

from typing import Any

from lowvar.core.backend import get
from lowvar.vi.designs import Affine, Dense
from lowvar.vi.linear import LinearProblem, linear
from lowvar.vi.links import Categorical
from lowvar_studies.models.blr import features, prior, sites, weights
from lowvar_studies.models.softmax_regression import count_classes, labels
from lowvar_studies.models.split import held_out

DATA = ("x", "y")  # arrays that the model needs


def model(x, classes, y=None, intercept=True, batch_size=None):
    """The NumPyro model.

    Args:
        x: features, ``(N, d)``.
        classes: number of classes.
        y: labels in ``0 .. classes - 1``, ``(N,)``.
        intercept: whether the classes have intercepts, the last row of ``w (d + 1, classes)``.
        batch_size: rows of a mini-batch; all of them if not given.
    """
    import numpyro
    import numpyro.distributions as dist

    d = x.shape[1]
    w = weights(numpyro.sample, dist, [d + bool(intercept), classes])
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        labels = None if y is None else y[index]
        logits = x[index] @ w[:d] + (w[d] if intercept else 0.0)
        label: Any = dist.Categorical(logits=logits)
        numpyro.sample("y", label, obs=labels)


def problem(arrays, backend: str = "jax", name: str = "blr_softmax", intercept: bool = True) -> LinearProblem:
    """The model on data ``{"x": (N, d) floating, "y": (N,) in 0 .. C - 1}``, in either backend.

    ``z`` is ``log alpha``, ``mu``, then ``w``, whose last row are the intercepts. Optional data: the number
    ``"classes"`` (the largest label plus one if not given), and the test rows ``test_x`` and ``test_y``.

    Raises:
        UserError: arrays of other shapes, or labels out of range.
    """
    ops = get(backend)
    x, classes = features(arrays["x"], name), count_classes(arrays)

    def design(x):
        return Affine(Dense(ops, ops.asarray(x), classes), start=2, intercept=bool(intercept))

    def link(y, rows, where=name):
        return Categorical(ops, ops.asarray(labels(y, rows, classes, where)), classes)

    fitted, count = design(x), (x.shape[1] + bool(intercept)) * classes
    test = held_out(arrays, name, design, lambda y: link(y, len(y), f"{name}, test part"))
    return linear(
        name, len(x), x.dtype, fitted, link(arrays["y"], len(x)), *prior(ops, count), sites=sites(count), held_out=test
    )
