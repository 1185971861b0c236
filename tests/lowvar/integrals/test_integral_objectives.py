"""Objectives that the exact integrators minimise: their slopes, and how they decrease."""

import numpy as np
import pytest
import torch
from exact_samples import normal, smooth, stein

from lowvar.integrals.exact.gls import shared_objective, spectrum_of
from lowvar.integrals.exact.kernel_fit import related, space_of
from lowvar.integrals.exact.reml import Hyper, Space, objective
from lowvar.integrals.exact.settings import FitSettings
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
    function = shared_objective(spectrum_of(matrix, data.y), space, level)
    check_gradient(function, space.pack(fixed) + 0.1, 1e-5)
