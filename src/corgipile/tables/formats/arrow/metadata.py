"""Lazily read and cached metadata of an Arrow file's record batches."""

import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.tables.formats.arrow.flatbuffers import Batch, read_batch
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import File
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.table import IntArray

MAX_BATCHES_PER_READ, MAX_BYTES_PER_READ = 4096, 8 << 20  # batches, and bytes of their metadata, per read
MAX_CACHED_BYTES, BYTES_PER_ITEM = 8 << 20, 16  # bytes of cached metadata; estimate per node or buffer
_cached: Common[Batch] = Common(MAX_CACHED_BYTES, lambda head: BYTES_PER_ITEM * (len(head.nodes) + len(head.buffers)))
MAX_REMOTE_BYTES = 1 << 20  # bytes of a remote file's metadata that are fetched at once


class BatchMetadata:
    """Reads and caches the metadata of record batches.

    Args:
        file: The file.
        blocks: Positions of the batches, from the footer.
        like: int64[batches], for each batch one with equal metadata; None if unknown.
    """

    is_source = False

    def __init__(self, file: File, blocks: npt.NDArray[np.void], like: IntArray | None = None) -> None:
        self._file, self._blocks, self._like = file, blocks, like
        # A remote file's metadata is fetched at once and cached; most batches have equal metadata.
        eager = isinstance(file, RemoteFile) and int(blocks["metadata"].sum()) <= MAX_REMOTE_BYTES
        self._raw: dict[int, bytes] | None = {} if eager else None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["BatchMetadata"], tuple[File, npt.NDArray[np.void], IntArray | None]]:
        return BatchMetadata, (self._file, self._blocks, self._like)

    def __getitem__(self, batch: int) -> Batch:
        """Return the metadata of one batch."""
        like = batch if self._like is None else int(self._like[batch])
        return _cached.of(self, like, lambda: next(self._read(np.array([like]))))

    def many(self, batches: IntArray) -> Iterator[Batch]:
        """Yield the metadata of batches, reading up to 4096 batches or 8 MB at a time; a single one is cached."""
        if len(batches) == 1:
            yield self[int(batches[0])]
            return
        widest = int(self._blocks["metadata"][batches].max(initial=1))
        step = min(max(MAX_BYTES_PER_READ // widest, 1), MAX_BATCHES_PER_READ)
        for at in range(0, len(batches), step):
            part = batches[at : at + step]
            wanted, back = np.unique(part if self._like is None else self._like[part], return_inverse=True)
            found = list(self._read(wanted))
            yield from (found[i] for i in back.tolist())

    def _read(self, batches: IntArray) -> Iterator[Batch]:
        lengths = self._blocks["body"][batches].tolist()
        for i, data, body in zip(batches.tolist(), self._bytes(batches), lengths, strict=True):
            try:
                yield read_batch(data, body)
            except CorruptFile as error:
                raise CorruptFile(f"{self._file.path}: record batch {i}: {error}") from None

    def _bytes(self, batches: IntArray) -> Iterator[bytes]:
        if self._raw is None:
            return self._fetch(batches)
        with self._lock:
            if not self._raw:
                like = np.arange(len(self._blocks)) if self._like is None else np.unique(self._like)
                same: dict[bytes, bytes] = {}
                found = zip(like.tolist(), self._fetch(like), strict=True)
                self._raw = {i: same.setdefault(data, data) for i, data in found}
        return map(self._raw.__getitem__, batches.tolist())

    def _fetch(self, batches: IntArray) -> Iterator[bytes]:
        blocks = self._blocks[batches]
        data = self._file.gather(blocks["offset"], blocks["metadata"]).tobytes()
        ends = [0, *np.cumsum(blocks["metadata"], dtype=np.int64).tolist()]
        return (data[start:stop] for start, stop in pairwise(ends))
