"""The metadata of the record batches of an Arrow file: read when needed, those of many batches at a time."""

import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.tables.arrow.flatbuffers import Batch, read_batch
from corgipile.tables.io.files import File
from corgipile.tables.io.pieces import Recent
from corgipile.tables.io.remote import RemoteFile
from corgipile.tables.table import IntArray

TOGETHER, ROOM = 4096, 8 << 20  # batches, and bytes of their metadata, that are read at a time
KEPT = 1024
MOST_ASKED = 1 << 20  # bytes of the metadata of all batches


class BatchMetadata:
    """Reads what the metadata of record batches says.

    Args:
        file: The file.
        blocks: Where the batches lie, as the footer says.
        like: int64[batches], for each a batch with the same metadata; None: each has its own.
    """

    def __init__(self, file: File, blocks: npt.NDArray[np.void], like: IntArray | None = None) -> None:
        self._file, self._blocks, self._like = file, blocks, like
        self._kept: Recent[Batch] = Recent(KEPT)
        # Of a file in a store all is asked for at once, and kept: most of it is the same for all batches.
        little = isinstance(file, RemoteFile) and int(blocks["metadata"].sum()) <= MOST_ASKED
        self._raw: dict[int, bytes] | None = {} if little else None
        self._asking = threading.Lock()

    def __reduce__(self) -> tuple[type["BatchMetadata"], tuple[File, npt.NDArray[np.void], IntArray | None]]:
        return BatchMetadata, (self._file, self._blocks, self._like)

    def __getitem__(self, batch: int) -> Batch:
        """Return the metadata of one batch."""
        like = batch if self._like is None else int(self._like[batch])
        return self._kept.get(like, lambda: next(self._read(np.array([like]))))

    def many(self, batches: IntArray) -> Iterator[Batch]:
        """Give the metadata of batches, several thousands asked for at once, fewer of tables with many columns."""
        widest = int(self._blocks["metadata"][batches].max(initial=1))
        step = min(max(ROOM // widest, 1), TOGETHER)
        for at in range(0, len(batches), step):
            part = batches[at : at + step]
            wanted, back = np.unique(part if self._like is None else self._like[part], return_inverse=True)
            found = list(self._read(wanted))
            yield from (found[i] for i in back.tolist())

    def _read(self, batches: IntArray) -> Iterator[Batch]:
        sizes = self._blocks["body"][batches].tolist()
        for i, data, body in zip(batches.tolist(), self._bytes(batches), sizes, strict=True):
            try:
                yield read_batch(data, body)
            except CorruptFile as error:
                raise CorruptFile(f"{self._file.path}: record batch {i}: {error}") from None

    def _bytes(self, batches: IntArray) -> Iterator[bytes]:
        if self._raw is None:
            return self._asked(batches)
        with self._asking:
            if not self._raw:
                like = np.arange(len(self._blocks)) if self._like is None else np.unique(self._like)
                same: dict[bytes, bytes] = {}
                found = zip(like.tolist(), self._asked(like), strict=True)
                self._raw = {i: same.setdefault(data, data) for i, data in found}
        return map(self._raw.__getitem__, batches.tolist())

    def _asked(self, batches: IntArray) -> Iterator[bytes]:
        blocks = self._blocks[batches]
        data = self._file.gather(blocks["offset"], blocks["metadata"]).tobytes()
        ends = [0, *np.cumsum(blocks["metadata"], dtype=np.int64).tolist()]
        return (data[start:stop] for start, stop in pairwise(ends))
