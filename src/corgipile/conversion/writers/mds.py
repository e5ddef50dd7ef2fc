"""Writer of MDS shards and their index, as read by MosaicML Streaming."""

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

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
from corgipile.errors import BadArgument, BadValue
from corgipile.outputs import Kind
from corgipile.tables.formats.mds.encodings import SHAPES
from corgipile.tables.formats.mds.table import INDEX
from corgipile.tables.spans import flat
from corgipile.tables.table import fixed_field, is_bytes, is_list

__all__ = ["FORM"]

LIMIT = 1 << 26  # default bytes per shard, as in the package
MAX_SHARD_BYTES = (1 << 32) - 1  # bytes of a shard at most, by its 32-bit offsets
ENDINGS = {"zstd": "zstd", "gz": "gz"}
types = pa.types
Encode = Callable[[pa.Array], list[bytes]]


class Stored(NamedTuple):
    """Storage of a column."""

    name: str
    encoding: str
    size: int | None
    encode: Encode


class MdsPart:
    """Writes one shard; samples wait in a second file until their number is known."""

    def __init__(self, columns: Sequence[Stored], settings: Settings, path: Path) -> None:
        self._columns, self._path, self._codec = columns, path, settings.compression
        self._limit = settings.limit or LIMIT
        self._facts = _facts(columns, self._codec, self._limit)
        self._config = json.dumps(self._facts, sort_keys=True).encode()
        self._sizes: list[np.ndarray] = []
        self._samples_path = path.with_name(f"{path.name}.samples")
        self._samples = self._samples_path.open("wb")
        self._rows = self._written = 0

    def write(self, batch: pa.RecordBatch, first: int) -> int:
        """Add samples, as many as fit."""
        names = [column.name for column in self._columns if column.encode is not _json]
        refuse_nulls(batch.select(names), first, "MDS")
        self._refuse_empty(batch, first)
        samples = self._samples_of(batch)
        sizes = np.array([len(sample) for sample in samples])
        # Offsets take four bytes per sample, plus one more offset.
        room = self._limit - self._written - len(self._config) - 8 - 4 * self._rows
        fits = int(np.searchsorted(np.cumsum(sizes + 4), room, side="right"))
        count = write_runs(samples[: max(fits, 1)], room, self._samples.write, fresh=not self._rows)
        if sizes[:count].max(initial=0) > MAX_SHARD_BYTES - (1 << 20) - len(self._config):
            rule = f"a row must take less than {MAX_SHARD_BYTES} bytes for MDS"
            raise BadValue(f"rows from {first}: {rule}, got {sizes.max()}")
        self._sizes.append(sizes[:count])
        self._rows += count
        self._written += int(sizes[:count].sum())
        return count

    def _samples_of(self, batch: pa.RecordBatch) -> list[bytes]:
        """Encode rows: lengths of variable-length values, then all values."""
        values = [column.encode(batch.column(column.name)) for column in self._columns]
        free = [value for value, column in zip(values, self._columns, strict=True) if column.size is None]
        lengths = [np.fromiter(map(len, value), "<u4", batch.num_rows) for value in free]
        data = np.stack(lengths, axis=1).tobytes() if free else b""
        width = 4 * len(free)
        prefixes = [data[at : at + width] for at in range(0, len(data), width)] if free else [b""] * batch.num_rows
        return list(map(b"".join, zip(prefixes, *values, strict=True)))

    def _refuse_empty(self, batch: pa.RecordBatch, first: int) -> None:
        """Raise BadValue for empty arrays, which the package cannot store."""
        for column in self._columns:
            if column.encode is _arrays:
                empty = np.flatnonzero(np.diff(starts_of(batch.column(column.name))) == 0)
                if len(empty):
                    why = "is an empty list: arrays of MDS have at least one number"
                    raise BadValue(f"column {column.name!r}, row {first + int(empty[0])} {why}")

    def close(self) -> dict[str, Any]:
        """Assemble the shard; return its index entry."""
        self._samples.close()
        head = 4 + 4 * (self._rows + 1) + len(self._config)
        ends = head + np.append(0, np.cumsum(np.concatenate([np.zeros(0, np.int64), *self._sizes])))
        with self._path.open("wb") as out:
            out.write(np.array([self._rows, *ends], "<u4").tobytes() + self._config)
            with self._samples_path.open("rb") as samples:
                shutil.copyfileobj(samples, out, 1 << 20)
        self._samples_path.unlink()
        raw = {"bytes": int(ends[-1]), "hashes": {}}
        return self._facts | {"samples": self._rows, "raw_data": raw, "zip_data": self._compress()}

    def _compress(self) -> dict[str, Any] | None:
        """Compress the shard."""
        if self._codec is None:
            return None
        packed = self._path.with_name(f"{self._path.name}.{ENDINGS[self._codec]}")
        codec = {"gz": "gzip"}.get(self._codec, self._codec)
        with self._path.open("rb") as raw, pa.CompressedOutputStream(pa.OSFile(str(packed), "wb"), codec) as out:
            shutil.copyfileobj(raw, out, 1 << 20)
        self._path.unlink()
        return {"bytes": packed.stat().st_size, "hashes": {}}


