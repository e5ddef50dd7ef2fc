"""Sampled runs of a table's rows as vectors, cached with the table, for balance by content."""

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
from corgipile.tables.encoded import unpack_shared
from corgipile.tables.fingerprints import place_of
from corgipile.tables.io.files import File, digest
from corgipile.tables.io.index_cache import INDEX_SUFFIX, cache_folder, cached_index, facts_of, index_path, items_of
from corgipile.tables.io.sources import files_read
from corgipile.tables.memory import MemoryTable
from corgipile.tables.row_bytes import row_bytes
from corgipile.tables.scan import scan
from corgipile.tables.spans import array_of
from corgipile.tables.table import IntArray, Table

__all__ = ["SKETCH_SUFFIX", "Featurizer", "SampledRuns"]

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.int16]
Featurizer = Callable[[pa.RecordBatch], Floats]
Parts = Generator[tuple[int, pa.RecordBatch], None, None]
SKETCH_SUFFIX = ".sketch"  # of cached vectors' files, before the suffix of all index files
SAMPLE_BYTES = 4 << 20  # largest number of bytes of features in memory
READ_BYTES = 2 << 20  # bytes of rows read at a time
PLAIN = 32  # features with a number each; more are projected to as many
CLASSES = 16  # classes with a number each; more share as many
VERSION = 3  # version of the vectors' definition
log = logging.getLogger("corgipile")


