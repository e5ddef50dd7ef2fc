"""Writer of TFRecord files of ``tensorflow.Example`` messages."""

import struct
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.conversion.writers.form import (
    Form,
    Settings,
    child_of,
    is_text,
    refuse_nulls,
    refuse_type,
    starts_of,
    write_runs,
)
from corgipile.errors import BadValue
from corgipile.outputs import Kind
from corgipile.tables.spans import flat
from corgipile.tables.table import is_bytes

__all__ = ["FORM", "frame", "varints"]

RECORD = "record"
BYTES, FLOATS, INTEGERS = 1, 2, 3  # fields of a Feature
types = pa.types
Array = npt.NDArray[np.int64]


class TFRecordPart:
    """Writes one TFRecord file."""

    def __init__(self, schema: pa.Schema, settings: Settings, path: Path) -> None:
        self._raw = is_record(schema)
        self._limit, self._file = settings.limit, path.open("wb")

    def write(self, batch: pa.RecordBatch, first: int) -> int:
        """Add rows, as many as fit."""
        refuse_nulls(batch, first, "TFRecord")
        if self._raw:
            records = batch.column(0).to_pylist()
        else:
            entries = [_entries(name, batch.column(name), first) for name in batch.schema.names]
            records = [_field(1, b"".join(row)) for row in zip(*entries, strict=True)]
        at = self._file.tell()
        room = None if self._limit is None else self._limit - at
        return write_runs([frame(record) for record in records], room, self._file.write, fresh=not at)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def is_record(schema: pa.Schema) -> bool:
    """Return whether rows are raw records, as our reader returns those that are not Examples."""
    return schema.names == [RECORD] and is_bytes(schema.field(0).type) and not is_text(schema.field(0).type)


def frame(data: bytes) -> bytes:
    """Return a record in its TFRecord frame.

    Example:
        >>> len(frame(b"abc"))
        19
    """
    head = struct.pack("<Q", len(data))
    return b"".join((head, _crc(head), data, _crc(data)))


def _crc(data: bytes) -> bytes:
    crc = _kernel.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _field(number: int, data: bytes) -> bytes:
    """Return a message field of bytes."""
    return b"".join((bytes((number << 3 | 2,)), _size(len(data)), data))


def _size(size: int) -> bytes:
    parts = bytearray()
    while size > 127:
        parts.append(size & 127 | 128)
        size >>= 7
    parts.append(size)
    return bytes(parts)


def varints(values: Array) -> tuple[bytes, Array]:
    r"""Return integers as concatenated varints, with the start of each and the end of the last.

    Example:
        >>> varints(np.array([1, 300]))
        (b'\x01\xac\x02', array([0, 1, 3]))
    """
    parts = values.view(np.uint64)[:, None] >> np.arange(0, 70, 7, dtype=np.uint64)
    lengths = np.maximum(1, (parts != 0).sum(axis=1))  # x >> k is 0 only beyond the highest part
    places = np.arange(10)
    marks = np.where(places < lengths[:, None] - 1, 128, 0).astype(np.uint8)
    digits = (parts & np.uint64(127)).astype(np.uint8) | marks
    return digits[places < lengths[:, None]].tobytes(), np.append(0, np.cumsum(lengths))


def _entries(name: str, column: pa.Array, first: int) -> list[bytes]:
    """Return a column as entries of the feature map, one per row."""
    kind, inner = _kind_of(column.type), child_of(column)
    values, starts = (column, np.arange(len(column) + 1)) if inner is None else (inner, starts_of(column))
    if kind == BYTES:
        data = _bytes(values)
        lists = [b"".join(_field(1, value) for value in data[low:high]) for low, high in pairwise(starts.tolist())]
        return [_entry(name, kind, values) for values in lists]
    packed, ends = _floats(values, name, first) if kind == FLOATS else varints(_integers(values, name, first))
    places = ends[starts].tolist()
    before = {length: _prefix(name, kind, length) for length in set(np.diff(places).tolist())}
    return [before[high - low] + packed[low:high] for low, high in pairwise(places)]


def _entry(name: str, kind: int, values: bytes) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, _field(kind, values)))


def _prefix(name: str, kind: int, length: int) -> bytes:
    """Return the bytes before packed numbers of a given length, equal for all rows of that length."""
    whole = _entry(name, kind, _field(1, bytes(length)) if length else b"")
    return whole[: len(whole) - length]


def _bytes(values: pa.Array) -> list[bytes]:
    data: list[bytes] = values.cast(pa.large_binary()).to_pylist()
    return data


def _floats(values: pa.Array, name: str, first: int) -> tuple[bytes, Array]:
    numbers = flat(values)
    with np.errstate(over="ignore"):
        small = numbers.astype("<f4")
    wrong = np.flatnonzero((small != numbers) & ~np.isnan(numbers))
    if len(wrong):
        raise BadValue(
            f"column {name!r}, rows from {first}: {numbers[wrong[0]]} must be a 32-bit float for TFRecord: give "
            f"types={{{name!r}: 'float32'}} and inexact=True to round it"
        )
    return small.tobytes(), 4 * np.arange(len(small) + 1)


def _integers(values: pa.Array, name: str, first: int) -> Array:
    numbers = flat(values)
    if numbers.dtype == np.uint64 and len(numbers) and numbers.max() > np.iinfo(np.int64).max:
        raise BadValue(
            f"column {name!r}, rows from {first}: values must be signed 64-bit integers, got {numbers.max()}"
        )
    return numbers.astype(np.int64)


def _kind_of(kind: pa.DataType) -> int:
    """Return the Feature field of a column, 0 if there is none."""
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if is_bytes(kind) or types.is_fixed_size_binary(kind):
        return BYTES
    if types.is_floating(kind):
        return FLOATS
    return INTEGERS if types.is_integer(kind) or types.is_boolean(kind) else 0


def plan(schema: pa.Schema, settings: Settings) -> Callable[[Path], TFRecordPart]:
    """Return the maker of part writers; columns must be numbers or bytes or lists of these."""
    for field in schema:
        if not _kind_of(field.type):
            holds = "it holds numbers, text, bytes and lists of these"
            raise refuse_type(field, "TFRecord", f"{holds}; cast it (types=) or leave it out (columns=)")
    return partial(TFRecordPart, schema, settings)


WANTED = "rows.tfrecord is one file, rows-%05d.tfrecord are many"
SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")
KIND = Kind("TFRecord file", lambda _: False)
FORM = Form(KIND, SUFFIXES, "{}-%05d.tfrecord", 128 << 20, WANTED, plan)
