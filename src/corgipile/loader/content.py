"""What is in each block, as a vector made of a few of its rows: what content balance tells blocks apart by."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema
from corgipile.loader.numbers import Numbers, is_class, texts_of
from corgipile.orders.riffle import CONTENT
from corgipile.suggestions import listed
from corgipile.tables.encoded import is_encoded, unpack_shared
from corgipile.tables.memory import MemoryTable
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.scan import scan
from corgipile.tables.sketch import sketch
from corgipile.tables.table import IntArray, Table

__all__ = ["Content", "Embed"]

Embed = Callable[[pa.RecordBatch], npt.ArrayLike]
Look = Callable[[Table, IntArray, str], npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]
FEWEST, MOST = 16, 256  # rows looked at in a block; more than the fewest where a page of 4 KB holds them
PAGE, ROOM = 4 << 10, 4 << 20  # bytes; of numbers that are in memory at a time
FIRST = 256  # blocks of which rows say how much each column varies
PLAIN = 16  # classes that have a number each; more share as many
log = logging.getLogger("corgipile")


@dataclass(frozen=True)
class Content:
    """Describes blocks: by what is in them where ``"content"`` is asked for, else by a column.

    A block's vector is the mean of some rows in its middle: 16, or as many as a page of 4 KB holds, at most 256. A row
    is its numbers, of which more than 32 are mixed into as many, and its label (`kernel/plan/content.h`). What is
    missing counts as the mean. Rows are read where they lie; a table that is encoded in large units is read whole.

    Attributes:
        columns: What is read of the table.
        label: Its label column, None if it has none.
        embed: What makes numbers of a record batch of these columns, (rows, numbers) or (rows,), instead of the columns
            that are numbers; the same ones whenever it is called with the same rows.
        unpacked: Whether the columns are unpacked for reading anyway, so that they are to be had one by one.
        look: What describes blocks by one column.

    Example:
        >>> from corgipile.tables import open
        >>> table = open({"x": np.arange(6.0), "label": [0, 0, 0, 1, 1, 1]})
        >>> Content(("x", "label"), "label")(table, table.cuts(3), "content").tolist()
        [[-899, -2048], [899, 2048]]
    """

    columns: tuple[str, ...]
    label: str | None
    embed: Embed | None = None
    unpacked: bool = field(default=False, compare=False)
    look: Look = field(default=sketch, compare=False)

    def __call__(self, table: Table, cuts: IntArray, column: str) -> npt.NDArray[Any]:
        """Describe the blocks between these cuts.

        Returns:
            int16[blocks, numbers] for ``"content"``, else what ``look`` returns.

        Raises:
            BadSchema: There is nothing to describe blocks by.
            BadArgument: ``embed`` returned no numbers, or not as many as there are rows.
        """
        if column != CONTENT:
            return self.look(table, cuts, column)
        label = self.label if self.label is not None and is_class(table.schema, self.label) else None
        numbers = Numbers.of(table.schema, self.columns, label) if self.embed is None else None
        names = list(self.columns) if numbers is None else numbers.columns
        if numbers is not None and not names and label is None:
            raise BadSchema(
                f"balance='content' tells blocks apart by columns of numbers, and {listed(self.columns)} are none; "
                "give sketch=, a function that makes numbers of rows, or balance='label'"
            )
        names = [name for name in names if name != label] + ([label] if label is not None else [])
        return _Blocks.sampled(table, cuts, names, self).described(self._made(numbers), label)

    def _made(self, numbers: Numbers | None) -> Callable[[pa.RecordBatch], Floats]:
        """Return what makes features of rows."""
        embed = self.embed
        if numbers is not None:
            return numbers.made

        def made(batch: pa.RecordBatch) -> Floats:
            try:
                found = np.asarray(embed(batch), np.float64)  # type: ignore[misc]
            except (TypeError, ValueError) as error:
                raise BadArgument(f"sketch= must return numbers, (rows, numbers): {error}") from None
            found = found.reshape(-1, 1) if found.ndim == 1 else found
            if found.ndim != 2 or len(found) != batch.num_rows or not found.shape[1]:
                raise BadArgument(f"sketch= must return (rows, numbers) for {batch.num_rows} rows, got {found.shape}")
            return found

        return made


class _Blocks(NamedTuple):
    """The rows of each block that are looked at: ``counts`` from ``starts`` on."""

    table: Table
    starts: IntArray
    counts: IntArray
    names: list[str]
    most: int  # rows at a time

    @classmethod
    def sampled(cls, table: Table, cuts: IntArray, names: list[str], content: Content) -> "_Blocks":
        """Choose rows; those of an encoded table are read now, with all others, by one pass over it."""
        width = max(1.0, row_bytes(table, names)) if len(table) else 1.0
        most = max(1, int(ROOM / (8 * width)))  # a byte becomes a number of eight
        sizes = np.diff(cuts)
        counts = np.minimum(sizes, min(most, max(FEWEST, min(MOST, int(PAGE / width)))))
        if is_encoded(table, names):  # they may have to be in memory together
            counts = np.minimum(counts, max(1, int(ROOM / width / max(1, len(counts)))))
        starts = cuts[:-1] + (sizes - counts) // 2
        if content.unpacked:
            table = unpack_shared(table, list(content.columns))
        if is_encoded(table, names):
            log.info("to tell blocks of %r apart it is read once as a whole: it is encoded in large units", table)
            return cls(_picked(table, names, starts, counts), np.cumsum(counts) - counts, counts, names, most)
        return cls(table, starts, counts, names, most)

    def described(self, made: Callable[[pa.RecordBatch], Floats], label: str | None) -> npt.NDArray[np.int16]:
        """Return the vectors of all blocks."""
        blocks = np.flatnonzero(self.counts)
        if not len(blocks):
            return np.zeros((len(self.counts), 1), np.int16)
        each = int(self.counts.max())
        few = np.unique(np.linspace(0, len(blocks) - 1, min(FIRST, len(blocks), max(8, self.most // each))).astype(int))
        batch = self._rows(blocks[few])
        features = made(batch)
        classes = _Classes.of(batch, label)
        rows = np.ascontiguousarray(np.hstack([features, classes.made(batch)]))
        if not rows.shape[1]:  # one class, and nothing else
            return np.zeros((len(self.counts), 1), np.int16)
        center, scale = np.empty((2, rows.shape[1]))
        _kernel.content_scale(rows, center, scale)
        classes.spread(scale[features.shape[1] :])
        width, extras = features.shape[1], rows.shape[1] - features.shape[1]
        out = np.zeros((len(self.counts), min(width, 32) + extras), np.int16)
        at_once = max(1, self.most // each)
        for first in range(0, len(self.counts), at_once):
            some = np.arange(first, min(first + at_once, len(self.counts)))
            if not self.counts[some].any():
                continue
            batch = self._rows(some)
            features = made(batch)
            if features.shape[1] != width:
                raise BadArgument(
                    f"sketch= returned {width} numbers a row, then {features.shape[1]}; as many each time are needed"
                )
            rows = np.ascontiguousarray(np.hstack([features, classes.made(batch)]))
            _kernel.content(width, center, scale, rows, np.cumsum(self.counts[some]), out[some[0] : some[-1] + 1])
        return out

    def _rows(self, blocks: IntArray) -> pa.RecordBatch:
        """Read the rows of some blocks that are looked at."""
        counts = self.counts[blocks]
        ends = np.cumsum(counts)
        rows = np.arange(int(ends[-1])) + np.repeat(self.starts[blocks] - (ends - counts), counts)
        return self.table.take(rows, self.names)


def _picked(table: Table, names: list[str], starts: IntArray, counts: IntArray) -> Table:
    """Return the rows of all runs, read in one pass."""
    found, ends = [], np.cumsum(counts)
    rows = np.arange(int(counts.sum())) + np.repeat(starts - (ends - counts), counts)
    for start, batch in scan(table, names):
        first, last = np.searchsorted(rows, [start, start + batch.num_rows])
        found.append(batch.take(pa.array(rows[first:last] - start)))  # a copy: the batch itself goes
    schema = pa.schema([table.schema.field(name) for name in names])
    return MemoryTable(pa.Table.from_batches(found, found[0].schema if found else schema).combine_chunks())


class _Classes(NamedTuple):
    """What becomes of the label of a row: one number, or one for each class."""

    label: str | None
    classes: npt.NDArray[Any] | None = None  # None: it is a number
    shared: bool = False  # there are so many that several have a number in common

    @classmethod
    def of(cls, batch: pa.RecordBatch, label: str | None) -> "_Classes":
        """Find out whether the label of some rows is one of a few classes."""
        if label is None:
            return cls(None)
        values = texts_of(batch.column(label))
        if values.dtype.kind == "f":
            known = values[np.isfinite(values)]
            found = np.unique(known)
            most = 64 if pa.types.is_floating(batch.column(label).type) else 1024
            if len(found) > most or (known != np.floor(known)).any():
                return cls(label)
        else:
            found = np.unique(values)
        return cls(label, found, len(found) > PLAIN)

    def made(self, batch: pa.RecordBatch) -> Floats:
        """Return the numbers of rows, (rows, numbers)."""
        if self.label is None:
            return np.zeros((batch.num_rows, 0))
        values = texts_of(batch.column(self.label))
        if self.classes is None:
            return values.reshape(-1, 1).astype(np.float64)
        if not len(self.classes):
            return np.zeros((len(values), 0))
        at = np.minimum(np.searchsorted(self.classes, values), len(self.classes) - 1)
        known = self.classes[at] == values
        few = min(len(self.classes), PLAIN)
        hot = np.zeros((len(values), few))
        turn = np.where(self.shared & (at // few % 2 == 1), -1.0, 1.0)
        hot[np.flatnonzero(known), at[known] % few] = turn[known]
        return hot[:, 1:] if few <= 2 else hot

    def spread(self, scale: Floats) -> None:
        """Let all classes together vary by one, as a number does: a rare one is no farther off than its share says."""
        if self.classes is not None and len(scale) > 1:
            total = sum(1 / (one * one) for one in scale.tolist() if one > 0)
            scale[:] = np.where(scale > 0, 1 / math.sqrt(total), 0) if total else 0.0
