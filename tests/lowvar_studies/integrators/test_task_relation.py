"""``alternating`` and ``convex``: the objective (10) that both minimise, and what every exact integrator keeps."""

import numpy as np
import pytest
from exact_samples import check_defaults, normal, run, smooth, stein

from lowvar.errors import UserError
from lowvar.integrals.stacked import stack
from lowvar_studies.integrators.relation import TaskObjective, alternating, convex, perturbed


def test_alternating_halves_decrease_the_objective_to_the_convex_minimum():
    samples = normal(smooth, repetitions=3, spread=(1.0, 1.0))
    halves, sequence = run(alternating(), samples), run(convex(), samples)
    assert (np.diff(halves.info["objective_trace"], axis=1) <= 1e-12).all()
    assert (np.diff(sequence.info["objective_trace"], axis=1) <= 1e-9).all()
    np.testing.assert_allclose(sequence.info["objective"], halves.info["objective"], rtol=1e-6)
    np.testing.assert_allclose(sequence.value, halves.value, atol=1e-4)
    assert not halves.flags["not_converged"].any()


def test_the_perturbed_objective_is_convex():
    """Along segments between random ``(C, beta, B)``; and its minimum over the first two, and slope, are as claimed."""
    rng, penalty, delta = np.random.default_rng(2), 0.1, 0.5
    data = stack(normal(smooth, repetitions=1, sizes=(5, 6)))
    matrix = stein(data.x[0], data.x[0], data.scores[0], data.scores[0])[None]
    problem = TaskObjective(matrix, data.y[:, :, 0], data.member, penalty)
    k0, y, member = matrix[0], data.y[0, :, 0], data.member

    def value(point):
        C, beta, relation = point
        left = y - ((k0 @ C + beta) * member).sum(1)
        inside = C.T @ k0 @ C + delta**2 * np.eye(2)
        penalties = penalty * np.trace(np.linalg.solve(relation, inside)) + (relation**2).sum()
        return (left**2 / (member @ member.sum(0))).sum() + penalties

    def draw():
        root = rng.normal(size=(2, 2))
        return rng.normal(size=(11, 2)) * 0.1, rng.normal(size=2), root @ root.T + 0.05 * np.eye(2)

    for _ in range(50):
        first, second = draw(), draw()
        middle = tuple((a + b) / 2 for a, b in zip(first, second, strict=True))
        assert value(middle) <= (value(first) + value(second)) / 2 + 1e-9
        factor = np.linalg.cholesky(first[2])[None]
        relation = factor @ factor.mT
        best, slope = perturbed(problem, relation, factor, delta)
        assert best[0] <= value(first) + 1e-9
        added = penalty * delta**2 * np.trace(np.linalg.inv(first[2]))
        np.testing.assert_allclose(best[0], problem.best(relation)[0][0] + added, rtol=1e-9)
        step = 1e-6 * np.array([[1.0, 0.3], [0.3, -0.5]])
        up, down = (
            perturbed(problem, at, np.linalg.cholesky(at), delta)[0] for at in (relation + step, relation - step)
        )
        np.testing.assert_allclose((up - down)[0] / 2, (slope[0] * step).sum(), rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("method", [alternating, convex])
def test_shared_options_have_one_default_and_are_checked(method):
    with pytest.raises(UserError, match="penalty 0"):
        method(penalty=0.0)
    check_defaults(method, {"trend": False, "penalty": 1e-5})  # of (10)
