"""Writer of Arrow IPC files with record batches of equal length; a file appears complete or not at all."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from corgipile.errors import BadArgument, BadSchema
from corgipile.nesting import MAX_IPC_DEPTH, check_types
from corgipile.outputs import Kind, refuse_url
from corgipile.tables.formats.arrow.grouping import Groups
from corgipile.tables.formats.arrow.note import is_noted, write_note
from corgipile.tables.inputs import replacing
from corgipile.tables.io.files import PathLike
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.values import as_type, value_type

COMPRESSIONS = (None, "lz4", "zstd")
PLAIN_BATCH_BYTES, WHOLE_BATCH_BYTES = 4 << 20, 1 << 20  # bytes of a record batch that is read in part, or whole
OTHER_SUFFIXES = {".csv", ".npy", ".npz", ".parquet", ".svm", ".svmlight", ".tfrecord", ".tsv", ".txt"}


def holds_predictions(path: Path) -> bool:
    """Return whether a file holds predictions that corgipile wrote."""
    return is_noted(path) and pa.ipc.open_file(pa.OSFile(str(path))).schema.names == [PREDICTION]


def holds_rows(path: Path) -> bool:
    """Return whether a file is a table that corgipile wrote."""
    return is_noted(path) and not holds_predictions(path)


PREDICTION = "prediction"
PREDICTIONS = Kind("predictions", holds_predictions)
TABLE = Kind("table", holds_rows)


class Writer:
    """Write rows to an Arrow IPC file as record batches of equal length, except the last.

    A note before the footer lets our reader locate any row without reading every batch's metadata; other readers
    ignore it. Use it in a ``with`` statement: the file appears under its name only if the block ends without an error.

    Args:
        out: Path of the file; an existing file is replaced if corgipile wrote it and it is of the same kind.
        schema: Schema of the rows; dictionaries and views are written as plain values.
        record_batch: Rows of a record batch (int), or bytes ("1MB"); None: 4 MB if any rows of it can be read, 1 MB if
            it must be read whole.
        compression: None, "lz4" or "zstd".
        kind: Kind of the file.
        inputs: Inputs that must not be replaced: tables, paths, lists of these.
        overwrite: Replace a file of any kind.

    Example:
        >>> import tempfile
        >>> rows = pa.record_batch({"label": pa.array([1, 2, 3])})
        >>> path = Path(tempfile.mkdtemp()) / "rows.arrow"
        >>> with Writer(path, rows.schema, record_batch=2) as writer:
        ...     writer.write(rows)
        >>> [pa.ipc.open_file(path).get_batch(i).num_rows for i in range(2)]
        [2, 1]
    """

    def __init__(
        self,
        out: PathLike,
        schema: pa.Schema,
        record_batch: int | str | None = None,
        compression: str | None = None,
        *,
        kind: Kind = TABLE,
        inputs: Iterable[Any] = (),
        overwrite: bool = False,
    ) -> None:
        refuse_url(out)
        if compression not in COMPRESSIONS:
            raise BadArgument(f"compression must be None, 'lz4' or 'zstd', got {compression!r}")
        if Path(out).suffix.lower() in OTHER_SUFFIXES:
            raise BadArgument(f"{out} has the suffix of another format; name it .arrow")
        check_types(schema, str(out), MAX_IPC_DEPTH)
        self.schema = plain(schema)
        self.rows = 0
        self._replacing = replacing(out, kind, inputs=inputs, overwrite=overwrite)
        self._compression = compression
        if record_batch is None:
            record_batch = f"{batch_bytes(self.schema, compression)}B"
        self._groups = Groups(record_batch, self.schema)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._temporary = stack.enter_context(self._replacing)
            options = pa.ipc.IpcWriteOptions(compression=self._compression)
            sink = stack.enter_context(pa.OSFile(str(self._temporary), "wb"))
            self._file = pa.ipc.new_file(sink, self.schema, options=options)
            self._stack = stack.pop_all()
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the schema."""
        for group in self._groups.add(conform(batch, self.schema)):
            self._write_group(group)

    def _write_group(self, group: pa.RecordBatch) -> None:
        self._file.write_batch(group)
        self.rows += group.num_rows

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if failure is not None:
            # With the failure the stack removes the temporary file.
            self._stack.__exit__(kind, failure, trace)
            return
        with self._stack:
            rest = self._groups.rest()
            if rest is not None:
                self._write_group(rest)
            self._file.close()
            write_note(self._temporary)


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with dictionaries and views replaced by their value types."""
    return pa.schema([field.with_type(value_type(field.type)) for field in schema], metadata=schema.metadata)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows cast to a schema of the same names and value types.

    Raises:
        BadSchema: Names or types differ.
    """
    if batch.schema.names != schema.names:
        raise BadSchema(f"rows must have columns {schema.names}, got {batch.schema.names}")
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        values = as_type(column, value_type(column.type))
        if values.type != field.type:
            raise BadSchema(f"column {field.name!r} must have type {field.type}, got {values.type}")
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batch_bytes(schema: pa.Schema, compression: str | None) -> int:
    """Return the bytes of a record batch: few if it must be read whole, else many.

    Large batches keep each column in few pieces, so that the labels of a large table are read quickly.
    """
    return PLAIN_BATCH_BYTES if compression is None and fixed_row_bytes(schema) else WHOLE_BATCH_BYTES
