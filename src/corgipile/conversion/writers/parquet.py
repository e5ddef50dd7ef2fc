"""Writer of Parquet with small row groups, so that blocks of rows are read without much other decoding."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corgipile.conversion.writers.form import Form, Settings, refuse_type
from corgipile.errors import BadValue
from corgipile.outputs import Kind
from corgipile.tables.encoded import SMALL
from corgipile.tables.formats.arrow.grouping import Groups

__all__ = ["FORM"]

GROUP_BYTES = SMALL  # decoded bytes per row group, small enough to need no spill file
PAGE_BYTES = 128 << 10
_MARK = "corgipile.table"
types = pa.types


class ParquetPart:
    """Writes one Parquet file."""

    def __init__(self, schema: pa.Schema, settings: Settings, path: Path) -> None:
        self._limit = settings.limit
        self._groups = Groups(f"{GROUP_BYTES}B" if settings.record_batch is None else settings.record_batch, schema)
        self._sink = pa.OSFile(str(path), "wb")
        codec, options = settings.compression or "zstd", {"data_page_size": PAGE_BYTES, "write_page_index": True}
        self._file = pq.ParquetWriter(self._sink, schema, compression=codec, **options)
        self._file.add_key_value_metadata({_MARK: "1"})

    def write(self, batch: pa.RecordBatch, first: int) -> int:
        """Add rows, or none if the file is full."""
        if self._limit is not None and self._sink.tell() >= self._limit:
            return 0
        with _bad_values(first, batch.num_rows):
            for group in self._groups.add(batch):
                self._file.write_batch(group)
        return int(batch.num_rows)

    def close(self) -> None:
        """Write the rest and close."""
        remainder = self._groups.rest()
        with _bad_values(0, 0), self._sink, self._file:
            if remainder is not None:
                self._file.write_batch(remainder)


@contextmanager
def _bad_values(first: int, rows: int) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        where = f"rows up to {first + rows}" if rows else "the last rows"
        raise BadValue(f"cannot write {where} to Parquet: {str(error).splitlines()[0]}") from None


def plan(schema: pa.Schema, settings: Settings) -> Callable[[Path], ParquetPart]:
    """Return the maker of part writers; raise BadSchema if a column's type would change in Parquet."""
    for field in schema:
        kept = _written_type(field)
        if kept is None or not _same(field.type, kept):
            became = "" if kept is None else f"it would become {kept}; "
            raise refuse_type(field, "Parquet", f"{became}leave it out (columns=), or write Arrow")
    Groups(1 if settings.record_batch is None else settings.record_batch, schema)  # raises errors early
    return partial(ParquetPart, schema, settings)


def _written_type(field: pa.Field) -> pa.DataType | None:
    """Return a column's type after a round trip, None if it cannot be written."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.table([pa.nulls(1, field.type)], names=["x"]), sink)
        return pq.read_schema(pa.BufferReader(sink.getvalue())).field(0).type
    except (pa.ArrowException, NotImplementedError):
        return None


def _same(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types have the same values; times may have a finer unit."""
    if types.is_timestamp(one) and types.is_timestamp(other):
        return bool(one.tz == other.tz)
    if types.is_time(one) and types.is_time(other):
        return True
    if one.num_fields and one.num_fields == other.num_fields and one.id == other.id:
        inner = zip(range(one.num_fields), range(other.num_fields), strict=True)
        return all(_same(one.field(i).type, other.field(j).type) for i, j in inner)
    return bool(one == other)


def _is_ours(path: Path) -> bool:
    try:
        return _MARK.encode() in (pq.read_metadata(str(path)).metadata or {})
    except (pa.ArrowException, OSError):
        return False


WANTED = "rows.parquet is one file, rows-%05d.parquet are many"
SUFFIXES = (".parquet", ".pq")
KIND = Kind("Parquet file", _is_ours)
CODECS = (None, "none", "snappy", "lz4", "zstd", "gzip", "brotli")
FORM = Form(KIND, SUFFIXES, "{}-%05d.parquet", 512 << 20, WANTED, plan, CODECS, grouped=True)
