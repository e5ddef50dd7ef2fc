"""Seeded synthetic tables, written as streams, for demonstrations, tests and benchmarks."""

from collections.abc import Iterator
from itertools import pairwise
from math import erf, sqrt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.tables.formats.arrow.writer import Writer
from corgipile.tables.io.files import PathLike
from corgipile.tables.table import even_cuts

__all__ = ["bayes_accuracy", "clustered", "higgs_like"]

Floats = npt.NDArray[np.float32]

_CHUNK = 1 << 14
_POSITIVE = 0.53
_DISTANCE = 1.2
_FACTORS = 4
_TASK, _ROWS, _TEST, _CLUSTERS = range(4)


def higgs_like(
    path: PathLike,
    rows: int,
    *,
    features: int = 28,
    seed: int = 0,
    sorted_by_label: bool = True,
    test: PathLike | None = None,
    test_rows: int = 100_000,
    overwrite: bool = False,
) -> None:
    """Write a binary table like HIGGS: two overlapping classes, correlated float32 features, 53 % positive.

    Features are normal with four common factors; the class means are 1.2 standard deviations apart in the best
    direction, so a linear model can reach about 73 % (``bayes_accuracy``). Columns: ``features``, a float32 list, and
    ``label``, int32 of 0 and 1.

    Args:
        path: Arrow IPC file to write.
        rows: Rows of the table.
        features: Length of a row's features.
        seed: The same seed gives the same rows.
        sorted_by_label: Put all rows of class 0 first, the worst order for SGD.
        test: Arrow IPC file of held-out rows of the same distribution, in random order.
        test_rows: Rows held out.
        overwrite: Replace files of any kind.

    Example:
        >>> import tempfile
        >>> from corgipile import tables
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     higgs_like(f"{folder}/train.arrow", 1000)
        ...     tables.open(f"{folder}/train.arrow").read(469, 472, ["label"]).to_pydict()
        {'label': [0, 1, 1]}
    """
    if rows < 1 or features < 1 or test_rows < 1:
        raise BadArgument(f"rows, features and test_rows must be at least 1, got {rows}, {features}, {test_rows}")
    task = _Task(seed, features)
    labels = None
    if sorted_by_label:
        labels = (np.arange(rows) >= rows - round(_POSITIVE * rows)).astype(np.int32)
    _write(path, task.batches(_ROWS, rows, labels), overwrite=overwrite)
    if test is not None:
        _write(test, task.batches(_TEST, test_rows, None), overwrite=overwrite)


def bayes_accuracy() -> float:
    """Return the accuracy of the best possible model of ``higgs_like``.

    Example:
        >>> round(bayes_accuracy(), 3)
        0.727
    """
    shift = np.log(_POSITIVE / (1 - _POSITIVE)) / _DISTANCE
    right = [_normal(_DISTANCE / 2 + shift), _normal(_DISTANCE / 2 - shift)]
    return float(_POSITIVE * right[0] + (1 - _POSITIVE) * right[1])


def clustered(
    rows: int,
    *,
    classes: int = 10,
    features: int = 8,
    spread: float = 1.0,
    seed: int = 0,
    sorted_by_label: bool = True,
) -> pa.Table:
    """Make a label-sorted table in memory with one normal cluster per class.

    Args:
        rows: Rows of the table; classes have equal sizes, or one row less.
        classes: Number of classes; labels are int32 from 0.
        features: Length of a row's features.
        spread: Standard deviation within a class; between class means it is 1 per feature.
        seed: The same seed gives the same rows.
        sorted_by_label: Keep the rows sorted; else put them in random order.

    Example:
        >>> clustered(6, classes=3)["label"].to_pylist()
        [0, 0, 1, 1, 2, 2]
    """
    if rows < 1 or classes < 1 or features < 1:
        raise BadArgument(f"rows, classes and features must be at least 1, got {rows}, {classes}, {features}")
    rng = _generator(seed, _CLUSTERS, 0)
    means = rng.standard_normal((classes, features), np.float32)
    labels = (np.arange(rows) * classes // rows).astype(np.int32)
    if not sorted_by_label:
        rng.shuffle(labels)
    values = means[labels] + np.float32(spread) * rng.standard_normal((rows, features), np.float32)
    return pa.Table.from_batches([_batch(values, labels)])


class _Task:
    """Two normal distributions with different means."""

    def __init__(self, seed: int, features: int) -> None:
        rng = _generator(seed, _TASK, 0)
        self._seed, self._features = seed, features
        factors = rng.standard_normal((_FACTORS, features)) / sqrt(2 * _FACTORS)
        covariance = np.eye(features) / 2 + factors.T @ factors
        direction = rng.standard_normal(features)
        length = sqrt(direction @ np.linalg.solve(covariance, direction))
        self._mean = (direction * _DISTANCE / length).astype(np.float32)
        self._factors = factors.astype(np.float32)

    def batches(self, purpose: int, rows: int, labels: npt.NDArray[np.int32] | None) -> Iterator[pa.RecordBatch]:
        """Draw rows of these labels, or of random ones."""
        for number, (start, stop) in enumerate(pairwise(even_cuts(rows, _CHUNK).tolist())):
            rng = _generator(self._seed, purpose, number)
            count = stop - start
            drawn = (rng.random(count) < _POSITIVE).astype(np.int32) if labels is None else labels[start:stop]
            values = rng.standard_normal((count, self._features), np.float32)
            values *= np.float32(sqrt(0.5))
            values += rng.standard_normal((count, _FACTORS), np.float32) @ self._factors
            values += np.multiply.outer(drawn - np.float32(0.5), self._mean)
            yield _batch(values, drawn)


def _generator(seed: int, purpose: int, number: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(purpose, number)))


def _batch(values: Floats, labels: npt.NDArray[np.int32]) -> pa.RecordBatch:
    features = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    return pa.RecordBatch.from_arrays([features, pa.array(labels)], names=["features", "label"])


def _write(path: PathLike, batches: Iterator[pa.RecordBatch], *, overwrite: bool) -> None:
    first = next(batches)
    with Writer(path, first.schema, overwrite=overwrite) as writer:
        writer.write(first)
        for batch in batches:
            writer.write(batch)


def _normal(at: float) -> float:
    return (1 + erf(at / sqrt(2))) / 2
