"""Which labels each row of a table has, where it may have several: of a column of lists, or of columns of 0 and 1."""

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
from corgipile.tables.arrow.spans import flat
from corgipile.tables.scan import scan
from corgipile.tables.table import Table, is_list
from corgipile.tables.values import value_type
from corgipile.tables.views import select

__all__ = ["LabelSets", "find_label_sets"]

Label = str | int
PIECE = 4 << 20  # labels of rows at a time
AT_ONCE = 4096  # labels that are looked up among those found
ENTRY = 64  # bytes of a label in a set while it grows, beside its own
FEW = 2  # bytes of a set of labels of which all values are tried
NAME = "\x1flabels"  # the column with a row's set of labels, if several columns hold labels


@dataclass
class LabelSets:
    """The labels of rows; rows with the same ones have the same set.

    Attributes:
        labels: The labels, ascending, or in the order of their columns.
        column: The column of lists; None: each label has its own.
        numbers: The set of each row, int32[rows].
        sets: Whether a set has a label, bool[sets, labels].
    """

    labels: list[Label]
    column: str | None
    numbers: npt.NDArray[np.int32]
    sets: npt.NDArray[np.bool_] = field(repr=False)

    @property
    def name(self) -> str:
        """Return the column in which `table` has the sets."""
        return NAME if self.column is None else self.column

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Return how many rows have each label."""
        rows = np.bincount(self.numbers, minlength=len(self.sets))
        return np.array([rows[one].sum() for one in self.sets.T], np.int64)

    def table(self, source: Table) -> Table:
        """Return the rows without the columns of labels, and with the number of the set of each."""
        if self.column is None and NAME in source.schema.names:
            raise BadArgument(f"column {NAME!r} has the name that sets of labels have; rename it")
        columns = self.labels if self.column is None else [self.column]
        return Labelled(
            select(source, [name for name in source.schema.names if name not in columns]), self.name, self.numbers
        )


def find_label_sets(
    table: Table, labels: str | Sequence[str], known: Sequence[Label] | None = None, most: float = math.inf
) -> LabelSets:
    """Read which labels each row has.

    Args:
        table: The rows.
        labels: A column of lists of text or integers, or several columns of 0 and 1.
        known: The labels there may be; None: those that are found.
        most: Bytes that numbers and sets may take.

    Raises:
        BadLabel: A value is none of the labels, no row has one, or a column is no label of 0 and 1.
        BadSchema: A column is of another type.
        BadValue: A list, or what is in it, is null.
        BudgetTooSmall: Numbers and sets take more than they may.
        MissingColumn: There is no such column.

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
            raise BadLabel(f"all lists of label column {labels!r} are empty; there is nothing to learn")
        return LabelSets(found, labels, *_numbered(_of_lists(table, labels, found), len(table), len(found), most))
    return LabelSets(list(names), None, *_numbered(_of_columns(table, names), len(table), len(names), most))


