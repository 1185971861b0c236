"""Programs in PyTorch give what Python gives, by fewer operations."""

import pytest
import torch

from lowvar.core.torch import BACKEND, trace_program
from lowvar.core.torch_graph import _Recorder

RNG = torch.Generator().manual_seed(0)
X, Z = torch.randn(6, 3, generator=RNG), torch.randn(3, generator=RNG)
Y, INDEX = (torch.rand(6, generator=RNG) < 0.5).float(), torch.tensor([0, 1, -1])
bce = torch.nn.functional.binary_cross_entropy_with_logits


def in_place(z):
    a, b, c = z.clone(), z + 1, z + 1
    a += 1
    a[0] = 5.0
    return a, b.mul_(2), c


FUNCTIONS = {
    "numbers": lambda z: (z * 0.1 + 1, z / 3, 1 - z, z**2, z**-0.5, 2 * z.sum(), z.sum() - 1, z // 0.3, z % 0.7),
    "powers": lambda z: [(torch.linspace(0.1, 3, 999) * z[2]) ** k for k in (2, 3, -1, -0.5)],
    "integers": lambda z: (INDEX * 0.5, INDEX // 2, INDEX + 1, INDEX.float() / 7, (INDEX > 0).sum(), INDEX % 2 == 0),
    "choices": lambda z: (z.clamp(min=0.1), torch.where(z > 0, z, 0.5), z.max(), z.topk(2).values, z.sort().indices),
    "index": lambda z: (X[INDEX] @ z, z[INDEX], X[INDEX, 1], X[:, INDEX], z.index_put((INDEX,), z)),
    "shapes": lambda z: (*z.split([1, 2]), z.expand(2, 3), z[None].view(3, 1), torch.cat([z, z]), z.detach()),
    "constants": lambda z: (z - torch.zeros(3), torch.ones_like(z) * 0.5, z + torch.full((3,), 2.0), torch.eye(3)),
    "repeats": lambda z: (z.exp() * z.exp(), z.exp() + z, torch.softmax(z, 0), torch.logsumexp(z, 0)),
    "in place": in_place,
    "special": lambda z: (z / 0, (z - z) / 0, torch.sqrt(z), -0.0 * z),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_gives_the_bits_of_python(name):
    program, given = BACKEND.compile(FUNCTIONS[name]), Z.clone()
    program(torch.ones(3))  # what is chosen at these values must be right at others
    found, expected = program(given), FUNCTIONS[name](Z)
    assert torch.equal(given, Z)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_random_numbers_are_drawn_at_each_use_and_each_call():
    program = BACKEND.compile(lambda z: (torch.randn_like(z), torch.randn_like(z)))
    (a, b), (c, d) = program(Z), program(Z)
    assert len({float(one[0]) for one in (a, b, c, d)}) == 4


def gradient(z):
    return BACKEND.grad(lambda z: bce(X @ z, Y, reduction="sum") + 0.5 * (z * z).sum())(z)


def test_particles_are_one_matrix_product_and_values_that_nothing_uses_are_not_computed():
    particles = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    program = trace_program(lambda z: [BACKEND.vmap(gradient)(z)], [particles])
    with _Recorder() as recorder:
        (found,) = program(particles)
    made = [op.overloadpacket.__name__ for op in recorder.made]
    assert "bmm" not in made
    assert "log_sigmoid_forward" not in made, made
    torch.testing.assert_close(found, torch.stack([gradient(z) for z in particles]), rtol=1e-5, atol=1e-6)
