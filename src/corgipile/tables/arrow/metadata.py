"""The metadata of the record batches of an Arrow file: read when needed, those of many batches at a time."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from corgipile.errors import CorruptFile
from corgipile.tables.arrow.flatbuffers import Batch, read_batch
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import File
from corgipile.tables.table import IntArray

TOGETHER, ROOM = 4096, 8 << 20  # batches, and bytes of their metadata, that are read at a time
ROOM_KEPT, ITEM = 4 << 20, 100  # bytes of metadata that are kept, and of each node and buffer in it
_kept: Common[Batch] = Common(ROOM_KEPT, lambda head: ITEM * (len(head.nodes) + len(head.buffers)))


class BatchMetadata:
    """Reads what the metadata of record batches says.

    Args:
        file: The file.
        blocks: Where the batches lie, as the footer says.
        like: int64[batches], for each a batch with the same metadata; None: each has its own.
    """

    def __init__(self, file: File, blocks: npt.NDArray[np.void], like: IntArray | None = None) -> None:
        self._file, self._blocks, self._like = file, blocks, like

    def __getitem__(self, batch: int) -> Batch:
        """Return the metadata of one batch."""
        like = batch if self._like is None else int(self._like[batch])
        return _kept.of(self, like, lambda: next(self._read(np.array([like]))))

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
        blocks = self._blocks[batches]
        data = self._file.gather(blocks["offset"], blocks["metadata"]).tobytes()
        ends = [0, *np.cumsum(blocks["metadata"], dtype=np.int64).tolist()]
        for i, (start, stop), body in zip(batches.tolist(), pairwise(ends), blocks["body"].tolist(), strict=True):
            try:
                yield read_batch(data[start:stop], body)
            except CorruptFile as error:
                raise CorruptFile(f"{self._file.path}: record batch {i}: {error}") from None
