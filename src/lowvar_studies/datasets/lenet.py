"""Features of images: the last hidden layer of a LeNet-5 trained to classify them."""

from typing import Any, NamedTuple

import numpy as np

from lowvar.errors import UserError

FEATURES = 84  # units of the last hidden layer
_BATCH = 128  # rows per training step
_STEP = 1e-3  # Adam's step size
_ROWS = 1000  # rows per forward pass without gradients


class Trained(NamedTuple):
    """A trained network's output on its training data.

    Attributes:
        features: activations of the last hidden layer, ``(N, 84)`` float64.
        accuracy: fraction of the training rows that the network classifies correctly.
    """

    features: np.ndarray
    accuracy: float


def train(images: np.ndarray, labels: np.ndarray, seed: int = 0, epochs: int = 6) -> Trained:
    """Trains a LeNet-5 on images and their classes, and returns the activations of its last hidden layer.

    Convolutions of 6 and 16 filters of 5 x 5 (the first one padded by 2 for images of 28 x 28), each with ReLU and
    2 x 2 maximum pooling, then layers of 120, 84 and one unit per class, with ReLU; cross-entropy, Adam with step size
    0.001, batches of 128 in a new order each epoch. Channels are standardised by their mean and standard deviation over
    the data. It runs in float32 on one CPU thread: on one machine, with one version of PyTorch, the same input gives
    the same bytes.

    Args:
        images: ``(N, channels, height, width)``, height and width 28 or 32, values in [0, 1].
        labels: ``(N,)`` integers from 0.
        seed: seed of the initial weights and of the order of the rows.
        epochs: passes over the data; the default takes a minute or two for 60000 rows of MNIST's size.

    Raises:
        UserError: PyTorch is missing, or the arrays are not as described.

    References:
        LeCun, Bottou, Bengio and Haffner (1998), "Gradient-based learning applied to document recognition".
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UserError("features of a LeNet need PyTorch: pip install 'lowvar[torch]'") from error
    images, labels = np.asarray(images, dtype=np.float32), np.asarray(labels)
    _check(images, labels)
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        return _train(torch, images, labels, seed, epochs)
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warn_only)
        torch.set_num_threads(threads)


def _check(images, labels):
    if images.ndim != 4 or images.shape[2:] not in ((28, 28), (32, 32)) or not len(images):
        raise UserError(
            f"images have shape {images.shape}; it must be (N, channels, 28, 28) or (N, channels, 32, 32) with N > 0"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise UserError(
            f"labels are {labels.dtype} of shape {labels.shape}; they must be {len(images)} integers from 0"
        )
    if not (images.min() >= 0 and images.max() <= 1):
        raise UserError(f"images have values from {images.min()} to {images.max()}; they must lie in [0, 1]")


def _train(torch, images, labels, seed, epochs):
    generator = torch.Generator("cpu").manual_seed(seed)
    size, channels = images.shape[-1], images.shape[1]
    mean = images.mean(axis=(0, 2, 3), dtype=np.float64)
    # a constant channel is not scaled
    scale = images.std(axis=(0, 2, 3), dtype=np.float64) + 1e-6
    weights = _initial(torch, generator, channels, int(labels.max()) + 1)
    shift, scale = (torch.tensor(one.reshape(-1, 1, 1), dtype=torch.float32) for one in (mean, scale))
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))

    def network(rows):
        return _forward(torch, weights, (x[rows] - shift) / scale, padding=2 if size == 28 else 0)

    adam = torch.optim.Adam(weights, lr=_STEP)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for rows in order.split(_BATCH):
            adam.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(rows)[1], y[rows])
            loss.backward()
            adam.step()
    hidden, right = [], 0
    with torch.no_grad():
        for rows in torch.arange(len(x)).split(_ROWS):
            activations, logits = network(rows)
            hidden.append(activations.numpy().astype(np.float64))
            right += int((logits.argmax(1) == y[rows]).sum())
    return Trained(np.concatenate(hidden), right / len(x))


def _initial(torch, generator, channels, classes) -> list[Any]:
    """Weights and biases by layer, uniform on +-1 / sqrt(inputs of a unit), PyTorch's default initialisation."""
    shapes = [(6, channels, 5, 5), (16, 6, 5, 5), (120, 400), (FEATURES, 120), (classes, FEATURES)]
    weights = []
    for shape in shapes:
        bound = float(np.prod(shape[1:])) ** -0.5
        for size in (shape, shape[:1]):
            drawn = (2 * torch.rand(size, generator=generator, dtype=torch.float32) - 1) * bound
            weights.append(drawn.requires_grad_())
    return weights


def _forward(torch, weights, x, padding):
    """The last hidden layer, ``(B, 84)``, and the logits."""
    nn = torch.nn.functional
    x = nn.max_pool2d(nn.relu(nn.conv2d(x, *weights[0:2], padding=padding)), 2)
    x = nn.max_pool2d(nn.relu(nn.conv2d(x, *weights[2:4])), 2).flatten(1)
    x = nn.relu(nn.linear(x, *weights[4:6]))
    hidden = nn.relu(nn.linear(x, *weights[6:8]))
    return hidden, nn.linear(hidden, *weights[8:10])
