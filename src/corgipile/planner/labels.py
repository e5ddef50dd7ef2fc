"""Labels of simulated orders, from two scans of the label column in constant memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadArgument
from corgipile.orders import Blocks
from corgipile.quality.codes import Classes
from corgipile.quality.keys import Floats, Keys
from corgipile.tables.numbered import Numbered
from corgipile.tables.scan import scan_column
from corgipile.tables.sketch import Tally
from corgipile.tables.table import IntArray, Table, check_columns, even_cuts

__all__ = ["Labels"]


@dataclass(frozen=True)
class Labels:
    """A label column as classes, or as numbers (None), with the mean and variance of each.

    Missing values count as the mean.
    """

    table: Table
    name: str
    numbered: Numbered
    classes: Classes | None
    mean: Floats
    variance: Floats

    @classmethod
    def read(cls, table: Table, name: str, cut: Sequence[Blocks]) -> tuple[Self, list[npt.NDArray[np.float64]]]:
        """Scan a column once; return its labels, and its sketch for each way to cut the table.

        Example:
            >>> from corgipile.tables import open
            >>> labels, (sketch,) = Labels.read(open({"y": [0, 0, 1, 1]}), "y", [Blocks(4, even=2)])
            >>> labels.mean.tolist(), sketch.tolist()
            ([0.5, 0.5], [0.0, 1.0])
        """
        numbered = Numbered(name, table.schema.field(check_columns(table.schema, [name])[0]).type)
        edges = (even_cuts(blocks.rows, blocks.even) if blocks.cuts is None else blocks.cuts for blocks in cut)
        tallies = [Tally(table, cuts, name) for cuts in edges]
        summary = _Summary()
        for _, part in scan_column(table, name):
            for tally in tallies:
                tally.add(part)
            summary.add(_values(numbered.of(part)))
        return cls(table, name, numbered, *summary.result()), [tally.values() for tally in tallies]

    def of(self, visited: Sequence[IntArray]) -> list[Keys]:
        """Scan the column again; return the labels of each order's visited rows, in order of visits.

        Example:
            >>> from corgipile.tables import open
            >>> labels, _ = Labels.read(open({"y": [3, 4, 5]}), "y", [])
            >>> labels.of([np.array([2, 0])])[0].rows(slice(None)).tolist()
            [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        """
        sorts = [np.argsort(rows, kind="stable").astype(np.int32) for rows in visited]
        kind = np.float64 if self.classes is None else np.int16
        columns = [np.empty(len(rows), kind) for rows in visited]
        for start, part in scan_column(self.table, self.name):
            values = self._encode(_values(self.numbered.of(part)))
            for rows, order, into in zip(visited, sorts, columns, strict=True):
                low, high = np.searchsorted(rows, [start, start + len(values)], sorter=order)
                into[order[low:high]] = values[rows[order[low:high]] - start]
        return [Keys.known(column, self.mean, self.variance, classes=self.classes is not None) for column in columns]

    def _encode(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.classes is None:
            numbers = values.astype(np.float64)
            return np.where(np.isfinite(numbers), numbers, self.mean)
        codes = self.classes.codes(values)
        if codes is None:
            raise BadArgument(f"column {self.name!r} changed during the scan")
        return codes


class _Summary:
    """Accumulates the classes of a column and their shares, or mean and variance of its numbers."""

    def __init__(self) -> None:
        self._classes: Classes | None = Classes()
        self._counts = np.zeros(0, np.int64)
        self._moments = np.zeros(3)  # rows, mean, sum of squared deviations

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add the next values."""
        if self._classes is not None and (codes := self._classes.codes(values)) is not None:
            counts = np.bincount(codes, minlength=len(self._classes.names))
            counts[: len(self._counts)] += self._counts
            self._counts = counts
        else:
            self._classes = None
        numbers = values.astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        rows, mean, squares = self._moments
        more, center = len(numbers), float(numbers.mean()) if len(numbers) else 0.0
        off, total = center - mean, max(1.0, rows + more)
        squares += ((numbers - center) ** 2).sum() + off * off * rows * more / total
        self._moments = np.array([total, mean + off * more / total, squares])

    def result(self) -> tuple[Classes | None, Floats, Floats]:
        """Return classes (None for numbers), mean and variance."""
        if self._classes is None:
            rows, mean, squares = self._moments
            return None, np.array([mean]), np.array([squares / max(1.0, rows)])
        share = self._counts / max(1, self._counts.sum())
        return self._classes, share, share * (1 - share)


def _values(part: pa.Array) -> npt.NDArray[Any]:
    """Return an Arrow array's values; missing numbers are NaN."""
    if pa.types.is_boolean(part.type) and part.null_count:
        part = part.cast(pa.uint8())
    values: npt.NDArray[Any] = part.to_numpy(zero_copy_only=False)
    return values
