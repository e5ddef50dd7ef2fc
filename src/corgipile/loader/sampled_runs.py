"""What is in some spots of a table, as vectors, and kept beside it: what content balance tells its blocks by."""

import logging
import math
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.loader.numbers import texts_of
from corgipile.loader.row_tap import RowTap
from corgipile.outputs import files_read
from corgipile.tables.arrow.spans import array_of
from corgipile.tables.encoded import is_encoded, unpack_shared
from corgipile.tables.fingerprints import place_of
from corgipile.tables.io.files import File, digest
from corgipile.tables.io.index_cache import INDEX_SUFFIX, cache_folder, cached_index, facts_of, index_path, items_of
from corgipile.tables.memory import MemoryTable
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.scan import scan
from corgipile.tables.table import IntArray, Table

__all__ = ["KEPT", "Made", "SampledRuns"]

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.int16]
Made = Callable[[pa.RecordBatch], Floats]
Parts = Generator[tuple[int, pa.RecordBatch], None, None]
KEPT = ".sketch"  # what an index of vectors is called by, before the ending of all indexes
ROOM = 4 << 20  # bytes of numbers that are in memory at a time
READ = 2 << 20  # bytes of rows that are read at a time
PLAIN = 32  # features that have a number each; more share as many
CLASSES = 16  # classes, likewise
VERSION = 3  # of what vectors mean
log = logging.getLogger("corgipile")


