"""What a column of labels says of orders: read twice from end to end, however long it is, and never in memory."""

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
    """A column of labels: its classes, or that it is numbers; mean and variance. What is missing counts as the mean.

    Attributes:
        table: The table.
        name: The column.
        numbered: What gives its numbers.
        classes: Its classes, None where it is numbers.
        mean: Of each class's share, or of the number.
        variance: The same.
    """

    table: Table
    name: str
    numbered: Numbered
    classes: Classes | None
    mean: Floats
    variance: Floats

    @classmethod
    def read(cls, table: Table, name: str, cut: Sequence[Blocks]) -> tuple[Self, list[npt.NDArray[np.float64]]]:
        """Read a column once; return what it is, and the sketch of it for each way to cut the table.

        Raises:
            BadSchema: It does not hold one value a row.

        Example:
            >>> from corgipile.tables import open
            >>> labels, (sketch,) = Labels.read(open({"y": [0, 0, 1, 1]}), "y", [Blocks(4, even=2)])
            >>> labels.mean.tolist(), sketch.tolist()
            ([0.5, 0.5], [0.0, 1.0])
        """
        numbered = Numbered(name, table.schema.field(check_columns(table.schema, [name])[0]).type)
        tallies = [Tally(table, even_cuts(one.rows, one.even) if one.cuts is None else one.cuts, name) for one in cut]
        summary = _Summary()
        for _, part in scan_column(table, name):
            for tally in tallies:
                tally.add(part)
            summary.add(_values(numbered.of(part)))
        return cls(table, name, numbered, *summary.told()), [tally.values() for tally in tallies]

    def of(self, visited: Sequence[IntArray]) -> list[Keys]:
        """Read the column once more; return the labels of some rows of each order, as they are visited.

        Example:
            >>> from corgipile.tables import open
            >>> labels, _ = Labels.read(open({"y": [3, 4, 5]}), "y", [])
            >>> labels.of([np.array([2, 0])])[0].rows(slice(None)).tolist()
            [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        """
        sorts = [np.argsort(rows, kind="stable").astype(np.int32) for rows in visited]
        kind = np.float64 if self.classes is None else np.int16
        found = [np.empty(len(rows), kind) for rows in visited]
        for start, part in scan_column(self.table, self.name):
            values = self._coded(_values(self.numbered.of(part)))
            for rows, order, into in zip(visited, sorts, found, strict=True):
                low, high = np.searchsorted(rows, [start, start + len(values)], sorter=order)
                into[order[low:high]] = values[rows[order[low:high]] - start]
        return [Keys.known(one, self.mean, self.variance, classes=self.classes is not None) for one in found]

    def _coded(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.classes is None:
            numbers = values.astype(np.float64)
            return np.where(np.isfinite(numbers), numbers, self.mean)
        codes = self.classes.codes(values)
        if codes is None:
            raise BadArgument(f"column {self.name!r} changed while it was read")
        return codes


class _Summary:
    """Classes of a column and their shares, or mean and variance of its numbers, as they come."""

    def __init__(self) -> None:
        self._classes: Classes | None = Classes()
        self._counts = np.zeros(0, np.int64)
        self._moments = np.zeros(3)  # rows, their mean, squares of the differences from it

    def add(self, values: npt.NDArray[Any]) -> None:
        """Hear the values that come next."""
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

    def told(self) -> tuple[Classes | None, Floats, Floats]:
        """Return classes, None for numbers; mean; variance."""
        if self._classes is None:
            rows, mean, squares = self._moments
            return None, np.array([mean]), np.array([squares / max(1.0, rows)])
        share = self._counts / max(1, self._counts.sum())
        return self._classes, share, share * (1 - share)


def _values(part: pa.Array) -> npt.NDArray[Any]:
    """Return the values of a part; missing numbers are NaN."""
    if pa.types.is_boolean(part.type) and part.null_count:
        part = part.cast(pa.uint8())
    values: npt.NDArray[Any] = part.to_numpy(zero_copy_only=False)
    return values