def _numbered(
    parts: Iterator[npt.NDArray[np.bool_]], rows: int, labels: int, most: float
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return the number of the set of each row, and the sets."""
    found, numbers, done = _Found(labels), np.empty(rows, np.int32), 0
    for part in parts:
        numbers[done : done + len(part)] = found.numbers(part)
        done += len(part)
        if (taken := numbers.nbytes + found.nbytes) > most:
            about = 2 * (numbers.nbytes + found.nbytes * rows // done)
            raise BudgetTooSmall(
                f"the sets of labels of {rows} rows take {format_bytes(taken)} at least, and may take "
                f"{format_bytes(most)}, half of memory; give memory of {format_bytes(about)}, or less if rows "
                "to come have the sets of those before"
            )
    found.number_ascending(numbers)
    return numbers, found.sets()


class _Found:
    """The sets of labels that were found: eight labels a byte, ascending, and the number of each."""

    def __init__(self, labels: int) -> None:
        self._labels, self._bytes = labels, -(-labels // 8)
        self._known = np.empty(0, f"V{self._bytes}")
        self._numbers = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the sets will take, and that it takes to find one among them, old ones and new."""
        return len(self._known) * (self._labels + 2 * (self._bytes + self._numbers.itemsize))

    def numbers(self, part: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Return the numbers of the sets of the rows that come next; new ones get the next numbers."""
        bits = np.ascontiguousarray(np.packbits(part, axis=1))
        some, back = _distinct(bits, self._known.dtype)
        at = np.searchsorted(self._known, some)
        new = np.ones(len(some), bool)
        inside = np.flatnonzero(at < len(self._known))
        new[inside] = self._known[at[inside]] != some[inside]
        codes = np.empty(len(some), np.int32)
        codes[~new] = self._numbers[at[~new]]
        codes[new] = len(self._known) + np.arange(np.count_nonzero(new))
        if new.any():
            self._numbers = np.insert(self._numbers, at[new], codes[new])
            self._known = np.insert(self._known, at[new], some[new])
        return codes[back]

    def number_ascending(self, numbers: npt.NDArray[np.int32]) -> None:
        """Number sets in their order, in place.

        Blocks are balanced by numbers, which are then the same however many rows are read at a time.
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
        """Return whether each set has each label, ascending as they are numbered at last."""
        sets, step = np.empty((self._labels, len(self._known)), bool), max(1, PIECE // self._labels)
        for start in range(0, len(self._known), step):
            packed = self._known[start : start + step].view(np.uint8).reshape(-1, self._bytes)
            sets[:, start : start + step] = np.unpackbits(packed, axis=1, count=self._labels).T
        return sets.T  # a label's are beside each other, as they are read


def _distinct(bits: npt.NDArray[np.uint8], kind: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the different rows of bytes, ascending, and which of them each is; few bytes are not sorted for that."""
    if bits.shape[1] > FEW:
        return np.unique(bits.view(kind).ravel(), return_inverse=True)
    number = f">u{bits.shape[1]}"  # whose order is that of the bytes
    codes = bits.view(number).ravel().astype(np.intp)
    there = np.zeros(1 << 8 * bits.shape[1], bool)
    there[codes] = True
    return np.flatnonzero(there).astype(number).view(kind), (np.cumsum(there) - 1)[codes]


def _values(table: Table, name: str, most: float) -> set[Label]:
    """Return the labels of a column of lists.

    Raises:
        BudgetTooSmall: They take more than ``most`` bytes, before there are models of them.
    """
    seen: set[Label] = set()
    taken = 0
    for _, _, values, _ in _items(table, name, 1):
        found = pc.unique(values)
        for start in range(0, len(found), AT_ONCE):
            new = set(found.slice(start, AT_ONCE).to_pylist()) - seen
            seen |= new
            taken += sum(map(sys.getsizeof, new)) + ENTRY * len(new)
            if taken > most:
                raise BudgetTooSmall(
                    f"label column {name!r} has more than {len(seen) - 1} labels, which take {format_bytes(taken)} and "
                    f"may take {format_bytes(most)}, half of memory; give more memory, or a column of fewer labels"
                )
    return seen


def _of_lists(table: Table, name: str, labels: list[Label]) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield whether rows have labels, of lists of them."""
    for start, rows, values, owners in _items(table, name, len(labels)):
        part = np.zeros((rows, len(labels)), bool)
        if len(values):
            part[owners, _places(values, labels, name, start + owners)] = True
        yield part


def _places(values: pa.Array, labels: list[Label], name: str, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return which of the labels values are, that stand in these rows."""
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
    """Yield of runs of rows the first, how many, what is in their lists, and the row of the run of each of these."""
    kind = table.schema.field(name).type
    item = value_type(kind.value_type if _is_list(kind) else kind)
    if not _is_list(kind) or not (pa.types.is_integer(item) or pa.types.is_null(item) or _is_text(item)):
        raise BadSchema(
            f"label column {name!r} is {kind}; lists of text or of integers are needed, or several columns of 0 and 1"
            + _instead(name, kind, item)
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


def _instead(name: str, kind: pa.DataType, item: pa.DataType) -> str:
    """Say what may be meant by a column that is no list of labels."""
    if not _is_list(kind) and _is_text(item):
        how = "pyarrow.compute.split_pattern(column, ','), or json.loads of each"
        return f"; split text that holds several first: {how} (in SQL string_split(t, ','), or t::JSON::VARCHAR[])"
    return f"; one column of 0 and 1 is named by label={name!r}" * is_number(kind)


def _is_list(kind: pa.DataType) -> bool:
    return is_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _of_columns(table: Table, names: list[str]) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield whether rows have labels, of columns of 0 and 1."""
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
