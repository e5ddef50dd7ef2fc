"""Writer of WebDataset shards: tar files with a member per value."""

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.conversion.writers.form import Form, Settings, child_of, is_text, missing_row, refuse_type, write_runs
from corgipile.errors import BadSchema, BadValue
from corgipile.outputs import Kind
from corgipile.tables.formats.webdataset.index import is_integer, split
from corgipile.tables.formats.webdataset.table import KEY, is_text_name
from corgipile.tables.spans import flat
from corgipile.tables.table import is_bytes, is_list

__all__ = ["FORM"]

OWNER = "corgipile"  # owner of members, which marks our files
OWNER_AT = 265
BLOCK, RECORD = 512, 10240
MODE_AND_IDS, TIME = b"0000644\0" + b"0000000\0" * 2, b"00000000000\0"
OWNERS = OWNER.encode().ljust(32, b"\0") * 2
HEADER_END = (b"0" + bytes(100) + b"ustar\x0000" + OWNERS).ljust(356, b"\0")
types = pa.types
Encode = Callable[[pa.Array], list[bytes | None]]


class WebDatasetPart:
    """Writes one archive."""

    def __init__(self, schema: pa.Schema, settings: Settings, path: Path) -> None:
        self._limit, self._file = settings.limit, path.open("wb")
        self._columns = {field.name: encoding(field) for field in schema if field.name != KEY}
        self._last = ""  # key of the previous row

    def write(self, batch: pa.RecordBatch, first: int) -> int:
        """Add rows, as many as fit."""
        _refuse_inner_nulls(batch, first)
        keys = self._keys(batch, first)
        columns = ((end, encode(batch.column(name))) for name, (end, encode) in self._columns.items())
        rows = zip(*([(end, data) for data in values] for end, values in columns), strict=True)
        samples = [self._sample(keys[at], row, first + at) for at, row in enumerate(rows)]
        at = self._file.tell()
        room = None if self._limit is None else self._limit - at - RECORD
        count = write_runs(samples, room, self._file.write, fresh=not at)
        self._last = keys[count - 1] if count else self._last
        return count

    def _keys(self, batch: pa.RecordBatch, first: int) -> list[str]:
        if KEY not in batch.schema.names:
            return [f"{row:09}" for row in range(first, first + batch.num_rows)]
        keys: list[str] = batch.column(KEY).to_pylist()
        for row, key in enumerate(keys):
            if key is None or split(f"{key}.x") != (key, "x"):
                raise BadValue(
                    f"column {KEY!r}, row {first + row} must be a name without a dot in its last part, got {key!r}"
                )
            if key == (keys[row - 1] if row else self._last):
                raise BadValue(f"column {KEY!r}, row {first + row} must differ from the row before, got {key!r} twice")
        return keys

    def _sample(self, key: str, members: Sequence[tuple[str, bytes | None]], row: int) -> bytes:
        parts = [_member(f"{key}.{end}", data) for end, data in members if data is not None]
        if not parts:
            raise BadValue(f"row {row} must have a value for WebDataset, got null in all columns")
        return b"".join(parts)

    def close(self) -> None:
        """Write the end mark."""
        with self._file:
            if not self._file.tell():
                raise BadValue("WebDataset needs rows: an archive without samples has no columns")
            self._file.write(bytes(2 * BLOCK + -(self._file.tell() + 2 * BLOCK) % RECORD))


def _member(name: str, data: bytes) -> bytes:
    return b"".join((header(name, len(data)), data, bytes(-len(data) % BLOCK)))