class SampledRuns(NamedTuple):
    """A sample of a table's rows: ``n_runs`` evenly spaced runs of ``run_rows`` (`kernel/plan/spots.h`).

    Tables encoded in large units have smaller samples, which may have to be in memory together.

    Example:
        >>> from corgipile.tables import open
        >>> runs = SampledRuns.of(open({"x": np.arange(6.0)}), ["x"])
        >>> runs.n_runs, runs.run_rows, runs.starts().tolist()
        (6, 1, [0, 1, 2, 3, 4, 5])
    """

    table: Table
    names: list[str]
    n_runs: int
    run_rows: int
    n_first: int  # runs that the scale of each column is estimated from
    row_bytes: float

    @classmethod
    def of(cls, table: Table, names: list[str]) -> Self:
        """Choose the sampled runs of a table for these columns."""
        width = max(1.0, row_bytes(table, names)) if len(table) else 1.0
        count, run_rows, first = _kernel.spots(len(table), width)
        if table.units(names) is not None:
            room = max(1, int(SAMPLE_BYTES / width))
            count = min(count, room)
            run_rows = min(run_rows, room // max(1, count))
        return cls(table, names, count, run_rows, min(count, max(8, first // max(1, run_rows))), width)

    def starts(self) -> IntArray:
        """Return the first row of each run."""
        rows = np.empty(self.n_runs, np.int64)
        _kernel.spot_rows(len(self.table), self.n_runs, self.run_rows, rows)
        return rows

    def spread(self, vectors: Vectors, cuts: IntArray) -> Vectors:
        """Return the vectors of the blocks between cuts: the mean of a block's runs, else the nearest run."""
        out = np.zeros((len(cuts) - 1, vectors.shape[1]), np.int16)
        if self.n_runs:
            cuts = np.ascontiguousarray(cuts, np.int64)
            _kernel.spots_spread(len(self.table), self.n_runs, self.run_rows, np.ascontiguousarray(vectors), cuts, out)
        return out

    def rows(self) -> IntArray:
        """Return the row numbers of all runs."""
        return _rows(self.starts(), self.run_rows)

    def vectors(self, featurize: Featurizer, label: str | None, unpacked: list[str] | None) -> Vectors:
        """Return the vectors from the table's cache, or make and cache them.

        The cache file lies beside a single-file table, else in this machine's index folder; tables in memory have
        none.
        """
        files = list(files_read(self.table))
        if not files or not self.n_runs:
            return self.make_vectors(featurize, label, unpacked)
        key = repr((VERSION, self.names, label, self.n_runs, self.run_rows))
        if len(files) == 1 and isinstance(files[0], File):
            path, facts = index_path(files[0], SKETCH_SUFFIX), facts_of(files[0])
            facts["asked"] = digest(key, self.table.fingerprint)
        else:
            facts = {"asked": digest(key, place_of(self.table))}
            path = str(cache_folder("indexes") / f"{facts['asked']}{SKETCH_SUFFIX}{INDEX_SUFFIX}")

        made_vectors: list[Vectors] = []  # reused if the cache cannot be written and calls again

        def make_vectors(_: Any) -> Iterator[pa.RecordBatch]:
            if not made_vectors:
                made_vectors.append(self.make_vectors(featurize, label, unpacked))
            vectors = pa.FixedSizeListArray.from_arrays(array_of(made_vectors[0]), made_vectors[0].shape[1])
            yield pa.record_batch({"vector": vectors})

        index, _ = cached_index(path, facts, None, (), make_vectors)
        if made_vectors:
            how = "are cached in" if any(files_read(index)) else "could not be cached in"
            log.info("content vectors of %r %s %s", self.table, how, path)
        return np.array(items_of(index.read(0, len(index), ["vector"]).column(0))).reshape(self.n_runs, -1)

    def make_vectors(self, featurize: Featurizer, label: str | None, unpacked: list[str] | None = None) -> Vectors:
        """Return the vectors of all runs, int16[runs, numbers].

        Args:
            featurize: Makes features of rows.
            label: The label column; None: no label.
            unpacked: Columns that are unpacked anyway, so that single rows can be read.

        Raises:
            BadArgument: ``featurize`` returned varying numbers of features.
        """
        if not self.n_runs:
            return np.zeros((0, 1), np.int16)
        table, starts = self._read(unpacked), self.starts()
        if table.units(self.names) is not None:
            table = self._plain(table)
            starts = np.arange(self.n_runs) * self.run_rows
        batch = self._rows(table, starts[self._first()])
        features = featurize(batch)
        width, classes = features.shape[1], Classes.of(batch, label)
        rows = np.ascontiguousarray(np.hstack([features, classes.encode(batch)]))
        if not rows.shape[1]:  # a single class and no features
            return np.zeros((self.n_runs, 1), np.int16)
        center, scale = np.empty((2, rows.shape[1]))
        _kernel.content_scale(rows, center, scale)
        classes.spread(scale[width:])
        turn = np.empty((min(width, PLAIN), min(width, PLAIN)))
        _kernel.content_turn(width, center, scale, turn, rows)
        out = np.empty((self.n_runs, _kernel.content_width(width, rows.shape[1] - width)), np.int16)
        run_rows = self.run_rows * (self.row_bytes + 16 * rows.shape[1])  # bytes: features, and their concatenation
        at_once = max(1, int(SAMPLE_BYTES / run_rows))
        with closing(self._parts(table, starts, at_once)) as parts:
            for first, batch in parts:
                features = featurize(batch)
                if features.shape[1] != width:
                    now = features.shape[1]
                    raise BadArgument(
                        f"sketch= must return the same number of features for all rows, got {width} and {now}"
                    )
                rows = np.ascontiguousarray(np.hstack([features, classes.encode(batch)]))
                ends = np.arange(self.run_rows, len(rows) + 1, self.run_rows)
                _kernel.content(width, center, scale, turn, rows, ends, out[first : first + at_once])
        return out

    def _plain(self, table: Table) -> Table:
        """Return the rows of all runs of an encoded table, one run after the other."""
        log.info("content vectors of %r need a scan of the table, which is encoded in large units", table)
        return _picked(table, self.names, self.rows())

    def _parts(self, table: Table, starts: IntArray, at_once: int) -> Parts:
        """Yield the first run and the rows of ``at_once`` runs at a time; the next ones are read meanwhile."""
        read = 0 if isinstance(table, MemoryTable) else READ_BYTES
        part_runs = max(at_once, int(read / (self.run_rows * self.row_bytes)) // at_once * at_once)
        parts = [starts[first : first + part_runs] for first in range(0, len(starts), part_runs)]
        with ThreadPoolExecutor(1, "corgipile-spots") as pool:
            pending = [pool.submit(self._rows, table, parts[0])]
            for index in range(len(parts)):
                batch = pending.pop().result()
                pending = [pool.submit(self._rows, table, part) for part in parts[index + 1 : index + 2]]
                for at in range(0, batch.num_rows, at_once * self.run_rows):
                    yield index * part_runs + at // self.run_rows, batch.slice(at, at_once * self.run_rows)

    def shared_variance(
        self, featurize: Featurizer, label: str | None, unpacked: list[str] | None, *, beyond_label: bool
    ) -> float:
        """Return the variance that the rows of a run share, see `Content.shared_variance`."""
        if self.n_runs < 2:
            return 0.0
        batch = self._rows(self._read(unpacked), self.starts()[self._first()])
        features, extras = featurize(batch), Classes.of(batch, label).encode(batch)
        numbers = (np.diff(features, axis=0) > 0).all(axis=0) & (features == np.floor(features)).all(axis=0)
        features = features[:, ~numbers]
        rows = np.ascontiguousarray(np.hstack([features, extras]))
        width = features.shape[1] if beyond_label else rows.shape[1]
        return _kernel.similarity(rows, self.run_rows, width, rows.shape[1] - width) if width else 0.0

    def _read(self, unpacked: list[str] | None) -> Table:
        """Return the table, unpacked if the unpacked columns include all sampled ones, which a label may not be in."""
        if unpacked is None or not set(self.names) <= set(unpacked):
            return self.table
        return unpack_shared(self.table, unpacked)

    def _first(self) -> IntArray:
        return np.arange(self.n_first) * self.n_runs // self.n_first

    def _rows(self, table: Table, starts: IntArray) -> pa.RecordBatch:
        return table.take(_rows(starts, self.run_rows), self.names)


def _rows(starts: IntArray, run_rows: int) -> IntArray:
    return (starts[:, None] + np.arange(run_rows)).ravel()


def _picked(table: Table, names: list[str], rows: IntArray) -> Table:
    batches = []
    for start, batch in scan(table, names):
        first, last = np.searchsorted(rows, [start, start + batch.num_rows])
        batches.append(batch.take(pa.array(rows[first:last] - start)))  # a copy: the batch is released
    schema = pa.schema([table.schema.field(name) for name in names])
    return MemoryTable(pa.Table.from_batches(batches, batches[0].schema if batches else schema).combine_chunks())


class Classes(NamedTuple):
    """The encoding of labels in vectors: a number, or one number per class."""

    label: str | None
    classes: npt.NDArray[Any] | None = None  # None: the label is a number
    shared: bool = False  # whether several classes share a number

    @classmethod
    def of(cls, batch: pa.RecordBatch, label: str | None) -> "Classes":
        """Detect whether the label of some rows is a class."""
        if label is None:
            return cls(None)
        values = texts_of(batch.column(label))
        if values.dtype.kind == "f":
            finite = values[np.isfinite(values)]
            classes = np.unique(finite)
            most = 64 if pa.types.is_floating(batch.column(label).type) else 1024
            if len(classes) > most or (finite != np.floor(finite)).any():
                return cls(label)
        else:
            classes = np.unique(values)
        return cls(label, classes, len(classes) > CLASSES)

    def encode(self, batch: pa.RecordBatch) -> Floats:
        """Return the encoded labels, (rows, numbers)."""
        if self.label is None:
            return np.zeros((batch.num_rows, 0))
        values = texts_of(batch.column(self.label))
        if self.classes is None:
            return values.reshape(-1, 1).astype(np.float64)
        if not len(self.classes):
            return np.zeros((len(values), 0))
        at = np.minimum(np.searchsorted(self.classes, values), len(self.classes) - 1)
        known = self.classes[at] == values
        n_first = min(len(self.classes), CLASSES)
        hot = np.zeros((len(values), n_first))
        turn = np.where(self.shared & (at // n_first % 2 == 1), -1.0, 1.0)
        hot[np.flatnonzero(known), at[known] % n_first] = turn[known]
        return hot[:, 1:] if n_first <= 2 else hot

    def spread(self, scale: Floats) -> None:
        """Scale all classes together to the variance of one feature; rare classes get no more than their share."""
        if self.classes is not None and len(scale) > 1:
            total = sum(1 / (deviation * deviation) for deviation in scale.tolist() if deviation > 0)
            scale[:] = np.where(scale > 0, 1 / math.sqrt(total), 0) if total else 0.0
