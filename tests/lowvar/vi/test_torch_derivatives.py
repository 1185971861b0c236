"""Gradients that autograd does not see are refused in either precision, and kinks are not taken for them."""

import pytest
import torch
from torch.distributions import NegativeBinomial, Normal

import lowvar

RNG = torch.Generator().manual_seed(3)
X, Y = torch.randn(40, 3, generator=RNG), torch.randn(40, generator=RNG)
KNOTS, SIGNS = torch.linspace(-3, 3, 20), (-1.0) ** torch.arange(20)


def hidden(z, index):
    with torch.no_grad():
        shift = torch.tanh(z[0]) / 2
    return Normal(X.to(z)[index] @ z + shift, 1.0).log_prob(Y.to(z)[index])


def sawtooth(z, index):
    inside = torch.relu((X.to(z)[index] @ z)[:, None] - KNOTS.to(z)) * SIGNS.to(z)
    return Normal(inside.sum(1), 0.5).log_prob(Y.to(z)[index])


def cancelling(z, index):
    """Terms of 1e5 that leave 10: differences in single precision are rounding."""
    counts = torch.floor(torch.exp(9 + Y.to(z)[index]))
    return NegativeBinomial(torch.exp(z[0] + 5), logits=X.to(z)[index] @ z + 4).log_prob(counts)


def checked(function, dtype):
    return lowvar.TorchModel(function, lambda z: -(z @ z) / 2, len(X), 3, dtype=dtype).problem()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_part_under_no_grad_is_refused(dtype):
    with pytest.raises(lowvar.UserError, match=r"hidden from autograd, such as .* torch.no_grad\(\)"):
        checked(hidden, dtype)


@pytest.mark.parametrize("function", [sawtooth, cancelling])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kinks_and_rounding_are_no_hidden_operations(function, dtype):
    assert checked(function, dtype).dim == 3


def test_curvature_of_groups_in_single_precision():
    """PyTorch's forward mode fails at an indexed mean beside a scale; the result is that of double precision."""
    import pyro
    import pyro.distributions as dist

    from lowvar.core.backend import get

    groups, ops = torch.arange(40) % 4, get("torch")

    def model(y):
        scale = pyro.sample("scale", dist.HalfNormal(torch.ones((), dtype=y.dtype)))
        means = pyro.sample("means", dist.Normal(torch.zeros(4, dtype=y.dtype), 1.0).to_event(1))
        with pyro.plate("rows", len(y), subsample_size=10) as i:
            pyro.sample("y", dist.Normal(means[groups[i]], scale), obs=y[i])

    def curved(dtype):
        problem = lowvar.TorchModel.from_pyro(model, {"y": Y.to(dtype)}).problem()
        z, rows = torch.linspace(-0.3, 0.4, 5, dtype=dtype), torch.arange(10)
        slope = ops.grad(lambda z: problem.log_likelihood(z, rows).sum())
        return ops.jvp(slope, (z,), (torch.ones_like(z),))

    for single, double in zip(curved(torch.float32), curved(torch.float64), strict=True):
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)
