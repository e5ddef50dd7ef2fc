"""Parquet files: rows in row groups, each decoded whole."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.base import IntArray, Layout, check_columns, check_run
from corgipile.tables.files import File, PathLike, decoding, describe, digest
from corgipile.tables.pieces import (
    Recent,
    check_names,
    check_rows,
    empty,
    merge_cuts,
    pick,
    pick_rows,
    read_pieces,
    take_pieces,
)

MAGIC = b"PAR1"
SUFFIXES = (".parquet", ".pq")


class ParquetTable:
    """Reads a Parquet file.

    Its natural unit is the row group: a block is at least one of them.

    Args:
        path: The file.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"label": [0, 1, 1]}), f"{folder}/a.parquet", row_group_size=2)
        ...     ParquetTable(f"{folder}/a.parquet").cuts(1).tolist()
        [0, 2, 3]
    """

    def __init__(self, path: PathLike) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - keeps the import of corgipile light

        self._file = File(path)
        if self._file.read(0, min(4, self._file.size)) != MAGIC:
            raise UnknownFormat(f"{self._file.path} is no Parquet file: it does not begin with {MAGIC!r}")
        if self._file.size < 12 or self._file.read(self._file.size - 4, 4) != MAGIC:
            raise CorruptFile(f"{self._file.path} is truncated: it does not end with {MAGIC!r}")
        with decoding(self._file.path):
            opened = pq.ParquetFile(self._file.source())
            self._metadata = opened.metadata
            self.schema: pa.Schema = opened.schema_arrow
            check_names(self.schema, self._file.path)
            counts = [self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)]
            self._bytes = [self._metadata.row_group(i).total_byte_size for i in range(len(counts))]
        if any(count < 0 or count > 2**40 for count in counts):
            raise CorruptFile(f"{self._file.path}: a row group claims {max(counts, key=abs)} rows")
        if sum(counts) != self._metadata.num_rows:
            raise CorruptFile(
                f"{self._file.path}: its row groups have {sum(counts)} rows; {self._metadata.num_rows} are stated"
            )
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        self._decoded: Recent[pa.RecordBatch] = Recent(2)
        self._local = threading.local()

    def __reduce__(self) -> tuple[type["ParquetTable"], tuple[str]]:
        return ParquetTable, (self._file.path,)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"ParquetTable({self._file.path!r})"

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows, encoded but not compressed."""
        return sum(self._bytes)

    @property
    def fingerprint(self) -> str:
        """Return the identity: name, size, time of change, schema and rows."""
        return digest(self._file.identity, describe(self.schema), str(len(self)))

    def cuts(self, rows: int) -> IntArray:
        """Cut at row groups, merged to about ``rows`` rows."""
        return merge_cuts(self._starts, rows)

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read one run of rows."""
        check_run(start, stop, len(self))
        names = check_columns(self.schema, columns)
        if start == stop:
            return empty(self.schema, names)
        return read_pieces(self._starts, start, stop, lambda i, a, b: self._group(i, names).slice(a, b - a))

    def take(self, rows: IntArray, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read scattered rows in the order asked for."""
        rows = check_rows(rows, len(self))
        names = check_columns(self.schema, columns)
        if not len(rows):
            return empty(self.schema, names)
        return take_pieces(self._starts, rows, lambda i, local: pick_rows(self._group(i, names), local))

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return None: rows are encoded."""
        check_columns(self.schema, columns)
        return None

    def _group(self, i: int, names: list[str]) -> pa.RecordBatch:
        return self._decoded.get((i, *names), lambda: self._decode(i, names))

    def _decode(self, i: int, names: list[str]) -> pa.RecordBatch:
        with decoding(self._file.path):
            table = self._reader().read_row_group(i, columns=names, use_threads=False)
            table.validate(full=True)
            rows = int(self._starts[i + 1] - self._starts[i])
            if table.num_rows != rows:
                raise CorruptFile(f"{self._file.path}: row group {i} decodes to {table.num_rows} rows, not {rows}")
            arrays = [pa.concat_arrays(table.column(name).chunks) for name in names]
            return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))

    def _reader(self) -> Any:
        """Return this thread's own reader: one reader must not decode in two threads at once."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - keeps the import of corgipile light

        if not hasattr(self._local, "reader"):
            self._local.reader = pq.ParquetFile(self._file.source(), metadata=self._metadata)
        return self._local.reader
