"""Writer of Arrow IPC as many files, for tables written by many tasks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from corgipile.conversion.writers.form import Form, Settings
from corgipile.tables.formats.arrow.writer import COMPRESSIONS, TABLE, Writer

__all__ = ["FORM"]


class ArrowPart:
    """Writes one Arrow file."""

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
        """Write the rest and close."""
        self._writer.__exit__(None, None, None)


def plan(schema: pa.Schema, settings: Settings) -> Callable[[Path], ArrowPart]:
    """Return the maker of part writers; each column fits."""
    Writer("rows.arrow", schema, settings.record_batch, settings.compression)  # raises errors early
    return partial(ArrowPart, schema, settings)


WANTED = "name a folder, or rows-%05d.arrow"
FORM = Form(TABLE, (".arrow", ".feather", ".ipc"), "{}-%05d.arrow", 512 << 20, WANTED, plan, COMPRESSIONS, grouped=True)
