"""Writes TFRecord files (frames, CRCs, messages), independently of the package."""

import itertools
import os
import struct

import numpy as np


def shifted(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


TABLE = [shifted(byte) for byte in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data):
    size = struct.pack("<Q", len(data))
    return size + masked(size) + data + masked(data)


def varint(number):
    number &= (1 << 64) - 1
    out = []
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def values_of(kind, values, packed):
    """Write a list of values: kind 1 bytes, 2 floats, 3 integers; numbers packed or single."""
    if kind == 1:
        return b"".join(field(1, value) for value in values)
    parts = [struct.pack("<f", value) if kind == 2 else varint(value) for value in values]
    if packed:
        return field(1, b"".join(parts)) if parts else b""
    return b"".join((b"\x0d" if kind == 2 else b"\x08") + part for part in parts)


def example(features, packed=True):
    """Write an Example of {name: (kind, values)}."""
    entries = [
        field(1, field(1, name.encode()) + field(2, field(kind, values_of(kind, values, packed))))
        for name, (kind, values) in features.items()
    ]
    return field(1, b"".join(entries))


def write(path, records):
    path.write_bytes(b"".join(map(frame, records)))
    return path


TIMES = itertools.count(1)


def fresh(path):
    """Change the time of a rewritten file, even if it was rewritten at once."""
    time = next(TIMES)
    os.utime(path, ns=(time, time))


def text_index(path, records, end=".idx"):
    sizes = np.array([len(record) + 16 for record in records])
    lines = [f"{stop - size} {size}\n" for stop, size in zip(np.cumsum(sizes), sizes, strict=True)]
    path.with_name(path.name + end).write_text("".join(lines))


def numbered(rows):
    """Make Examples with columns of all types, which follow from the row number."""
    return [
        example({"label": (3, [i]), "x": (2, [i + 0.5, -i]), "name": (1, [b"%d" % i]), "ids": (3, range(-i % 4))})
        for i in range(rows)
    ]


def rows_of(numbers):
    return [{"ids": list(range(-i % 4)), "label": i, "name": b"%d" % i, "x": [i + 0.5, -i]} for i in numbers]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())
