"""Storage of a part's units: one file for rows of fixed width, else one file per unit."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile import _kernel
from corgipile.errors import BadValue, TableError, WriteFailed
from corgipile.outputs import flush, writing
from corgipile.sizes import format_bytes
from corgipile.tables.formats.arrow.writer import conform
from corgipile.tables.formats.part import SlotPlaces, contents, unit_path
from corgipile.tables.io.files import File
from corgipile.tables.spans import flat
from corgipile.tables.table import IntArray

__all__ = ["Bytes", "Files", "Places", "Slots", "Sums", "Units", "check_space", "places_of", "sums_of", "whole_units"]

VERIFY_BYTES = 8 << 20  # bytes verified at a time
Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.uint32]
Units = tuple[Bytes, IntArray]  # concatenated bytes, and the length of each unit


class Places(Protocol):
    """Storage of units by place number, from 0 up; place -1 holds the rows that form no whole unit."""

    unit_bytes: int  # bytes per unit; 0 if they vary

    def room(self, places: int) -> None:
        """Allocate space for units."""

    def encode(self, rows: pa.RecordBatch, units: int) -> Units:
        """Encode rows as units."""

    def read(self, places: IntArray, into: Bytes | None = None) -> Units:
        """Return the units at places, in the given memory if it is large enough and supported."""

    def write(self, places: IntArray, data: Bytes, starts: IntArray, lengths: IntArray) -> None:
        """Write units to places, from each start in the data."""

    def flush(self) -> None:
        """Flush written units to the device."""


def places_of(folder: Path, header: dict[str, Any], schema: pa.Schema) -> Places:
    """Return the storage of a part."""
    if header["in_place"]:
        return Slots(folder, SlotPlaces(schema, header["unit"], header["rest"]))
    return Files(folder, schema)


def check_space(folder: Path, needed: int) -> None:
    """Raise WriteFailed unless the disk of a folder, which need not exist, has enough free space."""
    with writing(folder):
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
    if free < needed:
        raise WriteFailed(
            errno.ENOSPC, f"cannot write {folder}: {format_bytes(needed)} are needed, {format_bytes(free)} are free"
        )


class Slots:
    """Units of one length in one file."""

    def __init__(self, folder: Path, slots: SlotPlaces) -> None:
        self._path, self._slots = folder / "slots", slots
        self.unit_bytes = slots.unit_bytes
        self._handle: int | None = None

    def room(self, places: int) -> None:
        """Allocate space for units."""
        size = self._slots.base + places * self.unit_bytes
        with writing(self._path):
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            size_now = os.fstat(self._handle).st_size
            if size_now < size:
                check_space(self._path.parent, size - size_now)
                os.posix_fallocate(self._handle, size_now, size - size_now)

    def encode(self, rows: pa.RecordBatch, units: int) -> Units:
        """Encode rows as units with one column after the other."""
        numbers = map(_numbers, rows.schema.names, rows.columns)
        columns = [column.view(np.uint8).reshape(units, -1) for column in numbers]
        data = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        return data.reshape(-1), np.full(units, data.shape[1])

    def read(self, places: IntArray, into: Bytes | None = None) -> Units:
        """Return the units at places."""
        lengths = np.where(places < 0, self._slots.base, self.unit_bytes)
        size = int(lengths.sum())
        out = into[:size] if into is not None and len(into) >= size else None
        return File(self._path).gather(self._slots.at(places), lengths, out), lengths

    def write(self, places: IntArray, data: Bytes, starts: IntArray, lengths: IntArray) -> None:
        """Write units to places."""
        assert self._handle is not None  # noqa: S101 - space is allocated
        with writing(self._path):
            code = _kernel.write_ranges(self._handle, data, starts, lengths, self._slots.at(places))
            if code:
                raise OSError(code, os.strerror(code))

    def flush(self) -> None:
        """Flush the file to the device."""
        if self._handle is not None:
            with writing(self._path):
                os.fdatasync(self._handle)

    def __del__(self) -> None:
        if self._handle is not None:
            os.close(self._handle)


def _numbers(name: str, column: pa.Array) -> npt.NDArray[Any]:
    """Return a column's values as numbers."""
    nulls = column.null_count
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
        nulls += column.null_count
    if nulls:
        raise BadValue(f"column {name!r} must have no nulls to be stored in slots: give in_place=False")
    return flat(column)


class Files:
    """Units of varying length in a file each: rows with text, lists or nulls. The schema has no dictionaries."""

    unit_bytes = 0

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._schema, self._part = schema, str(folder)
        self._folder = folder / "units"
        self._written: set[str] = set()

    def room(self, places: int) -> None:
        """Create the folder."""
        with writing(self._folder):
            self._folder.mkdir(exist_ok=True)

    def encode(self, rows: pa.RecordBatch, units: int) -> Units:
        """Encode units as Arrow messages."""
        unit_rows = rows.num_rows // units
        messages = [conform(rows.slice(at * unit_rows, unit_rows), self._schema).serialize() for at in range(units)]
        return _concatenate(messages)

    def read(self, places: IntArray, into: Bytes | None = None) -> Units:
        """Return the units at places."""
        del into  # sizes are unknown in advance
        return _concatenate([contents(unit_path(self._part, place)) for place in places.tolist()])

    def write(self, places: IntArray, data: Bytes, starts: IntArray, lengths: IntArray) -> None:
        """Write units to places."""
        for place, start, length in zip(places.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            path = unit_path(self._part, place)
            with writing(path), open(path, "wb", buffering=0) as file:  # noqa: PTH123 - a name, not a path
                left = data[start : start + length].data
                while left:
                    left = left[file.write(left) :]
            self._written.add(path)

    def flush(self) -> None:
        """Flush new files to the device."""
        with writing(self._folder):
            for path in self._written:
                flush(Path(path))
            flush(self._folder)
        self._written.clear()


def _concatenate(units: Sequence[Any]) -> Units:
    return np.frombuffer(bytearray().join(units), np.uint8), np.array([len(unit) for unit in units], np.int64)


def sums_of(data: Bytes, starts: IntArray, lengths: IntArray) -> Sums:
    """Return the CRC-32C of each unit.

    Example:
        >>> hex(sums_of(np.frombuffer(b"123456789", np.uint8), np.array([0]), np.array([9]))[0])
        '0xe3069283'
    """
    sums = np.zeros(len(starts), np.uint32)
    _kernel.crc32c_ranges(data, starts.astype(np.int64), lengths.astype(np.int64), sums)
    return sums


def whole_units(places: Places, at: IntArray, sums: Sums) -> int:
    """Return how many units, from the first on, match their checksums."""
    step = VERIFY_BYTES // places.unit_bytes + 1 if places.unit_bytes else 1
    for first in range(0, len(at), step):
        try:
            data, lengths = places.read(at[first : first + step])
        except TableError:  # missing or truncated
            return first
        found = sums_of(data, np.cumsum(lengths) - lengths, lengths)
        wrong = np.flatnonzero(found != sums[first : min(first + step, len(at))])
        if len(wrong):
            return first + int(wrong[0])
    return len(at)
