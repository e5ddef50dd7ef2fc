"""Stream of rows from a source to a file."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa


class Stream(NamedTuple):
    """A sequence of record batches.

    Attributes:
        schema: Schema of each batch.
        batches: The batches; can be read once.
        rows: Number of rows, None if unknown before the end.
        paths: Files read.
        labelled: Whether a column may be chosen as the label.
        heeded: The options among ``header`` and ``zero_based`` that were used.
        first: Number of the first row in the source, for messages.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None = None
    paths: tuple[str, ...] = ()
    labelled: bool = True
    heeded: frozenset[str] = frozenset()
    first: int = 0
