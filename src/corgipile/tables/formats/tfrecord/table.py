"""TFRecord files as tables: records as bytes, or decoded as ``tensorflow.Example``."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.sizes import OnBad, choice
from corgipile.tables.checked import FileTable
from corgipile.tables.format import Format
from corgipile.tables.formats.tfrecord.example import Examples, Features, Flaw, infer, is_sequence, wider
from corgipile.tables.formats.tfrecord.index import SUFFIXES, index_file, is_head
from corgipile.tables.formats.tfrecord.records import RecordFile, Records
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.pieces import check_rows, join, take_once
from corgipile.tables.spans import objects
from corgipile.tables.table import IntArray, Table, check_columns

__all__ = ["FORMAT", "SUFFIXES", "TFRecordTable", "index_file", "is_head", "same_columns"]

SAMPLE_RECORDS = 32  # records of each of three samples
MAX_RUN_BYTES = 1 << 22  # bytes of records decoded at a time

RECORD = pa.schema([("record", pa.binary())])
Decode = bool | Literal["auto"]


class TFRecordTable(FileTable):
    r"""Reads a TFRecord file.

    Records that hold ``tensorflow.Example`` messages become columns of int64, float32 or binary: scalars, lists of
    one size or lists of any length, as sampled records have them. Others are one binary column, ``record``.

    A text index next to the file is used (``NAME.idx`` or ``NAME.index``, lines ``start size``, written by
    ``tfrecord2idx`` or ``corgipile index``). Without one, the first opening scans and checks the whole file and stores
    an index next to it, ``NAME.corgipile-index.arrow``. CRCs are checked at every read.

    Args:
        path: The file, not compressed.
        index: The text index, if it has another name or omits records on purpose. It must reach the end of the file;
            otherwise it is rejected as outdated.
        decode: Whether records are Examples; ``"auto"`` samples some of them.
        features: Features to decode, by name; a mapping sets types too: ``"byte"``, ``"int"``, ``"float"``, or an
            Arrow type such as ``pa.list_(pa.float32())`` for a list of any length.
        on_bad: ``"raise"``, or ``"skip"``: opening scans the whole file once and drops records that are damaged or do
            not decode; ``skipped`` counts them.

    Raises:
        CorruptFile: A record is damaged, or the text index does not match the file.
        UnknownFormat: The file is not empty, but has no record.
        BadValue: A record lacks a feature.
        RaggedRows: A record has another number of values than the others.

    Example:
        >>> import struct, tempfile
        >>> def frame(data):
        ...     crc = lambda b: ((c := _kernel.crc32c(b)) >> 15 | c << 17) + 0xA282EAD8 & 0xFFFFFFFF
        ...     size = struct.pack("<Q", len(data))
        ...     return size + struct.pack("<I", crc(size)) + data + struct.pack("<I", crc(data))
        >>> with tempfile.TemporaryDirectory() as folder, open(f"{folder}/a.tfrecord", "wb") as file:
        ...     _ = file.write(frame(b"one") + frame(b"two")), file.flush()
        ...     TFRecordTable(file.name).read(1, 2).to_pylist()
        [{'record': b'two'}]
    """

    def __init__(
        self,
        path: PathLike,
        *,
        index: PathLike | None = None,
        decode: Decode = "auto",
        features: Features | None = None,
        on_bad: OnBad = "raise",
    ) -> None:
        choice(on_bad, "on_bad", OnBad)
        if decode not in (True, False, "auto") or (features is not None and decode is False):
            raise BadArgument(f'decode must be True, False or "auto", and not False with features, got {decode!r}')
        self.options: dict[str, Any] = {"index": index, "decode": decode, "features": features, "on_bad": on_bad}
        self._records = RecordFile(path, index, on_bad)
        self._file = self._records.file
        schema = self._find_schema()
        self._examples = None if schema is None else Examples(schema)
        self.schema: pa.Schema = RECORD if schema is None else schema
        if on_bad == "skip" and self._examples is not None:
            self._remove_flaws(self._examples)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def skipped(self) -> int:
        """Return the number of skipped bad records."""
        return self._records.skipped

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        # Records are read whole, so for some columns they are read in pieces to limit memory.
        step = stop - start if len(names) == len(self.schema) else self._run_rows()
        runs = [(at, min(at + step, stop)) for at in range(start, stop, step)]
        return join([self._decode(self._records.run(*run), np.arange(*run), names) for run in runs])

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_once(rows, lambda wanted: self._decode(self._records.pick(wanted), wanted, names))

    def row_sizes(self, rows: IntArray, columns: Sequence[str]) -> IntArray:
        """Return the bytes of each row for any columns, since records are read whole."""
        check_columns(self.schema, columns)
        return self._records.sizes(check_rows(rows, len(self)))

    def take_bytes(self, rows: IntArray, column: str) -> list[bytes]:
        """Read scattered rows of a column of bytes."""
        return list(objects(self.take(rows, [column]).column(0)))

    def _decode(self, records: Records, rows: IntArray, names: Sequence[str]) -> pa.RecordBatch:
        if self._examples is None:
            return pa.RecordBatch.from_arrays([records.array()] * len(names), names=list(names))
        batch = self._examples.decode(records, names)
        if isinstance(batch, Flaw):
            raise self._error(batch, rows)
        return batch

    def _error(self, flaw: Flaw, rows: IntArray) -> Exception:
        return flaw.error(f"{self._records.place(int(rows[flaw.row]))}: {flaw.reason}")

    def _find_schema(self) -> pa.Schema | None:
        """Infer the schema from records at the beginning, the middle and the end; None if they stay bytes."""
        decode, features, lenient = self.options["decode"], self.options["features"], self.options["on_bad"] == "skip"
        if decode is False:
            return None
        rows = len(self)
        firsts = {0, max(rows - SAMPLE_RECORDS, 0) // 2, max(rows - SAMPLE_RECORDS, 0)}
        numbers = np.array(
            sorted({row for first in firsts for row in range(first, min(first + SAMPLE_RECORDS, rows))}), int
        )
        samples = self._records.pick(numbers).array().to_pylist() if rows else []
        first = samples if lenient else samples[:1]
        sequences = any(map(is_sequence, first))
        if decode == "auto" and features is None and not sequences and not any(map(_kernel.example_features, first)):
            return None
        schema = infer(samples, features, lenient=lenient)
        if isinstance(schema, Flaw):
            raise self._error(schema, numbers)
        return schema

    def _run_rows(self) -> int:
        return max(1, MAX_RUN_BYTES * len(self) // max(self.nbytes, 1))

    def _remove_flaws(self, examples: Examples) -> None:
        bad = []
        step = self._run_rows()
        for start in range(0, len(self), step):
            records = self._records.run(start, min(start + step, len(self)))
            while isinstance(found := examples.find(records, self.schema), Flaw):
                start += found.row + 1  # noqa: PLW2901 - the first remaining record
                bad.append(start - 1)
                records = Records(records.data, records.ends[found.row + 1 :])
        self._records.remove_records(np.array(bad, np.int64))


def same_columns(tables: Sequence[Table]) -> list[Table]:
    """Give the files of one table the same columns: lists of any length where counts differ.

    Files without records take the columns of the others.
    """
    files = [table for table in tables if isinstance(table, TFRecordTable)]
    schemas = [table.schema for table in files if len(table)]
    if not schemas or any(schema.names != schemas[0].names for schema in schemas):
        return list(tables)
    types = {name: schemas[0].field(name).type for name in schemas[0].names}
    for schema in schemas[1:]:
        types = {name: wider(kind, schema.field(name).type) for name, kind in types.items()}
    joined = pa.schema(list(types.items()))
    return [
        TFRecordTable(table.path, **table.options | {"features": types, "decode": True})
        if isinstance(table, TFRecordTable) and not table.schema.equals(joined) and not joined.equals(RECORD)
        else table
        for table in tables
    ]


FORMAT = Format(
    b"",
    SUFFIXES,
    TFRecordTable,
    frozenset({"index", "decode", "features", "on_bad"}),
    knows=is_head,
    agree=same_columns,
    index_file=index_file,
)
