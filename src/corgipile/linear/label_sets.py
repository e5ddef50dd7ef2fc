"""Reads the labels of each row, from a column of lists or from columns of 0 and 1."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import arrow_compute as pc
from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue, BudgetTooSmall
from corgipile.features.choose import is_number, require
from corgipile.linear.labelled import Labelled
from corgipile.sizes import format_bytes
from corgipile.tables.scan import scan
from corgipile.tables.spans import flat
from corgipile.tables.table import Table, is_list
from corgipile.tables.values import value_type
from corgipile.tables.views import select

__all__ = ["LabelSets", "find_label_sets"]

Label = str | int
PIECE = 4 << 20  # row-label pairs processed at a time
LOOKED_UP = 4096  # labels looked up at a time
ENTRY_BYTES = 64  # bytes per label in a growing set, besides the label
MAX_TABLE_BYTES = 2  # label sets up to this size are deduplicated by a table of all values
NAME = "\x1flabels"  # the column of label sets when several columns hold labels


@dataclass
class LabelSets:
    """The label sets of rows; rows with the same labels share a set.

    Attributes:
        labels: The labels, ascending, or in column order.
        column: The column of lists; None: each label has its own column.
        numbers: The set of each row, int32[rows].
        sets: Whether a set has a label, bool[sets, labels].
    """

    labels: list[Label]
    column: str | None
    numbers: npt.NDArray[np.int32]
    sets: npt.NDArray[np.bool_] = field(repr=False)

    @property
    def name(self) -> str:
        """Return the name of the set column in `table`."""
        return NAME if self.column is None else self.column

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rows with each label."""
        rows = np.bincount(self.numbers, minlength=len(self.sets))
        return np.array([rows[members].sum() for members in self.sets.T], np.int64)

    def table(self, source: Table) -> Table:
        """Return the rows with the set number in place of the label columns."""
        if self.column is None and NAME in source.schema.names:
            raise BadArgument(f"the column name {NAME!r} is reserved for label sets; rename the column")
        columns = self.labels if self.column is None else [self.column]
        others = [name for name in source.schema.names if name not in columns]
        return Labelled(select(source, others), self.name, self.numbers)


def find_label_sets(
    table: Table, labels: str | Sequence[str], known: Sequence[Label] | None = None, most: float = math.inf
) -> LabelSets:
    """Read the labels of each row, from a column of lists of text or integers, or from several columns of 0 and 1.

    Labels other than the ``known`` ones raise BadLabel; set numbers and sets of more than ``most`` bytes raise
    BudgetTooSmall.

    Example:
        >>> from corgipile.tables import open
        >>> found = find_label_sets(open(pa.table({"tags": [["b", "a"], [], ["b"]]})), "tags")
        >>> found.labels, found.sets[found.numbers].astype(int).tolist()
        (['a', 'b'], [[1, 1], [0, 0], [0, 1]])
    """
    names = [labels] if isinstance(labels, str) else list(labels)
    require(table.schema, names, repr(table))
    if len(set(names)) < len(names):
        raise BadArgument(f"labels names a column twice: {names!r}")
    if isinstance(labels, str):
        found = sorted(_values(table, labels, most)) if known is None else list(known)
        if not found:
            raise BadLabel(f"all lists of label column {labels!r} are empty; at least one label is needed")
        return LabelSets(found, labels, *_numbered(_from_lists(table, labels, found), len(table), len(found), most))
    return LabelSets(list(names), None, *_numbered(_from_columns(table, names), len(table), len(names), most))


