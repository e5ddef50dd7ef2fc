"""Stream of rows from a source to a file."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa


class Stream(NamedTuple):
    """A sequence of record batches, which can be read once; ``rows`` is None if unknown before the end.

    A column may become the label if ``labelled``; ``heeded`` are the options among ``header`` and ``zero_based`` that
    were used. ``first`` is the number of the first row in the source, for messages.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    rows: int | None = None
    paths: tuple[str, ...] = ()
    labelled: bool = True
    heeded: frozenset[str] = frozenset()
    first: int = 0
