"""IDX files, the format of MNIST: bytes after a short header, with labels in a second file."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from corgipile.conversion.stream import Stream
from corgipile.conversion.text import decompressed
from corgipile.errors import BadArgument, CorruptFile, MissingFile
from corgipile.tables.spans import array_of

_BATCH_BYTES = 1 << 20
_MAX_IMAGE_BYTES = 1 << 26


def idx_stream(path: str, label: str | int | None) -> Stream:
    """Open images as uint8 ``features`` and, if present, labels as int32 ``label``."""
    rows, *sides = _shape(path)
    labels = _label_path(path, label)
    width = math.prod(sides)
    if not 1 <= width <= _MAX_IMAGE_BYTES:
        raise CorruptFile(f"{path}: images must have 1 to {_MAX_IMAGE_BYTES} bytes, got sides {sides}")
    fields = [pa.field("features", pa.list_(pa.field("item", pa.uint8(), nullable=False), width), nullable=False)]
    if labels is not None:
        if _shape(labels) != [rows]:
            raise CorruptFile(f"{labels} must have {rows} rows like {path}, got shape {_shape(labels)}")
        fields.append(pa.field("label", pa.int32(), nullable=False))
    schema = pa.schema(fields)
    paths = (path,) if labels is None else (path, labels)
    return Stream(schema, _batches(schema, paths, rows, width), rows, paths, labelled=False)


def _shape(path: str) -> list[int]:
    with decompressed(path) as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] != 8 or not 1 <= head[3] <= 4:
            raise CorruptFile(
                f"{path}: IDX files of bytes must start with 000008 and 1 to 4 dimensions, got {head.hex()}"
            )
        sides = file.read(4 * head[3])
        if len(sides) < 4 * head[3]:
            raise CorruptFile(f"{path}: ends within its header")
    return [int.from_bytes(sides[at : at + 4], "big") for at in range(0, len(sides), 4)]


def _label_path(path: str, label: str | int | None) -> str | None:
    if isinstance(label, int):
        raise BadArgument(f"label must be the path of the labels for IDX images, got {label}")
    if isinstance(label, str):
        if not Path(label).exists():
            raise MissingFile(f"no file at {label}: label must be the path of the IDX images' labels")
        return label
    name = Path(path).name.replace("images", "labels").replace("idx3", "idx1")
    sibling = Path(path).with_name(name)
    return str(sibling) if name != Path(path).name and sibling.exists() else None


def _batches(schema: pa.Schema, paths: tuple[str, ...], rows: int, width: int) -> Iterator[pa.RecordBatch]:
    step = max(1, _BATCH_BYTES // max(1, width))
    labels = np.zeros(0, np.int32)
    if len(paths) == 2:
        with decompressed(paths[1]) as file:
            labels = np.frombuffer(_check_length(file.read()[8:], rows, paths[1]), np.uint8).astype(np.int32)
    with decompressed(paths[0]) as file:
        file.read(4 * (1 + len(_shape(paths[0]))))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            pixels = np.frombuffer(_check_length(file.read(count * width), count * width, paths[0]), np.uint8)
            columns = [pa.FixedSizeListArray.from_arrays(array_of(pixels), type=schema.field(0).type)]
            if len(paths) == 2:
                columns.append(array_of(labels[start : start + count]))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_length(data: bytes, wanted: int, path: str) -> bytes:
    if len(data) != wanted:
        raise CorruptFile(f"{path}: the header promises {wanted} bytes, got {len(data)}")
    return data