def header(name: str, size: int) -> bytes:
    """Return a member's header, faster than `tarfile`, which writes only long and non-ASCII names.

    Example:
        >>> info = tarfile.TarInfo("000.jpg")
        >>> info.size, info.uname, info.gname = 7, OWNER, OWNER
        >>> header("000.jpg", 7) == info.tobuf(tarfile.PAX_FORMAT)
        True
    """
    if len(name) > 100 or not name.isascii() or size >= 8 << 30:
        info = tarfile.TarInfo(name)
        info.size, info.uname, info.gname = size, OWNER, OWNER
        return info.tobuf(tarfile.PAX_FORMAT)
    block = b"".join((name.encode().ljust(100, b"\0"), MODE_AND_IDS, b"%011o\0" % size, TIME, b" " * 8, HEADER_END))
    return b"".join((block[:148], b"%06o\0 " % sum(block), block[156:]))


def _refuse_inner_nulls(batch: pa.RecordBatch, first: int) -> None:
    """Raise BadValue for lists with nulls; a whole value may be missing."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        inner = child_of(column)
        if inner is not None and inner.null_count:
            row = missing_row(column.drop_null())
            raise BadValue(f"column {name!r}, rows from {first}: non-null list {row} must hold no nulls")


def encoding(field: pa.Field) -> tuple[str, Encode]:
    """Return the ending of a column's members, and the encoder of its rows.

    If the column's name does not identify the data, the ending is one that the webdataset package decodes.
    """
    name, kind = field.name, field.type
    last = name.rpartition(".")[2].lower()
    if is_text(kind):
        return name if is_text_name(name.lower()) else f"{name}.txt", _text
    if is_bytes(kind) or types.is_fixed_size_binary(kind):
        return name, pa.Array.to_pylist
    if types.is_integer(kind):
        return name if is_integer(name.lower()) else f"{name}.cls", _integers
    if types.is_boolean(kind) or types.is_floating(kind):
        return name if last == "json" else f"{name}.json", _json
    listed = types.is_fixed_size_list(kind) or is_list(kind)
    if listed and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        return name if last == "npy" else f"{name}.npy", _npy
    holds = "it holds numbers, text, bytes and flat lists of numbers"
    raise refuse_type(field, "WebDataset", f"{holds}; cast it (types=) or leave it out (columns=)")


def _text(column: pa.Array) -> list[bytes | None]:
    return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _integers(column: pa.Array) -> list[bytes | None]:
    return [None if value is None else b"%d" % value for value in column.to_pylist()]


def _json(column: pa.Array) -> list[bytes | None]:
    return [None if value is None else json.dumps(value).encode() for value in column.to_pylist()]


def _npy(column: pa.Array) -> list[bytes | None]:
    return [None if row is None else _array(row) for row in column]


def _array(row: Any) -> bytes | None:
    if not row.is_valid:
        return None
    data = io.BytesIO()
    np.save(data, flat(row.values), allow_pickle=False)
    return data.getvalue()


def plan(schema: pa.Schema, settings: Settings) -> Callable[[Path], WebDatasetPart]:
    """Return the maker of part writers; raise BadSchema for a column that an archive cannot hold."""
    seen: dict[str, str] = {}
    for field in schema:
        if field.name == KEY and is_text(field.type):
            continue
        end = encoding(field)[0].lower()
        if split(f"0.{field.name}") is None or "/" in field.name or end.startswith(".") or end.endswith("."):
            raise BadSchema(f"column {field.name!r} cannot be a file ending: rename it")
        if end in seen:
            raise BadSchema(
                f"columns {seen[end]!r} and {field.name!r} have the same ending .{end}, since readers lower the case: "
                "leave one out (columns=)"
            )
        seen[end] = field.name
    if not seen:
        raise BadSchema(f"a sample needs a column besides {KEY!r}")
    return partial(WebDatasetPart, schema, settings)


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(OWNER_AT + len(OWNER))[OWNER_AT:] == OWNER.encode()


WANTED = "rows.tar is one shard, rows-%06d.tar are many, and a folder holds many"
FORM = Form(Kind("WebDataset shard", _is_ours), (".tar",), "{}-%06d.tar", 512 << 20, WANTED, plan, folder=True)