def _numbered(
    parts: Iterator[npt.NDArray[np.bool_]], rows: int, labels: int, most: float
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return the set number of each row, and the sets."""
    known, numbers, done = _SetNumbers(labels), np.empty(rows, np.int32), 0
    for part in parts:
        numbers[done : done + len(part)] = known.numbers(part)
        done += len(part)
        if (used := numbers.nbytes + known.nbytes) > most:
            needed = 2 * (numbers.nbytes + known.nbytes * rows // done)
            raise BudgetTooSmall(
                f"the label sets of {rows} rows take at least {format_bytes(used)}, more than half of memory, "
                f"{format_bytes(most)}; give {format_bytes(needed)}, or less if later rows repeat earlier sets"
            )
    known.number_ascending(numbers)
    return numbers, known.sets()


class _SetNumbers:
    """Distinct label sets, packed as bits and sorted, with their numbers."""

    def __init__(self, labels: int) -> None:
        self._labels, self._bytes = labels, -(-labels // 8)
        self._known = np.empty(0, f"V{self._bytes}")
        self._numbers = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the sets, old and new, and of the look-up among them."""
        return len(self._known) * (self._labels + 2 * (self._bytes + self._numbers.itemsize))

    def numbers(self, part: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Return the set numbers of the next rows; new sets get the next numbers."""
        bits = np.ascontiguousarray(np.packbits(part, axis=1))
        distinct, inverse = _distinct(bits, self._known.dtype)
        at = np.searchsorted(self._known, distinct)
        new = np.ones(len(distinct), bool)
        inside = np.flatnonzero(at < len(self._known))
        new[inside] = self._known[at[inside]] != distinct[inside]
        codes = np.empty(len(distinct), np.int32)
        codes[~new] = self._numbers[at[~new]]
        codes[new] = len(self._known) + np.arange(np.count_nonzero(new))
        if new.any():
            self._numbers = np.insert(self._numbers, at[new], codes[new])
            self._known = np.insert(self._known, at[new], distinct[new])
        return codes[inverse]

    def number_ascending(self, numbers: npt.NDArray[np.int32]) -> None:
        """Renumber sets in ascending order, in place.

        Numbers balance blocks: they must not depend on how many rows are read at a time.
        """
        places = np.arange(len(self._known), dtype=np.int32)
        if np.array_equal(self._numbers, places):
            return
        rank = np.empty_like(places)
        rank[self._numbers] = places
        for start in range(0, len(numbers), PIECE):
            numbers[start : start + PIECE] = rank[numbers[start : start + PIECE]]
        self._numbers = places

    def sets(self) -> npt.NDArray[np.bool_]:
        """Return whether each set has each label, in the order of their numbers."""
        sets, step = np.empty((self._labels, len(self._known)), bool), max(1, PIECE // self._labels)
        for start in range(0, len(self._known), step):
            packed = self._known[start : start + step].view(np.uint8).reshape(-1, self._bytes)
            sets[:, start : start + step] = np.unpackbits(packed, axis=1, count=self._labels).T
        return sets.T  # contiguous by label, the order of access


def _distinct(bits: npt.NDArray[np.uint8], kind: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the distinct rows of bytes, ascending, and the place of each row; short rows need no sort."""
    if bits.shape[1] > MAX_TABLE_BYTES:
        return np.unique(bits.view(kind).ravel(), return_inverse=True)
    number = f">u{bits.shape[1]}"  # big-endian: sorts as the bytes do
    codes = bits.view(number).ravel().astype(np.intp)
    present = np.zeros(1 << 8 * bits.shape[1], bool)
    present[codes] = True
    return np.flatnonzero(present).astype(number).view(kind), (np.cumsum(present) - 1)[codes]


def _values(table: Table, name: str, most: float) -> set[Label]:
    """Return the distinct labels of a list column; raise BudgetTooSmall if they take more than ``most`` bytes."""
    seen, used = set[Label](), 0
    for _, _, values, _ in _items(table, name, 1):
        distinct = pc.unique(values)
        for start in range(0, len(distinct), LOOKED_UP):
            new = set(distinct.slice(start, LOOKED_UP).to_pylist()) - seen
            seen |= new
            used += sum(map(sys.getsizeof, new)) + ENTRY_BYTES * len(new)
            if used > most:
                raise BudgetTooSmall(
                    f"label column {name!r} has more than {len(seen) - 1} labels, which take {format_bytes(used)}, "
                    f"more than half of memory, {format_bytes(most)}; give more memory, or a column of fewer labels"
                )
    return seen


def _from_lists(table: Table, name: str, labels: list[Label]) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield bool[rows, labels] from a column of lists."""
    for start, rows, values, owners in _items(table, name, len(labels)):
        part = np.zeros((rows, len(labels)), bool)
        if len(values):
            part[owners, _places(values, labels, name, start + owners)] = True
        yield part


def _places(values: pa.Array, labels: list[Label], name: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the places of values among the labels; ``rows`` are their row numbers for errors."""
    at = pc.index_in(values, _known(labels, values.type, name))
    if at.null_count:
        place = int(np.flatnonzero(flat(at.is_null()))[0])
        raise BadLabel(
            f"row {rows[place]} of label column {name!r} has {values[place].as_py()!r}, which is none of "
            f"the labels {labels[:5]!r}{'...' * (len(labels) > 5)}"
        )
    return flat(at)


def _known(labels: list[Label], kind: pa.DataType, name: str) -> pa.Array:
    try:
        return pa.array(labels, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise BadSchema(f"label column {name!r} holds {kind}; the labels are such as {labels[0]!r}") from None


def _items(table: Table, name: str, labels: int) -> Iterator[tuple[int, int, pa.Array, npt.NDArray[np.int64]]]:
    """Yield runs of rows: first row, number of rows, list items, and the row of each item within the run."""
    kind = table.schema.field(name).type
    item = value_type(kind.value_type if _is_list(kind) else kind)
    if not _is_list(kind) or not (pa.types.is_integer(item) or pa.types.is_null(item) or _is_text(item)):
        raise BadSchema(
            f"label column {name!r} is {kind}; lists of text or of integers are needed, or several columns of 0 and 1"
            + _hint(name, kind, item)
        )
    for first, batch in scan(table, [name]):
        column = batch.column(0)
        for start in range(0, len(column), most := max(1, PIECE // labels)):
            part = column.slice(start, most)
            if part.null_count:
                row = first + start + int(np.flatnonzero(flat(part.is_null()))[0])
                raise BadValue(f"row {row} of label column {name!r} is null; an empty list has no label")
            owners = np.repeat(np.arange(len(part)), flat(pc.list_value_length(part)))
            values = part.flatten().cast(item)
            if values.null_count:
                row = first + start + int(owners[np.flatnonzero(flat(values.is_null()))[0]])
                raise BadValue(f"row {row} of label column {name!r} holds a null; text or integers are needed")
            yield first + start, len(part), values, owners


def _hint(name: str, kind: pa.DataType, item: pa.DataType) -> str:
    """Return a hint for a column that does not hold lists of labels."""
    if not _is_list(kind) and _is_text(item):
        how = "pyarrow.compute.split_pattern(column, ','), or json.loads of each"
        return f"; split text of several labels first: {how} (in SQL string_split(t, ','), or t::JSON::VARCHAR[])"
    return f"; for one column of 0 and 1 use label={name!r}" * is_number(kind)


def _is_list(kind: pa.DataType) -> bool:
    return is_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _from_columns(table: Table, names: list[str]) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield bool[rows, labels] from columns of 0 and 1."""
    for name in names:
        kind = table.schema.field(name).type
        if not is_number(kind):
            raise BadSchema(f"label column {name!r} is {kind}; 0 and 1, or booleans, are needed")
    for start, batch in scan(table, names):
        part = np.zeros((batch.num_rows, len(names)), bool)
        for at, (name, column) in enumerate(zip(names, batch.columns, strict=True)):
            values = flat(pc.fill_null(column.cast(pa.float64()), float("nan")))
            bad = np.flatnonzero((values != 0) & (values != 1))
            if bad.size:
                row = int(bad[0])
                raise BadLabel(f"row {start + row} of label column {name!r} is {column[row].as_py()}; 0 or 1 is needed")
            part[:, at] = values == 1
        yield part
