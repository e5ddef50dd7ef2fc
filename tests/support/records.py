"""Writes a TFRecord file for benchmarks and budget tests."""

import struct
from pathlib import Path

import numpy as np

from corgipile import _kernel


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
