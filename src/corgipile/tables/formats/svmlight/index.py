"""The stored index of an SVMlight text: starts and labels of rows."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from corgipile.tables.formats.svmlight.text import Summary, scan
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import Numbers
from corgipile.tables.io.index_cache import open_index as open_stored_index
from corgipile.tables.spans import array_of, flat
from corgipile.tables.table import Table

NUMBERS = ("largest", "zero_line", "zero_column")
SCHEMA = pa.schema([("start", pa.int64()), ("label", pa.float64())])


def open_index(file: File) -> tuple[Table, Summary]:
    """Return the index and summary of a text; build them if they are missing or the text has changed."""

    def entries(numbers: Numbers) -> Iterator[pa.RecordBatch]:
        summary = Summary()
        for starts, labels in scan(file, summary):
            yield pa.record_batch([array_of(starts), array_of(labels)], schema=SCHEMA)
        numbers.update(zip(NUMBERS, (summary.largest, *(summary.zero or (0, 0))), strict=True))

    index, numbers = open_stored_index(file, SCHEMA, NUMBERS, entries)
    zero = (numbers["zero_line"], numbers["zero_column"]) if numbers["zero_line"] else None
    return index, Summary(numbers["rows"], numbers["largest"], zero)


def row_bytes_of(index: Table, start: int, stop: int, size: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the starts of rows in the text, then the end of the last."""
    ends_text = stop == len(index)
    starts = flat(index.read(start, stop if ends_text else stop + 1, ["start"]).column(0))
    return np.append(starts, size) if ends_text else starts
