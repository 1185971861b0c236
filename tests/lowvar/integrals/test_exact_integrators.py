"""Exact kernel control variates against dense algebra, against each other, and against known integrals."""

import numpy as np
import pytest
from exact_samples import (
    FIXED,
    KERNEL,
    B,
    check_defaults,
    dense,
    normal,
    run,
    smooth,
    stein,
)

from lowvar.errors import UserError
from lowvar.integrals.exact.control_functional import control_functional
from lowvar.integrals.exact.gls import shared_objective, spectrum_of
from lowvar.integrals.exact.kernel_fit import correlation_factor, fit, space_of
from lowvar.integrals.exact.reml import Hyper, Space, objective
from lowvar.integrals.exact.settings import FitSettings
from lowvar.integrals.exact.sparse_control_functional import sparse_control_functional
from lowvar.integrals.exact.vector_valued import vector_valued
from lowvar.integrals.kernels import separable_stein
from lowvar.integrals.stacked import stack


def equally_spread(t, x):
    """Values whose sample deviation is one: standardising them changes nothing but their means."""
    values = smooth(t, x)
    return values / values.std(-1, ddof=1, keepdims=True)


def test_generalised_least_squares_as_dense_algebra_has_it():
    samples = normal(equally_spread)
    found = run(vector_valued(B=B, nugget=1e-3, **FIXED), samples)
    (matrices, design), (without_noise, _) = dense(samples, B, 1e-3), dense(samples, B, 0.0)
    for r, matrix in enumerate(matrices):
        y, inverse = np.concatenate([v[r] for v in samples.values]), np.linalg.inv(matrix)
        covariance = np.linalg.inv(design.T @ inverse @ design)
        beta = covariance @ design.T @ inverse @ y
        left = y - design @ beta
        amplitude = left @ inverse @ left / (len(y) - 2)
        np.testing.assert_allclose(found.value[r], beta, rtol=1e-9)
        np.testing.assert_allclose(found.info["reml_error"][r], np.sqrt(amplitude * np.diag(covariance)), rtol=1e-8)
        influence = covariance @ design.T @ inverse  # the part of the function, without the noise
        of_function = np.diag(influence @ without_noise[r] @ influence.T)
        np.testing.assert_allclose(found.info["likely_error"][r], np.sqrt(amplitude * of_function), rtol=1e-6)
        assert found.condition[r] == pytest.approx(np.linalg.cond(matrix), rel=0.05)
        # the jackknife: each value in turn replaced by what the others say
        moved = []
        for i in range(len(y)):
            rest = np.delete(np.arange(len(y)), i)
            inner = np.linalg.inv(matrix[np.ix_(rest, rest)])
            without = np.linalg.solve(design[rest].T @ inner @ design[rest], design[rest].T @ inner @ y[rest])
            said = design[i] @ without + matrix[i, rest] @ inner @ (y[rest] - design[rest] @ without)
            changed = np.where(np.arange(len(y)) == i, said, y)
            moved.append(covariance @ design.T @ inverse @ changed - beta)
        np.testing.assert_allclose(found.info["jackknife_error"][r], np.linalg.norm(moved, axis=0), rtol=1e-7)
        np.testing.assert_allclose(found.info["B"][r] / found.info["B"][r, 0, 0], B / B[0, 0], rtol=1e-8)


def test_one_sweep_from_the_sample_mean():
    samples = normal(equally_spread)
    found = run(vector_valued(B=B, nugget=0.1, beta="mean", **FIXED), samples)
    matrices, design = dense(samples, B, 0.1)
    y = np.concatenate([v[0] for v in samples.values])
    mean = design.T @ y / design.sum(0)
    gram = matrices[0] - 0.1 / 1.1 * np.trace(matrices[0]) / len(y) * np.eye(len(y))
    rest = y - gram @ np.linalg.solve(matrices[0], y - design @ mean)
    np.testing.assert_allclose(found.value[0], design.T @ rest / design.sum(0), rtol=1e-9)


