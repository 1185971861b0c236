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


def test_rows_are_in_order(trained):
    """A linear rule on the features of the first half classifies the other half."""
    assert trained.accuracy > 0.9
    _, labels = bars()
    x, sign = np.column_stack([trained.features, np.ones(120)]), 2.0 * labels - 1
    rule = np.linalg.lstsq(x[:60].T @ x[:60] + np.eye(85), x[:60].T @ sign[:60], rcond=None)[0]
    assert np.mean(np.sign(x[60:] @ rule) == sign[60:]) > 0.9


def test_same_bytes_twice_and_the_process_as_before(trained):
    import torch

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    again = lenet.train(*bars(), epochs=6).features
    assert again.tobytes() == trained.features.tobytes()
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_colour_images_of_the_other_size():
    images, labels = bars(30, size=32, channels=3)
    images[:, 2] = 0.25  # a constant channel
    found = lenet.train(images, labels, epochs=1).features
    assert found.shape == (30, 84)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("images", "labels", "name"),
    [
        (np.zeros((3, 1, 28, 32)), np.zeros(3, int), "shape"),
        (np.zeros((0, 1, 28, 28)), np.zeros(0, int), "N > 0"),
        (np.zeros((3, 1, 28, 28)), np.zeros(3), "labels"),
        (np.full((3, 1, 28, 28), np.nan), np.zeros(3, int), r"\[0, 1\]"),
    ],
)
def test_mistakes(images, labels, name):
    with pytest.raises(UserError, match=name):
        lenet.train(images, labels)
