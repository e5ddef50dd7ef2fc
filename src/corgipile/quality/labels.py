"""Statistics of a label column from one scan: class counts, range, and h_D."""

from typing import Any, Self
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadSchema
from corgipile.quality.keys import MAX_CLASSES, MAX_FLOAT_CLASSES, Floats
from corgipile.tables.scan import scan_column
from corgipile.tables.spans import array_of, flat, floats
from corgipile.tables.table import IntArray, Table, check_columns
from corgipile.tables.values import as_type, value_type

__all__ = ["LabelTally"]

MAX_ROWS = 1 << 16  # rows processed at a time; temporaries take several times as much
GROUPS = 1 << 16  # hash groups of the labels after the first `MOST_CLASSES`
Codes = npt.NDArray[np.int64]


class LabelTally:
    """Counts labels and measures h_D, see `corgipile.quality.h_d`, in constant memory.

    Values that are not numbers are classes, null included. From the 1025th class on, classes share 65,536 groups by a
    hash of their text, and h_D is that of the groups.

    Attributes:
        counts: Rows of each class, in order of appearance; None if labels are numbers, or more than 1024 classes.

    Example:
        >>> tally = LabelTally(np.array([0, 2, 4]))
        >>> tally.add(0, pa.array(["a", "a", "b", None]))
        >>> tally.counts, round(tally.h_d, 3)
        ({'a': 2, 'b': 1, 'null': 1}, 1.2)
    """

    def __init__(self, cuts: IntArray) -> None:
        self.counts: dict[Any, int] | None = {}
        self._cuts = cuts
        self._codes: dict[Any, int] = {}
        self._classes, self._numbers = _Classes(np.diff(cuts)), _Numbers()

    @classmethod
    def of(cls, table: Table, name: str, cuts: IntArray) -> Self:
        """Scan a column once; raise BadSchema unless it has one value per row."""
        if pa.types.is_nested(kind := table.schema.field(check_columns(table.schema, [name])[0]).type):
            raise BadSchema(f"column {name!r} must have one value per row, got {kind}")
        tally = cls(cuts)
        for start, part in scan_column(table, name):
            for at in range(0, len(part), MAX_ROWS):
                tally.add(start + at, part.slice(at, MAX_ROWS))
        return tally

    @property
    def h_d(self) -> float:
        """Return h_D of the scanned rows; 0.0 if all are equal."""
        return (self._numbers if self._classes.numeric else self._classes).factor(int(self._cuts[-1]))

    @property
    def range(self) -> tuple[float, float, float] | None:
        """Return the minimum, mean and maximum of numeric labels; None for classes."""
        return self._numbers.range() if self.counts is None else None

    def add(self, start: int, part: pa.Array) -> None:
        """Add the labels of the next rows, from row ``start`` on."""
        part = as_type(part, value_type(part.type))
        block = np.searchsorted(self._cuts, np.arange(start, start + len(part)), side="right") - 1
        if _is_number(part.type):
            self._add_numbers(floats(part), block)
            return
        coded = part.dictionary_encode(null_encoding="encode")
        names = ["null" if name is None else name for name in coded.dictionary.to_pylist()]
        indices = flat(coded.indices).astype(np.int64)
        self._count(names, np.bincount(indices, minlength=len(names)))
        self._classes.add(self._codes_of(names)[indices], block)

    def _add_numbers(self, values: npt.NDArray[Any], block: Codes) -> None:
        fraction = values.dtype.kind == "f"
        self._numbers.add(values.astype(np.float64), block)
        if self.counts is None and self._classes.numeric:
            return
        classes = not fraction or bool((np.isfinite(values) & (values == np.floor(values))).all())
        names, indices, counts = _distinct(values)
        self._count(list(names) if classes else None, counts)
        are_classes = self.counts is not None and len(self.counts) <= (MAX_FLOAT_CLASSES if fraction else MAX_CLASSES)
        self._classes.numeric = self._classes.numeric or not are_classes
        if not self._classes.numeric:
            self._classes.add(self._codes_of(list(names))[indices], block)

    def _count(self, names: list[Any] | None, counts: IntArray) -> None:
        """Count classes while there are few; None: these labels are not classes."""
        if self.counts is None:
            return
        for name, count in zip(names or (), counts.tolist(), strict=False):
            self.counts[name] = self.counts.get(name, 0) + count
        if names is None or len(self.counts) > MAX_CLASSES:
            self.counts = None

    def _codes_of(self, names: list[Any]) -> Codes:
        codes, known = np.empty(len(names), np.int64), self._codes
        for at, name in enumerate(names):
            code = known.get(name)
            if code is None and len(known) < MAX_CLASSES:
                code = known[name] = len(known)
            codes[at] = MAX_CLASSES + crc32(str(name).encode()) % GROUPS if code is None else code
        return codes


