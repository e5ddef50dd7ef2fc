"""Where the units of a part lie on disk: in one file where rows are of fixed width, else each in a file of its own."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import BadValue, WriteFailed
from corgipile.outputs import flush, writing
from corgipile.sizes import format_bytes
from corgipile.tables.arrow.spans import flat
from corgipile.tables.arrow.writer import conform
from corgipile.tables.checked import Checked
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.files import File, digest
from corgipile.tables.io.pieces import merge_cuts, pick, pick_rows, read_pieces, take_pieces
from corgipile.tables.numpy import nested
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns, fixed_field

__all__ = ["Bytes", "Files", "Places", "Slots", "check_space"]

Bytes = npt.NDArray[np.uint8]


class Places(Protocol):
    """Holds units by the numbers of places, from 0 on; place -1 has the rows that make no whole unit."""

    unit_bytes: int  # of every unit; 0 where they differ

    def room(self, places: int) -> None:
        """Make sure that there is room for so many units."""

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Return what is stored for the rows of a unit."""

    def read(self, places: IntArray) -> tuple[Bytes, IntArray]:
        """Return what lies in places, back to back, and the bytes of each."""

    def write(self, places: Sequence[int], units: Sequence[Any]) -> None:
        """Put units into places."""

    def flush(self) -> None:
        """Have what was written since written to the device."""

    def table(self, places: IntArray, rest: int, name: str) -> Table:
        """Return the rows in places, which ascend, then those that make no whole unit, as a table of this name."""


def check_space(folder: Path, needed: int) -> None:
    """Raise WriteFailed unless a disk has room for so many bytes."""
    with writing(folder):
        free = shutil.disk_usage(folder).free
    if free < needed:
        raise WriteFailed(
            errno.ENOSPC, f"cannot write {folder}: {format_bytes(needed)} are needed, {format_bytes(free)} are free"
        )


class Slots:
    """Units of one length in one file, columns of a unit one after the other, so that rows are read where they lie.

    Args:
        folder: Where the file lies.
        schema: Of a row; numbers, or lists of one length of them.
        unit: Rows of a unit.
        rest: Rows that make no whole unit, which lie first.
    """

    def __init__(self, folder: Path, schema: pa.Schema, unit: int, rest: int) -> None:
        self.schema, self._unit, self._rest = schema, unit, rest
        self._path = folder / "slots"
        self._columns = [fixed_field(field.type) or (np.dtype("u1"), ()) for field in schema]
        self._widths = [int(dtype.itemsize * np.prod(shape, dtype=np.int64)) for dtype, shape in self._columns]
        self.unit_bytes, self._base = unit * sum(self._widths), rest * sum(self._widths)
        self._handle: int | None = None

    def room(self, places: int) -> None:
        """Make sure that there is room for so many units."""
        size = self._base + places * self.unit_bytes
        with writing(self._path):
            if self._handle is None:
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            here = os.fstat(self._handle).st_size
            if here < size:
                check_space(self._path.parent, size - here)
                os.posix_fallocate(self._handle, here, size - here)

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Return the columns of some rows, one after the other."""
        return b"".join(_numbers(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True))

    def read(self, places: IntArray) -> tuple[Bytes, IntArray]:
        """Return what lies in places, back to back, and the bytes of each."""
        lengths = np.full(len(places), self.unit_bytes)
        return File(self._path).gather(self._at(places), lengths), lengths

    def _at(self, places: IntArray) -> IntArray:
        return np.where(np.asarray(places) < 0, 0, self._base + np.asarray(places) * self.unit_bytes)

    def write(self, places: Sequence[int], units: Sequence[Any]) -> None:
        """Put units into places."""
        assert self._handle is not None  # noqa: S101 - room was made
        with writing(self._path):
            for at, unit in zip(self._at(np.asarray(places)).tolist(), units, strict=True):
                left = memoryview(unit)
                while left:
                    done = os.pwrite(self._handle, left, at)
                    left, at = left[done:], at + done  # noqa: PLW2901 - what a full disk takes of it

    def flush(self) -> None:
        """Have the file written to the device."""
        if self._handle is not None:
            with writing(self._path):
                os.fdatasync(self._handle)

    def table(self, places: IntArray, rest: int, name: str) -> Table:
        """Return the rows in places as a table of this name."""
        lengths = np.append(np.full(len(places), self._unit), [rest] if rest else [])
        begins = np.append(self._at(places), [0] if rest else []).astype(np.int64)
        starts = np.append(0, np.cumsum(lengths)).astype(np.int64)
        columns, before = {}, 0
        for field, (dtype, shape), width in zip(self.schema, self._columns, self._widths, strict=True):
            offsets = begins + (before * lengths).astype(np.int64)
            if len(self._columns) == 1:
                columns[field.name] = ColumnLayout.joined(field.type, starts, offsets)
            else:
                columns[field.name] = ColumnLayout(dtype, shape, starts, np.zeros(len(begins), np.int32), offsets)
            before += width
        return SlotTable(self.schema, Layout((str(self._path),), columns), name, self._unit)

    def __del__(self) -> None:
        if self._handle is not None:
            os.close(self._handle)


def _numbers(name: str, column: pa.Array) -> bytes:
    """Return the numbers of a column's rows."""
    nulls = column.null_count
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
        nulls += column.null_count
    if nulls:
        raise BadValue(f"column {name!r} has nulls, which have no place in slots: give in_place=False")
    return flat(column).tobytes()


