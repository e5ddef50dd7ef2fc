"""Tables that the benchmarks make for themselves."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile.convert import convert
from corgipile.datasets import higgs_like
from corgipile.writer import Writer

CHUNK = 1 << 16


def higgs(work: Path, rows: int, features: int) -> Path:
    """Make a label-sorted binary table, Arrow IPC, float32 features."""
    path = work / f"higgs-{rows}x{features}.arrow"
    if not path.exists():
        higgs_like(path, rows, features=features, seed=1)
    return path


def classes(work: Path, rows: int, features: int, count: int = 10) -> tuple[Path, Path, Path]:
    """Make a label-sorted table of several classes: features .npy, labels .npy (int64), and both as Arrow IPC."""
    stem = f"classes-{rows}x{features}"
    x, y, arrow = (work / f"{stem}{end}" for end in ("-x.npy", "-y.npy", ".arrow"))
    if not arrow.exists():
        labels = np.arange(rows) * count // rows
        np.save(y, labels)
        array = np.lib.format.open_memmap(x, "w+", np.float32, (rows, features))
        for start in range(0, rows, CHUNK):
            part = array[start : start + CHUNK]
            part[:] = np.random.default_rng(start).standard_normal(part.shape, np.float32)
            part[:, 0] = labels[start : start + CHUNK]
        array.flush()
        del array, part
        convert(x, arrow, label=str(y))
    return x, y, arrow


def numbered(work: Path, rows: int, row_bytes: int = 1024) -> tuple[Path, Path]:
    """Make a table whose label is the row's number: Arrow IPC file, and Arrow stream as Hugging Face keeps it."""
    arrow, stream = work / f"numbered-{rows}.arrow", work / f"numbered-{rows}-stream.arrow"
    if not stream.exists():
        width = row_bytes // 4 - 1
        schema = pa.schema([("features", pa.list_(pa.float32(), width)), ("label", pa.int32())])
        with Writer(arrow, schema) as file, pa.ipc.new_stream(str(stream), schema) as copy:
            for start in range(0, rows, 10_000):
                label = np.arange(start, min(start + 10_000, rows), dtype=np.int32)
                values = pa.array(np.repeat(label.astype(np.float32), width))
                columns = [pa.FixedSizeListArray.from_arrays(values, width), pa.array(label)]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                file.write(batch)
                for at in range(0, batch.num_rows, 1000):  # the record batches that datasets writes
                    copy.write(batch.slice(at, 1000))
    return arrow, stream


def examples(work: Path, rows: int, features: int, count: int = 10) -> Path:
    """Make a label-sorted TFRecord file of tensorflow.Example messages, with its text index."""
    path = work / f"examples-{rows}x{features}.tfrecord"
    index = path.with_name(path.name + ".idx")
    if not index.exists():
        at, values = 0, np.random.default_rng(0)
        with path.open("wb") as file, index.open("w") as places:
            for row in range(rows):
                label = row * count // rows
                x = _field(1, values.standard_normal(features, np.float32).tobytes())
                lists = {b"x": _field(2, x), b"label": _field(3, _field(1, bytes([label])))}
                entries = [_field(1, _field(1, name) + _field(2, value)) for name, value in lists.items()]
                record = _framed(_field(1, b"".join(entries)))
                file.write(record)
                places.write(f"{at} {len(record)}\n")
                at += len(record)
    return path


def _field(number: int, data: bytes) -> bytes:
    """Write a protobuf field of bytes."""
    size, left = b"", len(data)
    while left > 127:
        size += bytes([left & 127 | 128])
        left >>= 7
    return bytes([number << 3 | 2]) + size + bytes([left]) + data


def _framed(data: bytes) -> bytes:
    """Put the frame of a TFRecord around data."""
    head = struct.pack("<Q", len(data))
    return head + _crc(head) + data + _crc(data)


def _crc(data: bytes) -> bytes:
    crc = _kernel.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
