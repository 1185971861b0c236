"""The batched minimiser: minima, bounds, failures, and problems that do not know of each other."""

import numpy as np
import pytest
import torch

from lowvar.integrals.exact.bfgs import minimise

FAR = np.full(5, 10.0)


def with_gradient(function):
    """``(z (A, p), which) -> (value, gradient)`` of a function of tensors ``z`` and ``which``, in NumPy."""

    def evaluate(z, which):
        leaf = torch.tensor(z, requires_grad=True)
        value = function(leaf, torch.as_tensor(which))
        return value.detach().numpy(), torch.autograd.grad(value.sum(), leaf)[0].numpy()

    return evaluate


def rosenbrock(z, which):
    return (100 * (z[:, 1:] - z[:, :-1] ** 2) ** 2 + (1 - z[:, :-1]) ** 2).sum(1)


def starts(repetitions, p, seed=0):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (repetitions, p))


def check_minimum(found, function, lower, upper, tolerance):
    """That no coordinate may go down its slope, but beyond a bound."""
    assert found.converged.all()
    _, gradient = function(found.x, np.arange(len(found.x)))
    assert np.abs(found.x - np.clip(found.x - gradient, lower, upper)).max() < tolerance
    np.testing.assert_array_equal(found.at_bound, (found.x <= lower) | (found.x >= upper))


@pytest.mark.parametrize("bound", [50.0, 0.3])
def test_quadratics(bound):
    rng = np.random.default_rng(1)
    roots, centre = torch.tensor(rng.normal(size=(6, 8, 8))), torch.tensor(rng.normal(size=(6, 8)))
    hessian = roots @ roots.mT + 0.1 * torch.eye(8, dtype=torch.float64)
    function = with_gradient(
        lambda z, which: 0.5 * torch.einsum("ri,rij,rj->r", z - centre[which], hessian[which], z - centre[which])
    )
    upper = np.full(8, bound)
    found = minimise(function, starts(6, 8), -upper, upper)
    check_minimum(found, function, -upper, upper, 1e-5)
    assert found.at_bound.any() == (bound < 1)


def test_rosenbrock_between_bounds():
    function = with_gradient(rosenbrock)
    lower, upper = np.full(5, -2.0), np.array([0.8, 2, 2, 2, 2])
    found = minimise(function, starts(8, 5), lower, upper, steps=400)
    check_minimum(found, function, lower, upper, 1e-4)
    assert found.steps.max() < 120


def test_steps_out_of_the_domain_are_shortened():
    def value(z, which):
        return torch.where(z > 0, z - z.clamp(min=1e-300).log(), torch.nan).sum(1)

    start = np.array([[3.0, 0.01], [40.0, 5.0]])
    found = minimise(with_gradient(value), start, -100 * FAR[:2], 100 * FAR[:2], longest=100.0)
    assert found.converged.all()
    np.testing.assert_allclose(found.x, 1, atol=1e-5)


def test_an_undefined_start_and_too_few_steps_are_not_called_converged():
    def value(z, which):
        return torch.where(which == 0, torch.nan, rosenbrock(z, which))

    found = minimise(with_gradient(value), starts(3, 5), -FAR, FAR, steps=12)
    assert not found.converged.any()
    np.testing.assert_array_equal(found.x[0], starts(3, 5)[0])
    assert found.steps.tolist() == [1, 12, 12]


def test_problems_do_not_know_of_each_other_and_a_known_hessian_saves_steps():
    function = with_gradient(rosenbrock)
    together = minimise(function, starts(3, 5), -FAR, FAR, steps=300)
    for r in range(3):
        alone = minimise(function, starts(3, 5)[r : r + 1], -FAR, FAR, steps=300)
        np.testing.assert_array_equal(alone.x[0], together.x[r])
    again, anew = (minimise(function, together.x + 0.01, -FAR, FAR, hessian=one) for one in (together.hessian, None))
    assert again.converged.all()
    assert again.steps.sum() < anew.steps.sum()


def test_a_singular_hessian_is_that_problem_s_alone():
    function, hessian = with_gradient(rosenbrock), np.stack([np.zeros((5, 5)), np.eye(5)])
    found = minimise(function, starts(2, 5), -FAR[:5], FAR[:5], steps=300, hessian=hessian)
    assert found.converged.tolist() == [False, True]