def theorem_4_1(samples, relation, penalty):
    """Estimates ``(T,)`` and a function that evaluates ``g``: the paper's own system, of repetition 0.

    It has T unknowns for each value, and needs the scores of all targets everywhere. For given constants its display
    gives ``theta``; ``beta_t = mean_j (f_t - g_t)`` then determines the constants, which ``theta`` is affine in.
    """
    tasks, sizes = samples.tasks, samples.sizes
    x = np.concatenate([p[0] for p in samples.points])
    scores = np.stack([-x / s**2 for s in (1.0, 1.2)], axis=1)
    params = {"log_lengthscale": np.log(FIXED["lengthscale"])}
    whole = separable_stein(KERNEL, params, relation, x, x, scores, scores)
    task = np.repeat(np.arange(tasks), sizes)
    weight = 1 / np.array(sizes, float)[task]  # 1 / m_t of each value
    rows = np.stack([whole[i, :, t].ravel() for i, t in enumerate(task)])  # K0(x_i, .) of the point's own task
    system = rows.T @ (weight[:, None] * rows) + penalty * whole.transpose(0, 2, 1, 3).reshape(2 * [rows.shape[1]])
    y, design = np.concatenate([v[0] for v in samples.values]), np.eye(tasks)[task]
    right = rows.T @ (weight[:, None] * np.column_stack([y, design]))
    theta_y, theta_h = np.split(np.linalg.lstsq(system, right, rcond=1e-13)[0], [1], axis=1)
    mean = (weight[:, None] * design).T
    beta = np.linalg.solve(np.eye(tasks) - mean @ rows @ theta_h, mean @ (y - rows @ theta_y[:, 0]))
    return beta, [(rows @ (theta_y[:, 0] - theta_h @ beta))[task == t] for t in range(tasks)]


@pytest.mark.parametrize("penalty", [1e-3, 0.1])
def test_with_a_penalty_it_is_theorem_4_1(penalty):
    """Tasks of different sizes, units and targets: the ridge is ``lambda m_t`` of values in their own unit."""
    samples = normal(lambda t, x: (1.0, 6.0)[t] * smooth(t, x), repetitions=1, sizes=(14, 9))
    found = run(vector_valued(B=B, penalty=penalty, **FIXED), samples)
    beta, functions = theorem_4_1(samples, B, penalty)
    np.testing.assert_allclose(found.value[0], beta, rtol=1e-6)
    for t in (0, 1):
        fitted = found.fitted(t, samples.points[t], samples.scores[t])[0]
        np.testing.assert_allclose(fitted - found.value[0, t], functions[t], atol=1e-5)
    left = [v[0] - found.value[0, t] - functions[t] for t, v in enumerate(samples.values)]

    def objective(shift):
        """Eq. (8) at other constants, less the norm of ``g``, which does not change."""
        return sum(((one - s) ** 2).mean() for one, s in zip(left, shift, strict=True))

    assert all(objective(shift) > objective((0, 0)) for shift in ((1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3)))
    # one ridge for all values is another estimator, and so is the ridge of standardised values
    same = run(vector_valued(B=B, nugget=1e-3, **FIXED), samples)
    assert (np.abs(same.value[0] - beta) > 1e-3).any()


def test_a_penalty_at_shared_points():
    samples = normal(smooth, repetitions=1, sizes=(9, 9), shared=True, spread=(1.0, 1.0))
    found = run(vector_valued(B=B, penalty=0.01, **FIXED), samples)
    matrix, design = dense(samples, B, 0.0)
    inverse = np.linalg.inv(matrix[0] + 0.01 * 9 * np.eye(18))
    y = np.concatenate([v[0] for v in samples.values])
    expected = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ y)
    np.testing.assert_allclose(found.value[0], expected, rtol=1e-8)


@pytest.mark.parametrize("make", [control_functional, vector_valued])
def test_its_own_span_is_integrated_exactly(make):
    z = normal(smooth)

    def values(t, x):
        """A constant plus ``sum_i a_i k0(., x_i)`` at three of the points, with ``sum_i a_i = 0``."""
        centres, weights = z.points[t][:, :3], np.array([1.0, 2.0, -3.0])
        gram = [stein(*of) for of in zip(x, centres, z.scores[t], z.scores[t][:, :3], strict=True)]
        return 7.0 - t + np.stack(gram) @ weights

    samples = normal(values)
    found = run(make(nugget=1e-12, **FIXED, **({"B": np.eye(2)} if make is vector_valued else {})), samples)
    np.testing.assert_allclose(found.value, [[7.0, 6.0]] * 2, atol=1e-8)
    assert np.abs(np.stack([v.mean(1) for v in samples.values], 1) - [7.0, 6.0]).min() > 1e-2


def test_a_single_task_is_a_control_functional():
    samples = normal(equally_spread)
    alone = run(control_functional(nugget=1e-3, **FIXED), samples).value
    for t in (0, 1):
        single = run(vector_valued(B=np.eye(1), nugget=1e-3, **FIXED), samples.of_tasks([t]))
        np.testing.assert_allclose(single.value[:, 0], alone[:, t], rtol=1e-8)


