"""Helpers for files that state or unpack to huge sizes."""

import zlib

import corgipile as cp
from corgipile.description import about

__all__ = ["BESIDE", "MEMORY", "deflated", "long", "used"]

MEMORY, BESIDE = 16 << 20, 24 << 20


def long(value):
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def deflated(data):
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush()


def used(table):
    """Use a table like the commands: description, some rows, training."""
    about(table, columns=True)
    cp.Loader(table, batch_size=1, memory=MEMORY).close()
    table.read(0, 1)
    cp.train(table, label=table.schema.names[0], epochs=1, memory=MEMORY)
