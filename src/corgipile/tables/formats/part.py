"""A rank's part of a table: a folder of units, and a manifest that locates the rows of an epoch in them.

`corgipile.exchange` writes parts. Fixed-width rows lie in one file of slots, which loaders read in place; other rows
lie in one file for each unit.
"""

import base64
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgipile.errors import CorruptFile, MissingFile, StateMismatch
from corgipile.nesting import parse_json
from corgipile.tables.checked import Checked
from corgipile.tables.format import folder_format
from corgipile.tables.formats.numpy import nested
from corgipile.tables.io.column import PlacedColumn
from corgipile.tables.io.files import File, decoding, digest
from corgipile.tables.io.pieces import merge_cuts, pick, pick_rows, read_pieces, take_pieces
from corgipile.tables.reach import within
from corgipile.tables.table import ColumnLayout, IntArray, Layout, Table, check_columns, fixed_field

__all__ = [
    "BEGUN",
    "FORMAT",
    "NOW",
    "VERSION",
    "Manifest",
    "SlotPlaces",
    "contents",
    "crc_of",
    "is_part",
    "open_part",
    "unit_path",
]

VERSION = 2
NOW, BEGUN = "manifest.json", "staging.json"


class Manifest(NamedTuple):
    """The units of an epoch.

    Attributes:
        header: The JSON fields: rank, world, rows of a unit, schema, epoch...
        live: int64[units], the place of each unit.
        sums: uint32[units + 1], the CRC-32C of each unit, then of the remaining rows.
    """

    header: dict[str, Any]
    live: IntArray
    sums: npt.NDArray[np.uint32]

    @classmethod
    def read(cls, folder: Path, name: str = NOW) -> Self:
        """Read a manifest.

        Raises:
            CorruptFile: The manifest is damaged.
            StateMismatch: Another release wrote it.
        """
        path = folder / name
        try:
            header: dict[str, Any] = parse_json(path.read_text(), str(path), ValueError)
            if header["version"] != VERSION:
                raise StateMismatch(f"{path} must have version {VERSION}, got {header['version']}")
            raw, units = within(folder, header["live"], path).read_bytes(), int(header["units"])
            if header.pop("crc") != crc_of(header, raw) or len(raw) != 12 * units + 4:
                raise CorruptFile(f"{path} or {header['live']} in its folder is damaged: their checksum differs")
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, StateMismatch | CorruptFile):
                raise
            raise CorruptFile(f"{path} is damaged: {error!r}") from None
        live = np.frombuffer(raw, "<i8", units).astype(np.int64)
        return cls(header, live, np.frombuffer(raw, "<u4", offset=8 * units).astype(np.uint32))

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of a row."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.header["schema"])))

    def table(self, folder: Path) -> Table:
        """Return the rows: units in the order of places, then the remaining rows."""
        header, places = self.header, np.sort(self.live)
        name = digest(f"{header['of']} {header['epoch']}")
        if header["in_place"]:
            return SlotTable(SlotPlaces(self.schema, header["unit"], header["rest"]), folder, places, name)
        return UnitTable(self.schema, str(folder), places, header["unit"], header["rest"], name)


def crc_of(header: dict[str, Any], raw: bytes) -> int:
    """Return the checksum of a manifest's fields and of the raw places and checksums.

    Example:
        >>> crc_of({}, b"")
        2745614147
    """
    return zlib.crc32(json.dumps(header).encode(), zlib.crc32(raw))


def is_part(folder: Path) -> bool:
    """Return whether a folder is a part, complete or not."""
    if (folder / BEGUN).is_file():
        return True
    try:
        with (folder / NOW).open("rb") as file:
            return b'"corgipile": "part"' in file.read(64)
    except OSError:
        return False


def open_part(folder: str) -> Table:
    """Open a part in its current epoch.

    Raises:
        MissingFile: The part is incomplete.
        CorruptFile: The part is damaged.
    """
    place = Path(folder)
    if not (place / NOW).is_file():
        raise MissingFile(f"{folder} is incomplete; run the same `corgipile partition` again to continue")
    return Manifest.read(place).table(place)


