"""Files that FROM names: those of formats that DuckDB does not read are lent to it as streams of Arrow."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from corgipile.sql.engines.duckdb.binding import Bound, literal
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.statements import Source
from corgipile.tables import open as open_table
from corgipile.tables.table import Table

__all__ = ["Text", "text_of"]

PACKED = (".gz", ".zst")
KNOWN = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")  # to DuckDB
PART = 1 << 16  # rows


class Text(NamedTuple):
    """A SELECT as DuckDB takes it: the whole, what it chooses, and what follows."""

    sql: str
    items: str
    rest: str


class _Stream:
    """Rows of a table as a stream of Arrow, which begins anew whenever it is asked for."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, wanted: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._table.schema, self._parts())
        return reader.__arrow_c_stream__(wanted)

    def _parts(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self._table), PART):
            yield self._table.read(start, min(start + PART, len(self._table)))


def text_of(session: Session, source: Source, bound: Bound) -> Text:
    """Write a SELECT; a file in it that DuckDB could not read becomes rows that are lent to it."""
    found = Text(bound.text(source.sql), bound.text(source.items), bound.text(source.rest))
    if source.file is None or _known(source.file):
        return found
    name = session.lend(_Stream(open_table(source.file)))
    rest = found.rest.replace(literal(source.file), name, 1)
    head = found.sql.removesuffix(found.rest)
    return Text(head + rest, found.items, rest) if head != found.sql else found


def _known(file: str) -> bool:
    path = file.lower().partition("?")[0]
    for packed in PACKED:
        path = path.removesuffix(packed)
    return path.endswith(KNOWN)
