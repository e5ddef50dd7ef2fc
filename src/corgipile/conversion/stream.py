"""Rows on their way from a source to a file."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa


class Stream(NamedTuple):
    """Record batches, one after another.

    Attributes:
        schema: Schema of each batch.
        batches: The rows; can be read once.
        rows: Rows in all, None if unknown before the end.
        paths: Files read.
        labelled: Whether the label is still to be found among the columns.
        heeded: Which of ``header`` and ``zero_based`` the source was read by.
        first: Number of the first row in the source, for messages.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None = None
    paths: tuple[str, ...] = ()
    labelled: bool = True
    heeded: frozenset[str] = frozenset()
    first: int = 0