def _facts(columns: Sequence[Stored], codec: str | None, limit: int) -> dict[str, Any]:
    return {
        "version": 2,
        "format": "mds",
        "compression": codec,
        "hashes": [],
        "size_limit": limit,
        "column_names": [column.name for column in columns],
        "column_encodings": [column.encoding for column in columns],
        "column_sizes": [column.size for column in columns],
    }


def stored(field: pa.Field) -> Stored:
    """Return a column's storage; raise BadSchema if MDS has no encoding for it."""
    kind, name = field.type, field.name
    fixed = fixed_field(kind)
    if fixed is not None:
        dtype, shape = fixed
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        word = f"ndarray:{dtype.name}:{','.join(map(str, shape))}" if shape else _scalar(dtype.name)
        if size:
            return Stored(name, word, size, partial(_fixed, size=size))
    varying = _varying(kind)
    if varying is not None:
        return Stored(name, *varying)
    holds = "it holds numbers, text, bytes, decimals, and lists or structures of numbers and text"
    raise refuse_type(field, "MDS", f"{holds}; cast it (types=) or leave it out (columns=)")


def _varying(kind: pa.DataType) -> tuple[str, int | None, Encode] | None:
    """Return encoding, size and encoder of a type other than numbers of one shape; None if there is none."""
    inner = fixed_field(kind.value_type) if is_list(kind) else None
    choices = (
        (types.is_boolean(kind), ("uint8", 1, _booleans)),
        (is_text(kind), ("str", None, _bytes)),
        (is_bytes(kind) or types.is_fixed_size_binary(kind), ("bytes", None, _bytes)),
        (types.is_decimal(kind), ("str_decimal", None, _decimals)),
        (inner is not None and not inner[1], (f"ndarray:{inner[0].name}" if inner else "", None, _arrays)),
        (_is_json(kind), ("json", None, _json)),
    )
    return next((choice for fits, choice in choices if fits), None)


def _scalar(dtype: str) -> str:
    return "int" if dtype == "int64" else dtype


def _is_json(kind: pa.DataType) -> bool:
    """Return whether JSON can represent such lists and structures."""
    if types.is_struct(kind):
        return all(_holds(kind.field(i).type) for i in range(kind.num_fields))
    listed = is_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and _holds(kind.value_type))


def _holds(kind: pa.DataType) -> bool:
    plain = is_text(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return bool(plain or types.is_null(kind) or _is_json(kind))


def _fixed(column: pa.Array, size: int) -> list[bytes]:
    while types.is_fixed_size_list(column.type):
        column = column.flatten()
    data = flat(column)
    raw = data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def _booleans(column: pa.Array) -> list[bytes]:
    return _fixed(column.cast(pa.uint8()), 1)


def _bytes(column: pa.Array) -> list[bytes]:
    return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _json(column: pa.Array) -> list[bytes]:
    return [json.dumps(value).encode() for value in column.to_pylist()]


def _decimals(column: pa.Array) -> list[bytes]:
    return [str(value).encode() for value in column.to_pylist()]


def _arrays(column: pa.Array) -> list[bytes]:
    """Encode lists as one-axis arrays, each after a byte for its type and its length."""
    values, starts = flat(child_of(column)), starts_of(column)
    raw, width = values.tobytes(), values.dtype.itemsize
    made = []
    for low, high in pairwise(starts.tolist()):
        word = next(at for at, limit in enumerate((8, 16, 32, 64)) if high - low < 1 << limit)
        head = bytes((1 << 2 | word,)) + np.array([high - low], SHAPES[word]).tobytes()
        made.append(head + raw[low * width : high * width])
    return made


def plan(schema: pa.Schema, settings: Settings) -> Callable[[Path], MdsPart]:
    """Return the maker of shard writers; raise BadArgument if shards would exceed 32-bit offsets."""
    if settings.limit is not None and settings.limit > MAX_SHARD_BYTES:
        raise BadArgument(f"shard_size must be at most {MAX_SHARD_BYTES} bytes for MDS, got {settings.limit}")
    columns = [stored(schema.field(name)) for name in sorted(schema.names)]
    return partial(MdsPart, columns, settings)


def _finish(folder: Path, shards: Sequence[dict[str, Any]]) -> None:
    """Write the index with the shards' final names."""
    paths = sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
    for shard, path in zip(shards, paths, strict=True):
        shard["raw_data"]["basename"] = path.name if shard["zip_data"] is None else path.stem
        if shard["zip_data"] is not None:
            shard["zip_data"]["basename"] = path.name
    (folder / INDEX).write_text(json.dumps({"version": 2, "shards": list(shards)}, sort_keys=True))


WANTED = "name a folder"
KIND = Kind("MDS shard", lambda _: False)
FORM = Form(
    KIND, (), "shard.%05d.mds", LIMIT, WANTED, plan, (None, *ENDINGS), folder=True, besides=(INDEX,), finish=_finish
)
