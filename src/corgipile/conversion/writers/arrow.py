"""Writes Arrow IPC as many files: those of a table that many tasks write."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from corgipile.conversion.writers.form import Form, Settings
from corgipile.tables.arrow.writer import COMPRESSIONS, TABLE, Writer

__all__ = ["FORM"]


class ArrowPart:
    """Writes one file.

    Args:
        schema: Schema of the rows.
        settings: Sizes and codec.
        path: The file.
    """

    def __init__(self, schema: pa.Schema, settings: Settings, path: Path) -> None:
        self._limit, self._bytes = settings.limit, 0
        self._writer = Writer(path, schema, settings.record_batch, settings.compression).__enter__()

    def write(self, batch: pa.RecordBatch, first: int) -> int:
        """Add rows, or none if the file is full."""
        if self._limit is not None and self._bytes >= self._limit:
            return 0
        self._writer.write(batch)
        self._bytes += batch.nbytes
        return int(batch.num_rows)

    def close(self) -> None:
        """Write what is left."""
        self._writer.__exit__(None, None, None)


def plan(schema: pa.Schema, settings: Settings) -> Callable[[Path], ArrowPart]:
    """Return what makes the writer of a part: there is a place for every column."""
    Writer("rows.arrow", schema, settings.record_batch, settings.compression)  # what is wrong is said now
    return partial(ArrowPart, schema, settings)


FORM = Form(
    TABLE,
    (".arrow", ".feather", ".ipc"),
    "{}-%05d.arrow",
    512 << 20,
    "the name of a folder, or rows-%05d.arrow, is wanted",
    plan,
    COMPRESSIONS,
    grouped=True,
)
