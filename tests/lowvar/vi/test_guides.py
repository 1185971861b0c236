"""Every estimator has the exact gradient as its mean with every guide, whatever its state; or refuses the guide."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

from lowvar.testing.enumerable import enumerated_mean, guide_params, quadrature_gradient, run
from lowvar.testing.enumerable import problem as mean_field_problem
from lowvar.vi.guides.gaussian import GUIDES, with_guide

MAIN = ("naive", "stl", "cv", "joint", "joint_svrg", "joint_adaptive", "joint_current")
JOINT = [name for name in GUIDES.own if name != "mean_field"]
# Gauss-Hermite points of each axis: they integrate polynomials of degree 5 exactly, and all controls have degree 2
POINTS, SIZE = 3, 2


@functools.cache
def problem(guide, backend="jax"):
    """Logistic regression with two sites of 1 and 2 coordinates."""
    p = replace(mean_field_problem(backend, dim=3), sites={"a": slice(0, 1), "b": slice(1, 3)})
    return with_guide(p, {"guide": guide, "rank": 1} if guide == "low_rank" else guide)


def flat(p, gradient):
    return np.concatenate([np.asarray(gradient[block]) for block in p.blocks])


# every estimator with one guide, every guide with one estimator that has memory and one that has none; in make test,
# every guide once
PAIRS = [(name, guide) for name in MAIN for guide in JOINT if guide == "full_rank" or name in ("stl", "joint_adaptive")]
SHORT = [("stl", "low_rank"), ("stl", "block_diagonal"), ("joint_adaptive", "full_rank")]


@pytest.mark.parametrize(
    ("name", "guide"), [pytest.param(*one, marks=() if one in SHORT else pytest.mark.long) for one in PAIRS]
)
def test_mean_is_the_exact_gradient(name, guide):
    p = problem(guide)
    w = guide_params(p, seed=5)
    # by the quadrature that the means are taken by: they are equal up to rounding
    never_moved = flat(p, p.guide.pull_back(w, np.ones(p.noise_dim), np.ones(p.dim))) == 0  # above diagonals
    exact = np.where(never_moved, 0, flat(p, quadrature_gradient(p, w, POINTS)))
    estimator, late = run(p, name, epochs=3)
    fresh = estimator.init(guide_params(p))
    mean = enumerated_mean(estimator, points=POINTS, size=SIZE)
    for state in (fresh, late.estimator) if jax.tree.leaves(fresh) else ((),):
        np.testing.assert_allclose(mean(state, w), exact, atol=1e-10 * np.linalg.norm(exact))
