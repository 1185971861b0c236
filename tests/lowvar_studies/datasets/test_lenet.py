import builtins

import numpy as np
import pytest

from lowvar.errors import UserError
from lowvar_studies.datasets import lenet


def bars(rows=120, size=28, channels=1, seed=0):
    """Two classes: a bright bar across, or one down, somewhere, in noise."""
    rng = np.random.default_rng(seed)
    images = rng.uniform(0, 0.4, (rows, channels, size, size)).astype(np.float32)
    labels = np.arange(rows) % 2
    for image, label, at in zip(images, labels, rng.integers(4, size - 4, rows), strict=True):
        (image if label else image.transpose(0, 2, 1))[:, at : at + 3] += 0.6
    return images, labels


@pytest.fixture(scope="module")
def trained():
    return lenet.train(*bars(), epochs=6)


def test_a_separable_problem_is_learnt(trained):
    assert trained.features.shape == (120, lenet.FEATURES)
    assert trained.features.dtype == np.float64
    assert (trained.features >= 0).all()
    assert trained.features.std() > 0
    assert trained.accuracy > 0.9


def test_rows_are_in_order(trained):
    """A linear rule on the features of the first half classifies the other half."""
    _, labels = bars()
    x, sign = np.column_stack([trained.features, np.ones(120)]), 2.0 * labels - 1
    rule = np.linalg.lstsq(x[:60].T @ x[:60] + np.eye(85), x[:60].T @ sign[:60], rcond=None)[0]
    assert np.mean(np.sign(x[60:] @ rule) == sign[60:]) > 0.9


def test_same_bytes_twice_and_the_process_as_before(trained):
    import torch

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    again = lenet.features(*bars(), epochs=6)
    assert again.tobytes() == trained.features.tobytes()
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_default_device_does_not_matter(trained):
    import torch

    with torch.device("meta"):
        assert lenet.features(*bars(), epochs=6).tobytes() == trained.features.tobytes()


def test_another_seed_is_another_network():
    images, labels = bars(40)
    a, b = (lenet.features(images, labels, seed=seed, epochs=1) for seed in (0, 1))
    assert np.abs(a - b).max() > 1e-3


def test_colour_images_of_the_other_size():
    images, labels = bars(30, size=32, channels=3)
    images[:, 2] = 0.25  # a constant channel
    found = lenet.features(images, labels, epochs=1)
    assert found.shape == (30, 84)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (np.zeros((3, 28, 28)), np.zeros(3, int), {}, r"shape \(3, 28, 28\)"),
        (np.zeros((3, 1, 28, 32)), np.zeros(3, int), {}, "must be"),
        (np.zeros((0, 1, 28, 28)), np.zeros(0, int), {}, "N > 0"),
        (np.zeros((3, 1, 28, 28)), np.zeros(2, int), {}, "3 integers from 0"),
        (np.zeros((3, 1, 28, 28)), np.zeros(3), {}, "labels are float64"),
        (np.full((3, 1, 28, 28), 255), np.zeros(3, int), {}, r"in \[0, 1\]"),
        (np.full((3, 1, 28, 28), np.nan), np.zeros(3, int), {}, r"in \[0, 1\]"),
        (np.zeros((3, 1, 28, 28)), np.zeros(3, int), {"epochs": 0}, "epochs = 0"),
    ],
)
def test_mistakes(images, labels, options, message):
    with pytest.raises(UserError, match=message):
        lenet.features(images, labels, **options)


def test_without_torch(monkeypatch):
    original = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"lowvar\[torch\]"):
        lenet.features(*bars(4))
