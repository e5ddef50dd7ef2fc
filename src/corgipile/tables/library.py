"""Base classes of tables read through the library of their format."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from corgipile.errors import CorruptFile
from corgipile.tables.checked import Checked
from corgipile.tables.encoded import SMALL, SpilledTable, Units, group_columns, units_of, unpack_shared, write_plain
from corgipile.tables.formats.arrow.file import ArrowFile
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import describe, digest
from corgipile.tables.io.pieces import Recent, merge_cuts, pick, pick_rows, read_pieces, take_once, take_pieces
from corgipile.tables.io.spill import Section, SpillWriter
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import IntArray, Table
from corgipile.tables.values import values

__all__ = ["LibraryTable", "UnitTable"]

SAMPLE_ROWS = 64  # rows that estimate the width of a column
_decoded: Common[pa.RecordBatch] = Common(SMALL, lambda rows: int(rows.nbytes))  # shared by all tables


class LibraryTable(Checked):
    """Implements a table on two methods of its subclasses: `_read_run` and `_some`.

    Args:
        path: The file or folder.
        identity: The identity of its present state.
        schema: The columns.
        rows: Number of rows.
    """

    is_source = True
    is_remote = False
    columnar = True  # each column is read without the others

    def __init__(self, path: str, identity: str, schema: pa.Schema, rows: int) -> None:
        self.path, self.schema, self._rows, self._identity = path, schema, rows, identity

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        raise NotImplementedError

    @property
    def fingerprint(self) -> str:
        """Return the identity of the file, the schema and the number of rows."""
        return digest(self._identity, describe(self.schema), str(len(self)))

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_once(rows, lambda wanted: self._some(wanted, names))

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        """Read rows whose numbers ascend; there is at least one."""
        raise NotImplementedError

    def _whole(self, table: pa.Table, rows: int, names: list[str]) -> pa.RecordBatch:
        """Return the rows that the library read as one batch.

        Raises:
            CorruptFile: The number of rows or a type differs from the expected one.
        """
        if table.num_rows != rows:
            raise CorruptFile(f"{self.path}: {rows} rows were requested, but {table.num_rows} were read")
        schema, arrays = pick(self.schema, names), []
        for at, field in enumerate(schema):
            chunks = table.column(at).chunks
            column = pa.concat_arrays(chunks) if chunks else pa.nulls(0, field.type)
            if column.type != field.type:
                raise CorruptFile(f"{self.path}: column {field.name!r} must still be {field.type}, got {column.type}")
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class UnitTable(LibraryTable):
    """Reads a file whose rows are decoded in units; large units are unpacked to a spill file.

    Args:
        path: The file.
        identity: The identity of its present state.
        schema: The columns.
        counts: Rows of each unit.
        spill: Folder for spill files, None if spilling is off.
        place: The identity of the file on this machine.
    """

    def __init__(
        self, path: str, identity: str, schema: pa.Schema, counts: IntArray, spill: Path | None, place: str
    ) -> None:
        super().__init__(path, identity, schema, int(counts.sum()))
        self._starts = np.append(0, np.cumsum(counts)).astype(np.int64)
        self.spill, self.place = spill, place
        self._widths: Recent[float] = Recent(1 << 16)

    def cuts(self, rows: int) -> IntArray:
        """Cut at units, merged to about ``rows`` rows."""
        return merge_cuts(self._starts, rows)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the decoded sizes of units; columns of varying length are sampled."""
        counts = np.diff(self._starts)
        return units_of(counts, counts * sum(map(self._width, dict.fromkeys(columns))))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Decode all rows in small batches into sections of a spill file."""
        for names in self._together(columns):
            write_plain(out, pick(self.schema, names), self._batches(names, self._batch_rows(names)), len(self))

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        """Open the sections that `write_plain` wrote as a table."""
        return SpilledTable(self, columns, [ArrowFile(next(sections)) for _ in self._together(columns)])

    def _together(self, columns: Sequence[str]) -> list[list[str]]:
        """Group the columns that are decoded together."""
        largest = int(np.diff(self._starts).max(initial=1))
        return group_columns({name: int(largest * self._width(name)) for name in dict.fromkeys(columns)})

    def _batch_rows(self, names: list[str]) -> int:
        return max(1, min(1 << 16, int((1 << 17) / max(1e-9, sum(map(self._width, names))))))

    def _width(self, name: str) -> float:
        """Return the decoded bytes of a column per row."""
        return self._widths.get(name, lambda: self._estimate_width(name))

    def _estimate_width(self, name: str) -> float:
        fixed = fixed_row_bytes(pa.schema([self.schema.field(name)]))
        if fixed or not len(self):
            return fixed
        first = next(self._batches([name], SAMPLE_ROWS), None)
        return float(values(first).nbytes) / max(1, first.num_rows) if first is not None else 0.0

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return read_pieces(self._starts, start, stop, lambda i, a, b: self._piece(i, a, b, names))

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda i, local: self._scattered(i, local, names))

    def _piece(self, i: int, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        first, last = self._starts[i : i + 2].tolist()
        if not self._is_large(i, names):
            return self._unit(i, names).slice(start, stop - start)
        if stop - start == last - first:
            return self._decode(i, names)
        return unpack_shared(self, names).read(first + start, first + stop, names)

    def _scattered(self, i: int, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        if self._is_large(i, names):
            return unpack_shared(self, names).take(self._starts[i] + rows, names)
        return pick_rows(self._unit(i, names), rows)

    def _is_large(self, i: int, names: list[str]) -> bool:
        """Return whether a unit is too large to decode for a few rows, and spilling is allowed."""
        rows = int(self._starts[i + 1] - self._starts[i])
        return self.spill is not None and rows * sum(map(self._width, names)) > SMALL

    def _unit(self, i: int, names: list[str]) -> pa.RecordBatch:
        return _decoded.of(self, (i, *names), lambda: self._decode(i, names))

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        """Decode one unit."""
        raise NotImplementedError

    def _batches(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows decoded, in batches of about ``rows`` rows."""
        raise NotImplementedError
