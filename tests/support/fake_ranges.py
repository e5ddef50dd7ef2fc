"""A fake object of a store: its bytes follow from its name, and it logs its fetches."""

import time
import zlib

import numpy as np

from corgipile.errors import CorruptFile


class FakeRanges:
    """An object that logs its fetches in ``calls``, a list of (offsets, lengths)."""

    def __init__(self, size, name="a", etag="1", delay=0.0):
        self.url, self.size, self.etag, self.delay = f"s3://bucket/{name}", size, etag, delay
        seed = zlib.crc32(f"{name} {etag}".encode())
        self.data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        self.calls = []

    @property
    def fetched(self):
        return sum(sum(lengths) for _, lengths in self.calls)

    def fetch(self, offsets, lengths, out, to):
        self.calls.append((offsets.tolist(), lengths.tolist()))
        time.sleep(self.delay)
        for offset, length, at in zip(offsets.tolist(), lengths.tolist(), to.tolist(), strict=True):
            if offset < 0 or offset + length > self.size:
                raise CorruptFile(f"{self.url} ends before byte {offset + length}")
            out[at : at + length] = self.data[offset : offset + length]


def read(ranges, spans):
    """Read (offset, length) pairs; return the bytes of each."""
    offsets = np.array([offset for offset, _ in spans], np.int64)
    lengths = np.array([length for _, length in spans], np.int64)
    ends = np.cumsum(lengths)
    out = np.full(int(ends[-1]) if len(ends) else 0, 171, np.uint8)
    ranges.fetch(offsets, lengths, out, ends - lengths)
    return [out[end - length : end].tobytes() for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def true(fake, spans):
    """Return what `read` must."""
    return [fake.data[offset : offset + length].tobytes() for offset, length in spans]
