"""Stein kernels: hand-written derivatives against autodiff, which has the operators of the paper."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jacfwd, vmap

import lowvar
from lowvar.errors import UserError
from lowvar.integrals.kernels import KERNELS, kernel, separable_stein

# name, options, and the kernel as it is defined: (params, x (d,), y (d,)) -> ()
CASES = {
    "squared exponential": ("squared_exponential", {}),
    "one lengthscale": ("squared_exponential", {"ard": False}),
    "preconditioned": ("preconditioned", {}),
    "alpha learnt": ("preconditioned", {"alpha": None, "ard": False}),
    "linear": ("polynomial", {"degree": 1}),
    "quadratic": ("polynomial", {"degree": 2, "offset": 0.5}),
    "quintic": ("polynomial", {"degree": 5}),
}


def defined(name, degree=2, offset=1.0, alpha=0.1, ard=True):
    """The kernel as the paper defines it, with ``l^2`` written out."""

    def value(params, x, y):
        if name == "polynomial":
            return (torch.dot(x, y) + offset) ** degree
        k = torch.exp(-((x - y) ** 2 / (2 * torch.exp(params["log_lengthscale"]) ** 2)).sum())
        if name == "preconditioned":
            rate = params["log_alpha"].exp()[0] if alpha is None else alpha
            k = k / ((1 + rate * x @ x) * (1 + rate * y @ y))
        return k

    return value


def by_autodiff(value, order, lead):
    """The Stein kernel at all pairs, from the kernel's value alone."""

    def first(params, x, y, lx, ly):  # eq. (3)
        mixed = torch.trace(jacfwd(grad(value, 1), 2)(params, x, y))
        slopes = lx @ grad(value, 2)(params, x, y) + ly @ grad(value, 1)(params, x, y)
        return mixed + slopes + lx @ ly * value(params, x, y)

    def second(params, x, y, lx, ly):  # Theorem C.1: the operator in y, then in x
        def operator(function, score):
            return lambda z: torch.trace(hessian(function)(z)) + score @ grad(function)(z)

        return operator(lambda a: operator(lambda b: value(params, a, b), ly)(y), lx)(x)

    pairs = vmap(vmap(first if order == 1 else second, (None, None, 0, None, 0)), (None, 0, None, 0, None))
    return vmap(pairs) if lead else pairs


def numbers(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng([seed, *shape]).standard_normal(shape))


def chosen(case, dim, lead=()):
    """A kernel and parameters away from their defaults."""
    name, options = CASES[case]
    k = kernel(name, **options)
    return k, {n: torch.as_tensor(v) + 0.3 * numbers(*lead, *v.shape) for n, v in k.defaults(dim).items()}


def close(found, expected, tolerance=1e-12):
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(("dim", "lead"), [(1, ()), (3, (2,))])
@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_those_of_autodiff(case, dim, lead):
    k, params = chosen(case, dim, lead)
    name, options = CASES[case]
    value = defined(name, **options)
    x, y, lx, ly = (numbers(*lead, n, dim, seed=s) for n, s in ((4, 1), (5, 2), (4, 3), (5, 4)))
    for found, order in ((k.stein, 1), (k.stein2, 2)):
        close(found(params, x, y, lx, ly), by_autodiff(value, order, bool(lead))(params, x, y, lx, ly))
    if lead:  # shared points, parameters of each repetition
        second = {n: v[1] for n, v in params.items()}
        close(k.stein(params, x[0], y, lx[0], ly)[1], k.stein(second, x[0], y[1], lx[0], ly[1]))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_slopes_and_values_of_numpy_are_those_of_autodiff_in_torch(case, order):
    k, params = chosen(case, 3, (2,))
    x, lx = numbers(2, 6, 3, seed=1), numbers(2, 6, 3, seed=3)
    weight = numbers(2, 6, 6, seed=5)
    weight = weight + weight.mT
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    stein = k.stein if order == 1 else k.stein2
    matrix = stein(leaves, x, x, lx, lx)
    arrays = {name: value.numpy() for name, value in params.items()}
    np.testing.assert_allclose(stein(arrays, *(of.numpy() for of in (x, x, lx, lx))), matrix.detach(), rtol=1e-11)
    same, pull = k.with_slopes(arrays, x.numpy(), lx.numpy(), order)
    np.testing.assert_allclose(same, matrix.detach(), rtol=1e-11)
    found = pull(weight.numpy())
    assert found.keys() == params.keys()
    if params:
        expected = torch.autograd.grad((weight * matrix).sum(), list(leaves.values()))
        for name, slope in zip(leaves, expected, strict=True):
            np.testing.assert_allclose(found[name], slope, rtol=1e-11)


