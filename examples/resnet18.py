"""ResNet-18 on images sorted by class, trained by every order: accuracy on held-out images.

Learns scikit-learn's digits in a minute or two on two cores; ``--data DIR --rows 10000 --width 16`` takes Fashion-MNIST
from ``DIR/fashion_mnist``. The stem is that of CIFAR ResNets (3 x 3, no pooling), and ``--width`` is 64 in the paper
(He et al., arXiv 1512.03385).
"""

import tempfile
from functools import partial
from pathlib import Path

import torch
from comparing import Task, compare, learning, options
from images import CLASSES, Images, tensors
from torch import Tensor, nn


def normed(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Make a convolution followed by batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(normed(inputs, outputs, 3, stride), nn.ReLU(), normed(outputs, outputs, 3))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else normed(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Add what the path learns to its input."""
        return torch.relu(self.path(images) + self.shortcut(images))


def resnet18(width: int) -> nn.Sequential:
    """Make ResNet-18 for small images of one channel: four stages of two blocks, each twice as wide as the last."""
    stages = []
    for stage in range(4):
        inputs, outputs = width << max(0, stage - 1), width << stage
        stages += [Residual(inputs, outputs, 2 if stage else 1), Residual(outputs, outputs, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 3, CLASSES)]
    network = nn.Sequential(normed(1, width, 3), nn.ReLU(), *stages, *head)
    return network.to(memory_format=torch.channels_last)  # several times faster on CPUs


def main() -> None:
    """Compare the orders."""
    settings = options(__doc__, rows=2000, epochs=4, width=8, batch=32, rate=3e-3)
    with tempfile.TemporaryDirectory(prefix="corgipile-resnet-") as folder:
        images = Images.load(Path(folder), settings.data, settings.rows)
        model = partial(resnet18, settings.width)
        compare(Task(images.train, images.test, images.rows, model, tensors, *learning(settings)))


if __name__ == "__main__":
    main()
