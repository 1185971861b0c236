"""Objectives that the exact integrators minimise: their slopes, and how they decrease."""

import numpy as np
import pytest
import torch
from exact_samples import normal, run, smooth, stein

from lowvar.integrals.exact import spectral
from lowvar.integrals.exact.alternating import alternating
from lowvar.integrals.exact.convex import convex, perturbed
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.hyper import Hyper
from lowvar.integrals.exact.learn import related
from lowvar.integrals.exact.one_fit import space_of
from lowvar.integrals.exact.reml import objective
from lowvar.integrals.exact.space import Space
from lowvar.integrals.exact.task_objective import TaskObjective
from lowvar.integrals.stacked import stack


def check_gradient(function, z, tolerance):
    which = torch.arange(len(z))
    gradient = function(z, which)[1]
    for j in range(z.shape[1]):
        step = torch.zeros_like(z)
        step[:, j] = 1e-5
        slope = (function(z + step, which)[0] - function(z - step, which)[0]) / 2e-5
        torch.testing.assert_close(slope, gradient[:, j], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shared", [False, True])
def test_slopes_of_the_restricted_likelihood(shared):
    data = stack(normal(smooth, sizes=(12, 12, 12), shared=shared, spread=(1.0, 1.1, 1.2)), shared=shared)
    chosen = FitSettings()
    factor = torch.ones(2, 1, 1, dtype=torch.float64) if shared else related(3).expand(2, 3, 3)
    space = space_of(data, chosen, factor, not shared)
    z = space.pack(space.fixed)
    assert z.shape[1] == 4 + (0 if shared else 5)  # two lengthscales, the trend, the nugget, B
    z = z + 0.3 * torch.sin(torch.arange(z.numel(), dtype=torch.float64)).reshape(z.shape)
    z[:, 3] = np.log(1e-3)
    check_gradient(objective(chosen.covariance, data, space, torch.arange(2)), z, 1e-5)


def test_slopes_in_the_eigenvectors():
    data = stack(normal(smooth, sizes=(12, 12, 12), shared=True, spread=(1.0,) * 3), shared=True)
    of = data.x.numpy(), data.scores.numpy()
    matrix = torch.stack([torch.as_tensor(stein(x, x, s, s)) for x, s in zip(*of, strict=True)])
    fixed = Hyper({}, torch.full((2,), 0.01, dtype=torch.float64), related(3).expand(2, 3, 3))
    space = Space(fixed, (), True, True, torch.zeros(2, 2, dtype=torch.float64))
    level = matrix.diagonal(dim1=1, dim2=2).mean(1)
    function = spectral.objective(spectral.spectrum(matrix, data.y), space, level)
    check_gradient(function, space.pack(fixed) + 0.1, 1e-5)


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
    matrix = torch.as_tensor(stein(data.x[0], data.x[0], data.scores[0], data.scores[0]))[None]
    problem = TaskObjective(matrix, data.y[:, :, 0], data.member, penalty)
    k0, y, member = matrix[0].numpy(), data.y[0, :, 0].numpy(), data.member.numpy()

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
        factor = torch.linalg.cholesky(torch.as_tensor(first[2]))[None]
        relation = factor @ factor.mT
        best, slope = perturbed(problem, relation, factor, delta)
        assert best[0] <= value(first) + 1e-9
        added = penalty * delta**2 * np.trace(np.linalg.inv(first[2]))
        np.testing.assert_allclose(best[0], problem.best(relation)[0][0] + added, rtol=1e-9)
        step = 1e-6 * torch.tensor([[1.0, 0.3], [0.3, -0.5]], dtype=torch.float64)
        up, down = (
            perturbed(problem, at, torch.linalg.cholesky(at), delta)[0] for at in (relation + step, relation - step)
        )
        torch.testing.assert_close((up - down)[0] / 2, (slope[0] * step).sum(), rtol=1e-4, atol=1e-12)