def test_same_points_by_eigenvectors_as_by_one_large_system():
    samples = normal(smooth, sizes=(9, 9, 9), shared=True, spread=(1.0,) * 3)
    relation = np.array([[1, 0.5, 0.2], [0.5, 2, -0.3], [0.2, -0.3, 1.0]])
    fast = run(vector_valued(B=relation, nugget=0.05, **FIXED), samples)
    chosen = FitSettings(lengthscale=[1.5, 2.5], nugget=0.05, standardise=False, trend=False)
    large = fit(samples, chosen, relation).of_own_points()
    np.testing.assert_allclose(fast.value, large.value, rtol=1e-9)
    for name in ("reml_error", "likely_error", "B"):
        np.testing.assert_allclose(fast.info[name], large.info[name], rtol=1e-8)
    x = np.random.default_rng(5).standard_normal((2, 4, 2))
    for t in range(3):
        np.testing.assert_allclose(fast.fitted(t, x, -x), large.fitted(t, x, -x), rtol=1e-8)
    other = run(vector_valued(B=np.eye(3), nugget=0.05, **FIXED), samples)
    assert np.abs(other.value - fast.value).max() > 1e-4  # with noise B matters


def test_groups_are_on_their_own():
    samples = normal(smooth, sizes=(10, 10, 10), spread=(1.0, 1.1, 1.2))
    found = run(vector_valued(group=[[2, 0], [1]]), samples)
    pair, single = run(vector_valued(), samples.of_tasks([2, 0])), run(vector_valued(), samples.of_tasks([1]))
    np.testing.assert_array_equal(found.value, np.stack([pair.value[:, 1], single.value[:, 0], pair.value[:, 0]], 1))
    np.testing.assert_array_equal(found.info["B"][:, 0, 2], pair.info["B"][:, 1, 0])
    assert (found.info["B"][:, 1, [0, 2]] == 0).all()
    x = samples.points[0][:, :3]
    np.testing.assert_array_equal(found.fitted(0, x, -x), pair.fitted(1, x, -x))


def check_gradient(function, z, tolerance):
    which = np.arange(len(z))
    gradient = function(z, which)[1]
    for j in range(z.shape[1]):
        step = np.zeros_like(z)
        step[:, j] = 1e-5
        slope = (function(z + step, which)[0] - function(z - step, which)[0]) / 2e-5
        np.testing.assert_allclose(slope, gradient[:, j], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shared", [False, True])
def test_slopes_of_the_restricted_likelihood(shared):
    data = stack(normal(smooth, sizes=(12, 12, 12), shared=shared, spread=(1.0, 1.1, 1.2)), shared=shared)
    chosen = FitSettings()
    factor = np.ones((2, 1, 1)) if shared else np.broadcast_to(correlation_factor(3), (2, 3, 3))
    space = space_of(data, chosen, factor, not shared)
    z = space.pack(space.fixed)
    assert z.shape[1] == 4 + (0 if shared else 5)  # two lengthscales, the trend, the nugget, B
    z = z + 0.3 * np.sin(np.arange(z.size)).reshape(z.shape)
    z[:, 3] = np.log(1e-3)
    check_gradient(objective(chosen.covariance, data, space, np.arange(2)), z, 1e-5)


def test_slopes_in_the_eigenvectors():
    data = stack(normal(smooth, sizes=(12, 12, 12), shared=True, spread=(1.0,) * 3), shared=True)
    matrix = np.stack([stein(x, x, s, s) for x, s in zip(data.x, data.scores, strict=True)])
    fixed = Hyper({}, np.full(2, 0.01), np.broadcast_to(correlation_factor(3), (2, 3, 3)))
    space = Space(fixed, (), True, True, np.zeros((2, 2)))
    level = np.trace(matrix, axis1=1, axis2=2) / 12
    function = shared_objective(spectrum_of(matrix, data.y), space, level)
    check_gradient(function, space.pack(fixed) + 0.1, 1e-5)


@pytest.mark.parametrize(
    ("make", "options", "argument"),
    [
        (control_functional, {"beta": "median"}, "beta"),
        (control_functional, {"nugget": -1.0}, "nugget"),
        (control_functional, {"lengthscale": [1.0, 0.0]}, "lengthscale"),
        (control_functional, {"lengthscale": [1.0, 1.0, 1.0]}, "lengthscale"),
        (vector_valued, {"B": [[1.0, 2.0], [2.0, 1.0]]}, "B"),
        (vector_valued, {"B": [[1.0, 2.0], [0.0, 1.0]]}, "B"),
        (vector_valued, {"B": np.eye(3)}, "B"),
        (vector_valued, {"penalty": 1e-3}, "penalty"),
        (vector_valued, {"penalty": 1e-3, "nugget": 0.1, "B": np.eye(2)}, "penalty and nugget"),
        (vector_valued, {"group": [[0], [0, 1]]}, "group"),
        (vector_valued, {"max_gigabytes": 1e-5}, "max_gigabytes"),
    ],
)
def test_mistakes(make, options, argument):
    with pytest.raises(UserError, match=argument):
        run(make(**options), normal(smooth))


@pytest.mark.parametrize("method", [control_functional, sparse_control_functional, vector_valued])
def test_shared_options_have_one_default(method):
    check_defaults(method, {"ard": None} if method is sparse_control_functional else {})
