"""Unfetched rows of a result, buffered when their connection runs another statement."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Self

import pyarrow as pa

from corgipile.tables.io.spill import IN_MEMORY, SpillFile, SpillWriter, spill_folder

__all__ = ["PendingRows"]


class PendingRows(Iterator[pa.RecordBatch]):
    """The unfetched rows of a result; `park` buffers them in memory or, if large, in a spill file.

    The context ``translated`` converts the library's errors for each batch; ``close`` releases the connection.
    """

    def __init__(
        self,
        schema: pa.Schema,
        parts: Iterator[pa.RecordBatch],
        translated: Callable[[], AbstractContextManager[None]],
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self.schema = schema
        self._parts, self._translated, self._close = parts, translated, close

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            with self._translated():
                return next(self._parts)
        except BaseException:
            self.close()
            raise

    def park(self) -> None:
        """Buffer the remaining rows."""
        buffered, size = list[pa.RecordBatch](), 0
        for part in self:
            buffered.append(part)
            size += part.nbytes
            if size > IN_MEMORY:
                self._parts = _spilled(self.schema, itertools.chain(buffered, self))
                return
        self._parts = iter(buffered)

    def close(self) -> None:
        """Release the connection."""
        self._parts = iter(())
        self._close()


def _spilled(schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    folder = spill_folder(None)
    if folder is None:
        return iter(list(parts))
    with SpillWriter(folder) as out:
        with out.section(), pa.ipc.new_stream(out, schema) as stream:
            for part in parts:
                stream.write_batch(part)
        file = out.finish()
    return _of_file(file)


def _of_file(file: SpillFile) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(file.path) as opened, pa.ipc.open_stream(opened) as stream:
        yield from stream
