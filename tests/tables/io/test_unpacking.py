"""Blocks compressed by a codec of Avro."""

import zlib

import pyarrow as pa
import pytest

from corgipile.tables.io.files import File
from corgipile.tables.io.unpacking import open_decompressed

DATA = b"some rows " * 200


def unpacked(path, block):
    path.write_bytes(block)
    return open_decompressed(File(path), 0, len(block), "snappy", 1 << 20).read()


def test_snappy_ends_with_the_checksum_of_the_unpacked_bytes(tmp_path):
    packed, checksum = pa.Codec("snappy").compress(DATA, asbytes=True), zlib.crc32(DATA)
    assert unpacked(tmp_path / "a", packed + checksum.to_bytes(4, "big")) == DATA
    for bit in range(32):
        with pytest.raises(ValueError, match="wrong checksum"):
            unpacked(tmp_path / "a", packed + (checksum ^ 1 << bit).to_bytes(4, "big"))
    other = pa.Codec("snappy").compress(DATA[:-1] + b"x", asbytes=True)
    with pytest.raises(ValueError, match="wrong checksum"):
        unpacked(tmp_path / "a", other + checksum.to_bytes(4, "big"))
