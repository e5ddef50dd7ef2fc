"""Images sorted by class: scikit-learn's bundled digits, or Fashion-MNIST from a folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

import corgipile as cp

CLASSES = 10


@dataclass(frozen=True)
class Images:
    """Square images of one channel, as uint8 rows in two Arrow files.

    Attributes:
        train: File to learn from, sorted by label.
        test: File of held-out images.
        rows: Images of ``train``.
    """

    train: Path
    test: Path
    rows: int

    @classmethod
    def load(cls, folder: Path, data: Path | None, rows: int) -> "Images":
        """Write both files: at most ``rows`` images to learn from, evenly taken."""
        train, test = folder / "train.arrow", folder / "test.arrow"
        parts = _digits() if data is None else _fashion(data, folder)
        kept = _sorted(parts[0])
        kept = kept.take(np.arange(0, len(kept), max(1, len(kept) // rows))[:rows])
        cp.convert(kept, train)
        cp.convert(parts[1], test)
        return cls(train, test, len(kept))


def tensors(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Turn a batch of columns into images with pixels of about -1 to 1, at least 16 wide, and labels."""
    pixels = batch["features"].float().div(127.5).sub(1)
    side = round(pixels.shape[1] ** 0.5)
    images = pixels.view(-1, 1, side, side)
    if side < 16:
        images = torch.nn.functional.interpolate(images, size=(16, 16))
    return images, batch["label"].long()


def _sorted(table: pa.Table) -> pa.Table:
    return table.take(np.argsort(table["label"].to_numpy(), kind="stable"))


def _digits() -> tuple[pa.Table, pa.Table]:
    """Return 1,437 digits of 8 x 8 and 360 held out: every fifth."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  # not needed with --data

    digits = load_digits()
    pixels = (digits.images.reshape(len(digits.target), -1) * 15).astype(np.uint8)
    features = pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), pixels.shape[1])
    table = pa.table({"features": features, "label": pa.array(digits.target, pa.int32())})
    held = np.arange(len(table)) % 5 == 0
    return table.filter(pa.array(~held)), table.filter(pa.array(held))


def _fashion(data: Path, folder: Path) -> tuple[pa.Table, pa.Table]:
    """Return Fashion-MNIST from its IDX files, 60,000 and 10,000 images of 28 x 28."""
    parts = []
    for part in ("train", "t10k"):
        copy = folder / f"{part}.arrow"
        cp.convert(data / "fashion_mnist" / f"{part}-images-idx3-ubyte.gz", copy)
        parts.append(pa.ipc.open_file(copy).read_all())
    return parts[0], parts[1]