class SlotPlaces:
    """The layout of equal units in a file: remaining rows first, then the columns of each unit in turn.

    Args:
        schema: The schema of a row, with fixed-width columns.
        unit: Rows of a unit.
        rest: Remaining rows, fewer than a unit.
    """

    def __init__(self, schema: pa.Schema, unit: int, rest: int) -> None:
        self.schema, self.unit, self.rest = schema, unit, rest
        self.columns = [fixed_field(field.type) or (np.dtype("u1"), ()) for field in schema]
        self.widths = [int(dtype.itemsize * np.prod(shape, dtype=np.int64)) for dtype, shape in self.columns]
        self.unit_bytes, self.base = unit * sum(self.widths), rest * sum(self.widths)

    def at(self, places: IntArray) -> IntArray:
        """Return the offsets of places; place -1 holds the remaining rows."""
        return np.where(np.asarray(places) < 0, 0, self.base + np.asarray(places) * self.unit_bytes)

    def layout(self, path: str, places: IntArray) -> Layout:
        """Return the layout of the units in places and of the remaining rows."""
        lengths = np.append(np.full(len(places), self.unit), [self.rest] if self.rest else [])
        begins = np.append(self.at(places), [0] if self.rest else []).astype(np.int64)
        starts = np.append(0, np.cumsum(lengths)).astype(np.int64)
        columns, before = {}, 0
        for field, (dtype, shape), width in zip(self.schema, self.columns, self.widths, strict=True):
            offsets = begins + (before * lengths).astype(np.int64)
            if len(self.columns) == 1:
                columns[field.name] = ColumnLayout.joined(field.type, starts, offsets)
            else:
                columns[field.name] = ColumnLayout(dtype, shape, starts, np.zeros(len(begins), np.int32), offsets)
            before += width
        return Layout((path,), columns)


class SlotTable(Checked):
    """Serves fixed-width rows from a file of slots.

    Args:
        slots: The layout of places.
        folder: The folder of the file.
        places: The places of the table, ascending.
        name: The fingerprint.
    """

    columnar = True  # each column is read without the others

    def __init__(self, slots: SlotPlaces, folder: Path, places: IntArray, name: str) -> None:
        self.schema, self.fingerprint, self._arguments = slots.schema, name, (slots, folder, places, name)
        self._layout = slots.layout(str(folder / "slots"), places)
        self._rows = len(places) * slots.unit + slots.rest

    def __reduce__(self) -> tuple[Any, ...]:
        return SlotTable, self._arguments

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"SlotTable({self._layout.paths[0]!r}, {len(self)} rows)"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows."""
        return len(self) * sum(column.width for column in self._layout.columns.values())

    def layout(self, columns: Sequence[str]) -> Layout | None:
        """Return the layout of columns."""
        names = check_columns(self.schema, columns)
        return Layout(self._layout.paths, {name: self._layout.columns[name] for name in names})

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        arrays = []
        for name in names:
            values = PlacedColumn(self._layout, name).take(rows)
            arrays.append(nested(np.ascontiguousarray(values).reshape(-1), values.shape[1:]))
        return pa.RecordBatch.from_arrays(arrays, schema=pick(self.schema, names))


def unit_path(folder: str, place: int) -> str:
    """Return the file of the unit in a place, -1 for the remaining rows.

    Example:
        >>> unit_path("/part", 7), unit_path("/part", -1)
        ('/part/units/7', '/part/units/rest')
    """
    return os.path.join(folder, "units", "rest" if place < 0 else str(place))  # noqa: PTH118 - faster than Path


def contents(path: str) -> bytes:
    """Return the content of a file."""
    file = File(path)
    return file.read(0, file.size)


class UnitTable(Checked):
    """Serves rows from files of units, which are read whole.

    Args:
        schema: The schema of a row.
        folder: The folder of the part.
        places: Numbers of the files, in order.
        unit: Rows of a unit.
        rest: Remaining rows, in a separate file.
        name: The fingerprint.
    """

    def __init__(self, schema: pa.Schema, folder: str, places: IntArray, unit: int, rest: int, name: str) -> None:
        self.schema, self.fingerprint, self._arguments = schema, name, (schema, folder, places, unit, rest, name)
        self._folder, self._places = folder, np.append(places, [-1] if rest else []).astype(np.int64)
        lengths = np.where(self._places < 0, rest, unit)
        self._starts = np.append(0, np.cumsum(lengths)).astype(np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return UnitTable, self._arguments

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        return f"UnitTable({self._folder!r}, {len(self)} rows)"

    @property
    def nbytes(self) -> int:
        """Return the stored bytes of all rows, estimated from a sample of units."""
        some = self._places[np.unique(np.linspace(0, len(self._places) - 1, 64).astype(np.int64))]
        sizes = [os.stat(unit_path(self._folder, place)).st_size for place in some.tolist()]  # noqa: PTH116 - faster than Path
        return int(np.mean(sizes) * len(self._places))

    def cuts(self, rows: int) -> IntArray:
        """Cut between units, every ``rows`` rows or so."""
        return merge_cuts(self._starts, rows)

    def _unit(self, piece: int, names: list[str]) -> pa.RecordBatch:
        path = unit_path(self._folder, int(self._places[piece]))
        data = contents(path)
        with decoding(path):
            return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema).select(names)

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        return read_pieces(
            self._starts, start, stop, lambda at, low, high: self._unit(at, names).slice(low, high - low)
        )

    def _take_rows(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        return take_pieces(self._starts, rows, lambda at, some: pick_rows(self._unit(at, names), some))


FORMAT = folder_format(open_part, is_part, log=True)