class SlotTable(Checked):
    """Rows that lie in slots.

    Args:
        schema: Of a row.
        layout: Where they lie.
        name: What tells them from others.
        unit: Rows that lie together.
    """

    columnar = True  # a column is read without the others

    def __init__(self, schema: pa.Schema, layout: Layout, name: str, unit: int) -> None:
        self.schema, self._layout, self._name, self._unit = schema, layout, name, unit
        self._rows = int(next(iter(layout.columns.values())).starts[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return SlotTable, (self.schema, self._layout, self._name, self._unit)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"SlotTable({self._layout.paths[0]!r}, {len(self)} rows)"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return len(self) * sum(column.width for column in self._layout.columns.values())

    @property
    def fingerprint(self) -> str:
        """Return the identity."""
        return digest(self._name)

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Say where the rows lie."""
        names = check_columns(self.schema, columns)
        return Layout(self._layout.paths, {name: self._layout.columns[name] for name in names})

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        arrays = []
        for name in names:
            values = PlacedColumn(self._layout, name).take(rows)
            arrays.append(nested(np.ascontiguousarray(values).reshape(-1), values.shape[1:]))
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))


class Files:
    """Units of any length, a file each: rows of text, lists, nulls.

    Args:
        folder: Where they lie, in a folder of their own.
        schema: Of a row, without dictionaries.
        unit: Rows of a unit.
    """

    unit_bytes = 0

    def __init__(self, folder: Path, schema: pa.Schema, unit: int) -> None:
        self.schema, self._unit = schema, unit
        self._folder = folder / "units"
        self._written: set[str] = set()

    def room(self, places: int) -> None:
        """Make the folder."""
        with writing(self._folder):
            self._folder.mkdir(exist_ok=True)

    def encode(self, rows: pa.RecordBatch) -> bytes:
        """Return rows as a message of Arrow."""
        return bytes(memoryview(conform(rows, self.schema).serialize()))

    def read(self, places: IntArray) -> tuple[Bytes, IntArray]:
        """Return what lies in places, back to back, and the bytes of each."""
        found = [_contents(self._path(place)) for place in places.tolist()]
        return np.frombuffer(bytearray().join(found), np.uint8), np.array([len(one) for one in found], np.int64)

    def _path(self, place: int) -> str:
        return os.path.join(self._folder, "rest" if place < 0 else str(place))  # noqa: PTH118 - one a row read

    def write(self, places: Sequence[int], units: Sequence[Any]) -> None:
        """Put units into places."""
        for place, unit in zip(places, units, strict=True):
            path = self._path(int(place))
            with writing(path), open(path, "wb", buffering=0) as file:  # noqa: PTH123 - as above
                left = memoryview(unit)
                while left:
                    left = left[file.write(left) :]
            self._written.add(path)

    def flush(self) -> None:
        """Have the files written since written to the device."""
        with writing(self._folder):
            for path in self._written:
                flush(Path(path))
            flush(self._folder)
        self._written.clear()

    def table(self, places: IntArray, rest: int, name: str) -> Table:
        """Return the rows in places as a table of this name."""
        return UnitTable(
            self.schema, str(self._folder), np.append(places, [-1] if rest else []), self._unit, rest, name
        )


def _contents(path: str) -> bytes:
    file = File(path)
    return file.read(0, file.size)


class UnitTable(Checked):
    """Rows that lie in files of units, each of which is read whole.

    Args:
        schema: Of a row.
        folder: Where the files lie.
        places: Their numbers, in order; -1 for the rest.
        unit: Rows of a unit.
        rest: Rows of the rest.
        name: What tells them from others.
    """

    def __init__(self, schema: pa.Schema, folder: str, places: IntArray, unit: int, rest: int, name: str) -> None:
        self.schema, self._given = schema, (schema, folder, places, unit, rest, name)
        self._folder, self._places, self._name = folder, places.astype(np.int64), name
        lengths = np.where(self._places < 0, rest, unit)
        self._starts = np.append(0, np.cumsum(lengths)).astype(np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnitTable, self._given

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"UnitTable({self._folder!r}, {len(self)} rows)"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows, by some of the units."""
        some = self._places[np.unique(np.linspace(0, len(self._places) - 1, 64).astype(np.int64))]
        sizes = [os.stat(self._path(place)).st_size for place in some.tolist()]  # noqa: PTH116 - a name, not a path
        return int(np.mean(sizes) * len(self._places))

    @property
    def fingerprint(self) -> str:
        """Return the identity."""
        return digest(self._name)

    def cuts(self, rows: int) -> IntArray:
        """Cut between units, about so many rows apart."""
        return merge_cuts(self._starts, rows)

    def _path(self, place: int) -> str:
        return os.path.join(self._folder, "rest" if place < 0 else str(place))  # noqa: PTH118 - one a row read

    def _unit(self, piece: int, names: list[str]) -> pa.RecordBatch:
        data = _contents(self._path(int(self._places[piece])))
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema).select(names)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return read_pieces(
            self._starts, start, stop, lambda at, low, high: self._unit(at, names).slice(low, high - low)
        )

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda at, some: pick_rows(self._unit(at, names), some))
