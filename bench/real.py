"""Real data sets, split, standardised and sorted by label, the worst storage order."""

import bz2
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import Skip


@dataclass(frozen=True)
class Split:
    """Training rows, sorted by label, and validation rows."""

    train: pa.Table
    x_test: Any
    y_test: np.ndarray
    regression: bool = False

    @classmethod
    def of_arrays(
        cls, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, regression: bool = False
    ) -> "Split":
        """Standardise by the training rows, and sort stably by label."""
        mean, spread = x.mean(axis=0), x.std(axis=0)
        spread[spread == 0] = 1
        order = np.argsort(y, kind="stable")
        scaled = ((x - mean) / spread)[order].astype(np.float32)
        return cls(dense(scaled, y[order]), ((x_test - mean) / spread).astype(np.float32), y_test, regression)

    @classmethod
    def of_tables(cls, train: Path, test: Path) -> "Split":
        """Read two Arrow files."""
        rows, held = (pa.ipc.open_file(path).read_all().combine_chunks() for path in (train, test))
        y = held["label"].to_numpy()
        x = held["features"].combine_chunks().flatten().to_numpy().reshape(len(y), -1)
        return cls(rows, x, y)


def dense(x: np.ndarray, y: np.ndarray) -> pa.Table:
    """Make a table of float32 feature lists and labels."""
    label = pa.array(y.astype(np.float32 if y.dtype.kind == "f" else np.int32))
    features = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    return pa.table({"features": features, "label": label})


def held_out(x: np.ndarray, y: np.ndarray, regression: bool) -> "Split":
    """Use every fifth row of a seeded permutation for validation."""
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[::5], np.delete(order, np.s_[::5])
    if regression:
        y = (y - y[train].mean()) / y[train].std()
    return Split.of_arrays(x[train], y[train], x[test], y[test], regression)


def unpack(data: Path | None, name: str) -> bytes:
    """Read a compressed file of the data folder, or skip."""
    if data is None:
        raise Skip("give --data DIR, the folder of the real data sets")
    if not (data / name).exists():
        raise Skip(f"{name} is not in the data folder")
    return gzip.decompress((data / name).read_bytes())


def fashion_mnist(data: Path | None) -> "Split":
    """Return images of 10 classes, pixels / 255."""
    parts = []
    for part in ("train", "t10k"):
        images = unpack(data, f"fashion_mnist/{part}-images-idx3-ubyte.gz")
        labels = np.frombuffer(unpack(data, f"fashion_mnist/{part}-labels-idx1-ubyte.gz"), np.uint8, offset=8)
        pixels = np.frombuffer(images, np.uint8, offset=16).reshape(len(labels), -1)
        order = np.argsort(labels, kind="stable")
        parts += [(pixels[order] / np.float32(255)), labels[order].astype(np.int64)]
    return Split(dense(parts[0], parts[1]), parts[2], parts[3])


def skin(data: Path | None) -> "Split":
    """Return a binary task of three colours."""
    table = np.loadtxt(unpack(data, "skin/Skin_NonSkin.txt.gz").decode().splitlines())
    return held_out(table[:, :3], (table[:, 3] == 1).astype(np.int64), regression=False)


def protein(data: Path | None) -> "Split":
    """Return a regression task with the target last."""
    table = np.loadtxt(unpack(data, "protein/data.csv.gz").decode().splitlines(), delimiter=",")
    return held_out(table[:, :-1], table[:, -1], regression=True)


def ijcnn1(data: Path | None) -> "Split":
    """Return a binary task with one positive in ten, 22 features, stored as SVMlight text."""
    parts: list[np.ndarray] = []
    for name in ("trn", "tst"):
        if data is None or not (path := data / "ijcnn1" / f"ijcnn1.{name}.bz2").exists():
            raise Skip(
                "ijcnn1 is not in the data folder" if data else "give --data DIR, the folder of the real data sets"
            )
        rows = [line.split() for line in bz2.decompress(path.read_bytes()).decode().splitlines()]
        x = np.zeros((len(rows), 22))
        for row, (_, *tokens) in zip(x, rows, strict=True):
            for token in tokens:
                index, value = token.split(":")
                row[int(index) - 1] = float(value)
        parts += [x, np.array([float(row[0]) > 0 for row in rows], np.int64)]
    return Split.of_arrays(*parts)  # type: ignore[arg-type]


def a9a(data: Path | None) -> "Split":
    """Return a sparse binary task, stored as lists of indices and values."""
    train, test = (sparse(unpack(data, f"a9a/{name}.gz")) for name in ("a9a", "a9a.t"))
    order = np.argsort(train["label"].to_numpy(), kind="stable")
    return Split(train.take(order), test.drop_columns(["label"]), test["label"].to_numpy())


def sparse(text: bytes) -> pa.Table:
    """Parse SVMlight text with indices from 1 and labels -1 and 1."""
    rows = [line.split() for line in text.decode().splitlines()]
    pairs = [[token.split(":") for token in row[1:]] for row in rows]
    indices = [[int(index) - 1 for index, _ in row] for row in pairs]
    values = [[float(value) for _, value in row] for row in pairs]
    return pa.table(
        {
            "label": pa.array([int(float(row[0])) for row in rows], pa.int32()),
            "features_k": pa.array(indices, pa.list_(pa.int32())),
            "features_v": pa.array(values, pa.list_(pa.float32())),
        }
    )


READERS = {"fashion_mnist": fashion_mnist, "skin": skin, "a9a": a9a, "protein": protein, "ijcnn1": ijcnn1}