def test_far_points_lose_no_digits():
    k, params = chosen("squared exponential", 3)
    x, y, lx, ly = (numbers(n, 3, seed=s) for n, s in ((4, 1), (5, 2), (4, 3), (5, 4)))
    near, far = (k.stein(params, a, b, lx, ly) for a, b in ((x, y), (x + 2**20, y + 2**20)))
    close(far, near, 1e-9)  # the points themselves are rounded to 1e-10 there


def normal(dim, mean, deviation, nodes=80):
    """Points ``(n, d)``, weights and scores of ``N(mean, deviation^2)`` in each input."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    keep = w > 1e-18
    z, w = z[keep], w[keep]
    grid = np.array(list(itertools.product(z, repeat=dim)))
    weights = np.prod(list(itertools.product(w, repeat=dim)), axis=1)
    return torch.as_tensor(mean + deviation * grid), torch.as_tensor(weights), torch.as_tensor(-grid / deviation)


@pytest.mark.parametrize("order", ["stein", "stein2"])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_means_are_zero_under_the_target_alone(case, dim, order):
    k, params = chosen(case, dim)
    x, weights, scores = normal(dim, 0.3, 0.8)
    y, ly = numbers(5, dim, seed=1), numbers(5, dim, seed=2)
    stein = getattr(k, order)
    size = stein(params, x, y, scores, ly).abs().mT @ weights
    mean = stein(params, x, y, scores, ly).mT @ weights
    assert (mean.abs() < 1e-10 * size).all(), mean
    wrong = stein(params, x, y, -(x - 0.4) / 0.9**2, ly).mT @ weights  # the scores of N(0.4, 0.9^2)
    assert wrong.abs().max() > 1e-3 * size.max(), wrong


@pytest.mark.parametrize("order", [1, 2])
def test_matrix_kernels(order):
    dim, tasks = 2, 2
    k, params = chosen("squared exponential", dim)
    B = torch.tensor([[1.0, 0.4], [0.4, 0.7]], dtype=torch.float64)
    x, y = numbers(3, dim, seed=1), numbers(4, dim, seed=2)
    lx, ly = numbers(3, tasks, dim, seed=3), numbers(4, tasks, dim, seed=4)
    found = separable_stein(k, params, B, x, y, lx, ly, order)
    scalar = k.stein if order == 1 else k.stein2
    for t, s in np.ndindex(tasks, tasks):
        close(found[..., t, s], B[t, s] * scalar(params, x, y, lx[:, t], ly[:, s]))
    batched = separable_stein(k, params, B[None], x[None], y[None], lx[None], ly[None], order)
    close(batched[0], found)


@pytest.mark.parametrize(
    ("name", "options"),
    [("polynomial", {"degree": 0}), ("polynomial", {"offset": -1.0}), ("preconditioned", {"alpha": 0.0})],
)
def test_mistakes(name, options):
    with pytest.raises(UserError, match=next(iter(options))):
        kernel(name, **options)


def test_all_kernels_are_tested():
    assert {name for name, _ in CASES.values()} == set(KERNELS)


@pytest.mark.parametrize(
    ("stein", "named"),
    [
        (
            lambda of: lambda p, x, y, lx, ly: np.abs(np.exp(p["log_lengthscale"]))[..., 0] * of(p, x, y, lx, ly),
            "log_l",
        ),
        (lambda of: lambda p, x, y, lx, ly: of(p, x, y, lx, 2 * ly), "symmetric"),
    ],
)
def test_kernels_of_a_user_that_would_mislead_the_search_for_their_parameters(stein, named):
    base = kernel("squared_exponential", ard=False)
    own = replace(base, name="own", vjp=None, stein=stein(base.stein))
    x = np.random.default_rng(3).normal(size=(30, 2))
    with pytest.raises(UserError, match=f"'own'.*{named}"):
        lowvar.integrate(x, -x, np.sin(x[:, 0]), method="control_functional", kernel=own)
    right = replace(base, name="own", vjp=None)
    lowvar.integrate(x, -x, np.sin(x[:, 0]), method="control_functional", kernel=right)
