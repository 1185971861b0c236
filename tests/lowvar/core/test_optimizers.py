"""Our optimizers in the array API are optax's and torch.optim's."""

import numpy as np
import optax
import pytest
import torch

from lowvar.core import backend as backends
from lowvar.core.optimizers import optimizer
from lowvar.errors import UserError


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_same_path_in_optax_and_torch(name):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(20, 3)) * np.array([1e-3, 1.0, 1e3])
    ours = optimizer(name, 0.03, backends.get("torch"))
    w = {"w": torch.zeros(3, dtype=torch.float64)}
    state = ours.init(w)
    theirs = {"sgd": optax.sgd, "adam": optax.adam}[name](0.03)
    v, their_state = {"w": np.zeros(3)}, theirs.init({"w": np.zeros(3)})
    third = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    torch_optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]([third], lr=0.03)
    for gradient in gradients:
        updates, state = ours.update({"w": torch.from_numpy(gradient)}, state, w)
        w = {"w": w["w"] + updates["w"]}
        updates, their_state = theirs.update({"w": gradient}, their_state, v)
        v = optax.apply_updates(v, updates)
        third.grad = torch.from_numpy(gradient)
        torch_optimizer.step()
    np.testing.assert_allclose(w["w"].numpy(), np.asarray(v["w"]), rtol=1e-12)
    np.testing.assert_allclose(w["w"].numpy(), third.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("step_size", [0.0, -1.0, float("nan"), float("inf")])
def test_step_size_must_be_positive(step_size):
    with pytest.raises(UserError, match="it must be positive"):
        optimizer("sgd", step_size, backends.get("jax"))