class _Classes:
    """Sums over blocks that yield ``(1/N) sum_l n_l^2 |p_l - p|^2 / (1 - |p|^2)`` once the shares p are known."""

    def __init__(self, sizes: IntArray) -> None:
        self.numeric = False  # labels are numbers
        self._block_rows = sizes.astype(np.float64)  # rows of each block
        self._rows = np.zeros(MAX_CLASSES + GROUPS, np.int64)
        self._products = np.zeros(MAX_CLASSES + GROUPS)  # per class: rows in a block times the block's rows
        self._squares = self._sized = 0.0
        self._open = (-1, np.zeros(0, np.int64), np.zeros(0))  # the current, incomplete block

    def add(self, codes: Codes, block: Codes) -> None:
        """Add the classes of rows, and their blocks."""
        self._rows += np.bincount(codes, minlength=len(self._rows))
        keys, counts = np.unique((block - block[0]) * len(self._rows) + codes, return_counts=True)
        blocks, classes = block[0] + keys // len(self._rows), keys % len(self._rows)
        last, old, pending = self._open
        if last == block[0]:
            first = blocks == last
            merged, at = np.unique(np.append(old, classes[first]), return_inverse=True)
            joined = np.bincount(at, np.append(pending, counts[first]))
            classes, counts = np.append(merged, classes[~first]), np.append(joined, counts[~first])
            blocks = np.append(np.full(len(merged), last), blocks[~first])
        elif last >= 0:
            self._close_blocks(old, pending, np.full(len(old), last))
        open_ = blocks == block[-1]
        self._open = (int(block[-1]), classes[open_], counts[open_].astype(np.float64))
        self._close_blocks(classes[~open_], counts[~open_], blocks[~open_])

    def _close_blocks(self, classes: Codes, counts: npt.NDArray[Any], blocks: Codes) -> None:
        """Add complete blocks to the sums."""
        counts, sizes = counts.astype(np.float64), self._block_rows
        self._squares += float(counts @ counts)
        self._sized += float((sizes[np.unique(blocks)] ** 2).sum())
        self._products += np.bincount(classes, counts * sizes[blocks], minlength=len(self._products))

    def factor(self, total: int) -> float:
        """Return h_D."""
        last, classes, counts = self._open
        if last >= 0:
            self._close_blocks(classes, counts, np.full(len(classes), last))
            self._open = (-1, classes[:0], counts[:0])
        present = np.flatnonzero(self._rows)  # Python integers from here on avoid rounding
        rows, products = self._rows[present].tolist(), map(int, self._products[present].tolist())
        equal_pairs = sum(count * count for count in rows)
        squares = int(self._squares) * total * total + int(self._sized) * equal_pairs
        squares -= 2 * total * sum(product * count for product, count in zip(products, rows, strict=True))
        distinct_pairs = total * (total * total - equal_pairs)
        return squares / distinct_pairs if distinct_pairs else 0.0


class _Numbers:
    """Sums over blocks for numeric labels; missing values count as the mean."""

    def __init__(self) -> None:
        self._known, self._mean, self._off = 0, 0.0, 0.0  # rows, mean, sum of squared deviations
        self._min, self._max = np.inf, -np.inf
        self._shift: float | None = None  # near the numbers, so that sums of differences are exact
        # Sums over blocks: squared sums of differences, these sums times known rows, squared known rows.
        self._blocks = np.zeros(3)
        self._open = (-1, 0.0, 0.0)

    def add(self, values: Floats, block: Codes) -> None:
        """Add numeric labels of rows, and their blocks."""
        known = np.isfinite(values)
        values, block = values[known], block[known]
        if not len(values):
            return
        self._update_variance(values)
        self._shift = float(values[0]) if self._shift is None else self._shift
        at = block - block[0]
        sums = np.bincount(at, values - self._shift).astype(np.float64)
        rows = np.bincount(at).astype(np.float64)
        last, total, pending = self._open
        if last == block[0]:
            sums[0], rows[0] = sums[0] + total, rows[0] + pending
        else:
            self._close_blocks(np.array([total]), np.array([pending]))
        self._open = (int(block[-1]), float(sums[-1]), float(rows[-1]))
        self._close_blocks(sums[:-1], rows[:-1])

    def _close_blocks(self, sums: Floats, rows: Floats) -> None:
        self._blocks += [float(sums @ sums), float(sums @ rows), float(rows @ rows)]

    def _update_variance(self, values: Floats) -> None:
        rows, more, center = self._known, len(values), float(values.mean())
        total, off = rows + more, center - self._mean
        self._off += float(((values - center) ** 2).sum()) + off * off * rows * more / total
        self._known, self._mean = total, self._mean + off * more / total
        self._min, self._max = min(self._min, float(values.min())), max(self._max, float(values.max()))

    def factor(self, total: int) -> float:
        """Return h_D of the blocks."""
        self._close_blocks(np.array([self._open[1]]), np.array([self._open[2]]))
        self._open = (-1, 0.0, 0.0)
        if not self._off > 0:
            return 0.0
        mean = self._mean - (self._shift or 0.0)
        squares = self._blocks @ np.array([1.0, -2 * mean, mean * mean])
        return float(max(0.0, squares) / self._off)

    def range(self) -> tuple[float, float, float] | None:
        """Return the minimum, mean and maximum; None if all are missing."""
        return (self._min, self._mean, self._max) if self._known else None


def _distinct(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes, IntArray]:
    """Return the distinct values, the number of each value among them, and their counts; hashing beats sorting."""
    if values.dtype.kind not in "iuf" or values.dtype == np.float16:
        names, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
        return names, indices.reshape(-1), counts
    coded = array_of(values).dictionary_encode()
    indices = flat(coded.indices).astype(np.int64)
    return flat(coded.dictionary), indices, np.bincount(indices, minlength=len(coded.dictionary))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))