class SampledRuns(NamedTuple):
    """Some rows of a table: ``number`` evenly spaced runs of ``each`` (`kernel/plan/spots.h`).

    Of a table that is encoded in large units all of them may have to be in memory together, so they are fewer rows.

    Example:
        >>> from corgipile.tables import open
        >>> spots = SampledRuns.of(open({"x": np.arange(6.0)}), ["x"])
        >>> spots.number, spots.each, spots.starts().tolist()
        (6, 1, [0, 1, 2, 3, 4, 5])
    """

    table: Table
    names: list[str]
    number: int
    each: int
    few: int  # spots that say how much each column varies
    row_bytes: float

    @classmethod
    def of(cls, table: Table, names: list[str]) -> Self:
        """Choose those of a table, of which these columns are read."""
        width = max(1.0, row_bytes(table, names)) if len(table) else 1.0
        count, each, first = _kernel.spots(len(table), width)
        if is_encoded(table, names):
            room = max(1, int(ROOM / width))
            count = min(count, room)
            each = min(each, room // max(1, count))
        return cls(table, names, count, each, min(count, max(8, first // max(1, each))), width)

    def starts(self) -> IntArray:
        """Return the first row of each spot."""
        found = np.empty(self.number, np.int64)
        _kernel.spot_rows(len(self.table), self.number, self.each, found)
        return found

    def spread(self, vectors: Vectors, cuts: IntArray) -> Vectors:
        """Return the vectors of the blocks between cuts: the mean of their spots, else that of the nearest one."""
        out = np.zeros((len(cuts) - 1, vectors.shape[1]), np.int16)
        if self.number:
            cuts = np.ascontiguousarray(cuts, np.int64)
            _kernel.spots_spread(len(self.table), self.number, self.each, np.ascontiguousarray(vectors), cuts, out)
        return out

    def rows(self) -> IntArray:
        """Return the rows of all spots."""
        return _rows(self.starts(), self.each)

    def kept(self, made: Made, label: str | None, unpacked: list[str] | None, passing: RowTap | None = None) -> Vectors:
        """Return the vectors that are kept beside the table; make and keep them if there are none of its present state.

        They lie beside a file that is a table by itself, of others in the folder of indexes of this machine; those of
        tables in memory are not kept.
        """
        files = list(files_read(self.table))
        if not files or not self.number:
            return self.described(made, label, unpacked, passing)
        asked = repr((VERSION, self.names, label, self.number, self.each))
        if len(files) == 1 and isinstance(files[0], File):
            path, facts = index_path(files[0], KEPT), facts_of(files[0])
            facts["asked"] = digest(asked, self.table.fingerprint)
        else:
            facts = {"asked": digest(asked, place_of(self.table))}
            path = str(cache_folder("indexes") / f"{facts['asked']}{KEPT}{INDEX_SUFFIX}")

        found: list[Vectors] = []  # where they cannot be kept they are asked for once more

        def described(_: Any) -> Iterator[pa.RecordBatch]:
            if not found:
                found.append(self.described(made, label, unpacked, passing))
            vectors = pa.FixedSizeListArray.from_arrays(array_of(found[0]), found[0].shape[1])
            yield pa.record_batch({"vector": vectors})

        index, _ = cached_index(path, facts, None, (), described)
        if found:
            how = "is kept in" if any(files_read(index)) else "cannot be kept in"
            log.info("what is in the blocks of %r %s %s", self.table, how, path)
        return np.array(items_of(index.read(0, len(index), ["vector"]).column(0))).reshape(self.number, -1)

    def described(
        self, made: Made, label: str | None, unpacked: list[str] | None = None, passing: RowTap | None = None
    ) -> Vectors:
        """Return the vectors of all spots, int16[spots, numbers].

        Args:
            made: Makes features of rows.
            label: The label column, None if there is none.
            unpacked: The columns that are unpacked for reading anyway, so that rows are to be had one by one.
            passing: Rows that were kept as they were read for something else.

        Raises:
            BadArgument: ``made`` returned more or fewer numbers than before.
        """
        if not self.number:
            return np.zeros((0, 1), np.int16)
        table, starts = self._read(unpacked), self.starts()
        if is_encoded(table, self.names):
            table = self._plain(table, passing)
            starts = np.arange(self.number) * self.each
        batch = self._rows(table, starts[self._first()])
        features = made(batch)
        width, classes = features.shape[1], Classes.of(batch, label)
        rows = np.ascontiguousarray(np.hstack([features, classes.made(batch)]))
        if not rows.shape[1]:  # one class, and nothing else
            return np.zeros((self.number, 1), np.int16)
        center, scale = np.empty((2, rows.shape[1]))
        _kernel.content_scale(rows, center, scale)
        classes.spread(scale[width:])
        turn = np.empty((min(width, PLAIN), min(width, PLAIN)))
        _kernel.content_turn(width, center, scale, turn, rows)
        out = np.empty((self.number, _kernel.content_width(width, rows.shape[1] - width)), np.int16)
        each = self.each * (self.row_bytes + 16 * rows.shape[1])  # bytes: they are made, then laid side by side
        at_once = max(1, int(ROOM / each))
        with closing(self._parts(table, starts, at_once)) as parts:
            for first, batch in parts:
                features = made(batch)
                if features.shape[1] != width:
                    now = features.shape[1]
                    raise BadArgument(
                        f"sketch= returned {width} numbers a row, then {now}; as many each time are needed"
                    )
                rows = np.ascontiguousarray(np.hstack([features, classes.made(batch)]))
                ends = np.arange(self.each, len(rows) + 1, self.each)
                _kernel.content(width, center, scale, turn, rows, ends, out[first : first + at_once])
        return out

    def _plain(self, table: Table, passing: RowTap | None) -> Table:
        """Return the rows of all spots of an encoded table, one spot after the other."""
        left = self.number * self.each if passing is None else len(passing.missing)
        if passing is not None and left < self.number * self.each:
            log.info("blocks of %r are told apart by rows that passed, and %d that are read now", table, left)
            return passing.picked(table)
        log.info("to tell blocks of %r apart it is read once as a whole: it is encoded in large units", table)
        return _picked(table, self.names, self.rows())

    def _parts(self, table: Table, starts: IntArray, at_once: int) -> Parts:
        """Yield the rows of so many spots at a time, and the first of them; many are read while others are used."""
        read = 0 if isinstance(table, MemoryTable) else READ
        many = max(at_once, int(read / (self.each * self.row_bytes)) // at_once * at_once)
        parts = [starts[first : first + many] for first in range(0, len(starts), many)]
        with ThreadPoolExecutor(1, "corgipile-spots") as pool:
            coming = [pool.submit(self._rows, table, parts[0])]
            for number in range(len(parts)):
                batch = coming.pop().result()
                coming = [pool.submit(self._rows, table, part) for part in parts[number + 1 : number + 2]]
                for at in range(0, batch.num_rows, at_once * self.each):
                    yield number * many + at // self.each, batch.slice(at, at_once * self.each)

    def alike(self, made: Made, label: str | None, unpacked: list[str] | None, *, beyond_label: bool) -> float:
        """Return what rows of a spot have in common, see `corgipile.loader.content.Content.alike`."""
        if self.number < 2:
            return 0.0
        batch = self._rows(self._read(unpacked), self.starts()[self._first()])
        features, extras = made(batch), Classes.of(batch, label).made(batch)
        numbers = (np.diff(features, axis=0) > 0).all(axis=0) & (features == np.floor(features)).all(axis=0)
        features = features[:, ~numbers]
        rows = np.ascontiguousarray(np.hstack([features, extras]))
        width = features.shape[1] if beyond_label else rows.shape[1]
        return _kernel.alike(rows, self.each, width, rows.shape[1] - width) if width else 0.0

    def _read(self, unpacked: list[str] | None) -> Table:
        """Return the table; unpacked where that has all that is looked at: a label that nobody loads is not there."""
        if unpacked is None or not set(self.names) <= set(unpacked):
            return self.table
        return unpack_shared(self.table, unpacked)

    def _first(self) -> IntArray:
        """Return the numbers of the spots that are looked at first."""
        return np.arange(self.few) * self.number // self.few

    def _rows(self, table: Table, starts: IntArray) -> pa.RecordBatch:
        return table.take(_rows(starts, self.each), self.names)


def _rows(starts: IntArray, each: int) -> IntArray:
    """Return the numbers of the rows of runs."""
    return (starts[:, None] + np.arange(each)).ravel()


def _picked(table: Table, names: list[str], rows: IntArray) -> Table:
    """Return some rows, read in one pass."""
    found = []
    for start, batch in scan(table, names):
        first, last = np.searchsorted(rows, [start, start + batch.num_rows])
        found.append(batch.take(pa.array(rows[first:last] - start)))  # a copy: the batch itself goes
    schema = pa.schema([table.schema.field(name) for name in names])
    return MemoryTable(pa.Table.from_batches(found, found[0].schema if found else schema).combine_chunks())


class Classes(NamedTuple):
    """What becomes of the label of a row: one number, or one for each class."""

    label: str | None
    classes: npt.NDArray[Any] | None = None  # None: it is a number
    shared: bool = False  # there are so many that several have a number in common

    @classmethod
    def of(cls, batch: pa.RecordBatch, label: str | None) -> "Classes":
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
        return cls(label, found, len(found) > CLASSES)

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
        few = min(len(self.classes), CLASSES)
        hot = np.zeros((len(values), few))
        turn = np.where(self.shared & (at // few % 2 == 1), -1.0, 1.0)
        hot[np.flatnonzero(known), at[known] % few] = turn[known]
        return hot[:, 1:] if few <= 2 else hot

    def spread(self, scale: Floats) -> None:
        """Let all classes together vary by one, as a number does: a rare one is no farther off than its share says."""
        if self.classes is not None and len(scale) > 1:
            total = sum(1 / (one * one) for one in scale.tolist() if one > 0)
            scale[:] = np.where(scale > 0, 1 / math.sqrt(total), 0) if total else 0.0
