"""The batched minimiser against SciPy's, and what it promises about bounds, failures and independence."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from lowvar.integrals.exact.bfgs import minimise


def with_gradient(function):
    """``(z (A, p), which) -> (value, gradient)`` of a function of ``z`` and ``which``."""

    def evaluate(z, which):
        z = z.detach().requires_grad_(True)
        value = function(z, which)
        return value.detach(), torch.autograd.grad(value.sum(), z)[0]

    return evaluate


def rosenbrock(z, which):
    return (100 * (z[:, 1:] - z[:, :-1] ** 2) ** 2 + (1 - z[:, :-1]) ** 2).sum(1)


def starts(repetitions, p, seed=0):
    return torch.tensor(np.random.default_rng(seed).uniform(-1.5, 1.5, (repetitions, p)))


def reference(function, start, bounds, r):
    """SciPy's answer to problem ``r``."""

    def one(z):
        value, gradient = function(torch.tensor(z)[None], torch.tensor([r]))
        return float(value[0]), gradient[0].numpy()

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(one, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)


@pytest.mark.parametrize("bounded", [False, True])
def test_quadratics_as_scipy_has_them(bounded):
    rng = np.random.default_rng(1)
    roots = torch.tensor(rng.normal(size=(6, 8, 8)))
    hessian = roots @ roots.mT + 0.1 * torch.eye(8, dtype=torch.float64)
    centre = torch.tensor(rng.normal(size=(6, 8)))
    function = with_gradient(
        lambda z, which: 0.5 * torch.einsum("ri,rij,rj->r", z - centre[which], hessian[which], z - centre[which])
    )
    lower, upper = (-0.3, 0.5) if bounded else (-50.0, 50.0)
    bound = torch.full((8,), 1.0, dtype=torch.float64)
    found = minimise(function, starts(6, 8), lower * bound, upper * bound)
    assert found.converged.all()
    for r in range(6):
        right = reference(function, starts(6, 8)[r], [(lower, upper)] * 8, r)
        np.testing.assert_allclose(found.x[r], right.x, atol=1e-5)
        on = (found.x[r] <= lower) | (found.x[r] >= upper)
        assert torch.equal(found.at_bound[r], on) if bounded else not found.at_bound.any()


def test_rosenbrock_as_scipy_has_it():
    function = with_gradient(rosenbrock)
    lower = torch.full((5,), -2.0, dtype=torch.float64)
    upper = torch.tensor([0.8, 2, 2, 2, 2], dtype=torch.float64)
    found = minimise(function, starts(8, 5), lower, upper, steps=400)
    assert found.converged.all()
    for r in range(8):
        again = reference(function, found.x[r], list(zip(lower, upper, strict=True)), r)
        assert found.value[r] - again.fun < 1e-8  # SciPy finds nothing better from there
    best = min(reference(function, start, list(zip(lower, upper, strict=True)), 0).fun for start in starts(8, 5))
    assert found.value.min() == pytest.approx(best, abs=1e-8)
    assert found.steps.max() < 120


def test_steps_out_of_the_domain_are_shortened():
    def value(z, which):
        return torch.where(z > 0, z - z.clamp(min=1e-300).log(), torch.nan).sum(1)

    start = torch.tensor([[3.0, 0.01], [40.0, 5.0]], dtype=torch.float64)
    far = torch.full((2,), 1e3, dtype=torch.float64)
    found = minimise(with_gradient(value), start, -far, far, longest=100.0)
    assert found.converged.all()
    np.testing.assert_allclose(found.x, 1, atol=1e-5)


def test_an_undefined_start_and_too_few_steps_are_not_called_converged():
    def value(z, which):
        return torch.where(which == 0, torch.nan, rosenbrock(z, which))

    far = torch.full((5,), 10.0, dtype=torch.float64)
    found = minimise(with_gradient(value), starts(3, 5), -far, far, steps=12)
    assert not found.converged.any()
    assert torch.equal(found.x[0], starts(3, 5)[0])
    assert found.steps.tolist() == [1, 12, 12]


def test_problems_do_not_know_of_each_other_and_a_known_hessian_helps():
    function = with_gradient(rosenbrock)
    far = torch.full((5,), 10.0, dtype=torch.float64)
    together = minimise(function, starts(5, 5), -far, far, steps=300)
    for r in range(5):
        alone = minimise(function, starts(5, 5)[r : r + 1], -far, far, steps=300)
        assert torch.equal(alone.x[0], together.x[r])
        assert alone.steps[0] == together.steps[r]
    near = together.x + 0.01
    again = minimise(function, near, -far, far, hessian=together.hessian)
    assert again.converged.all()
    assert again.steps.sum() < minimise(function, near, -far, far).steps.sum()
