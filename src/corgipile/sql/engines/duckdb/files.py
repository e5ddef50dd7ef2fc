"""Files that FROM names: those of formats that DuckDB does not read are laid out once, and lent to it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from corgipile import tables
from corgipile.errors import CorgiPileError
from corgipile.sql.engines.duckdb.binding import Bound, literal
from corgipile.sql.engines.duckdb.session import Session
from corgipile.sql.statements import Source
from corgipile.stores.urls import is_url
from corgipile.tables.in_memory.streams import SpilledTable
from corgipile.tables.io.spill import IN_MEMORY, SpillWriter, spill_folder
from corgipile.tables.memory import MemoryTable

if TYPE_CHECKING:
    from corgipile.tables.table import Table

__all__ = ["Text", "lendable", "text_of"]

PACKED = (".gz", ".zst")
TEXT = (".csv", ".tsv")
KNOWN = (".parquet", ".json", ".jsonl", ".ndjson")  # to DuckDB, as to us
PART = 1 << 16  # rows


class Text(NamedTuple):
    """A SELECT as DuckDB takes it: the whole, what it chooses, and what follows."""

    sql: str
    items: str
    rest: str


class _Stream:
    """Rows as a stream of Arrow, which begins anew whenever it is asked for.

    No Python runs while DuckDB reads it: its threads would wait for one another, each for what the other holds.
    """

    def __init__(self, begin: Callable[[], pa.NativeFile]) -> None:
        self._begin = begin

    def __arrow_c_stream__(self, wanted: Any = None) -> Any:
        return pa.ipc.open_stream(self._begin()).__arrow_c_stream__(wanted)


def lendable(table: "Table") -> Any:
    """Return rows as DuckDB can read them: as they lie in memory or a spill file, or else laid out there."""
    if isinstance(table, MemoryTable):
        return table.rows
    if isinstance(table, SpilledTable):
        return _Stream(table.stream)
    return _laid_out(table)


def _laid_out(table: "Table") -> _Stream:
    """Return rows as they lie in memory, or in a spill file if they are many."""
    folder = spill_folder(None)
    if table.nbytes <= IN_MEMORY or folder is None:
        sink = pa.BufferOutputStream()
        _write(table, sink)
        buffer = sink.getvalue()
        return _Stream(lambda: pa.BufferReader(buffer))
    with SpillWriter(folder) as out:
        with out.section():
            _write(table, out)
        file = out.finish()
    return _Stream(lambda: pa.OSFile(file.path))


def _write(table: "Table", sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as stream:
        for start in range(0, len(table), PART):
            stream.write_batch(table.read(start, min(start + PART, len(table))))


def text_of(session: Session, source: Source, bound: Bound) -> Text:
    """Write a SELECT; a file that DuckDB could not read, or not reach by its URL, becomes rows that are lent to it.

    Of a CSV file a column of text stays text: DuckDB would make true and false of yes and no, which are labels where
    the file itself is learnt from.
    """
    found = Text(bound.text(source.sql), bound.text(source.items), bound.text(source.rest))
    if source.file is None:
        return found
    if is_url(source.file) and not _reads_urls(session):
        name = session.lend(_laid_out(tables.open(source.file)))
    elif _ends(source.file, TEXT):
        name = _as_text(session, source.file)
    elif _ends(source.file, KNOWN):
        return found
    else:
        name = session.lend(_laid_out(tables.open(source.file)))
    rest = found.rest.replace(literal(source.file), name, 1)
    head = found.sql.removesuffix(found.rest)
    return Text(head + rest, found.items, rest) if head != found.sql else found


def _reads_urls(session: Session) -> bool:
    """Say whether DuckDB has what reads objects elsewhere; it is none of its parts, and would be fetched first."""
    return bool(session.rows("SELECT 1 FROM duckdb_extensions() WHERE extension_name = 'httpfs' AND loaded"))


def _as_text(session: Session, file: str) -> str:
    """Return what SQL calls a CSV file, whose columns of text are none of another type."""
    theirs = session.schema(f"SELECT * FROM {literal(file)}")
    try:
        ours = tables.open(file).schema
    except CorgiPileError:  # which DuckDB reads all the same
        return literal(file)
    if theirs.names != ours.names:
        return literal(file)
    texts = [
        one.name for one in ours if pa.types.is_string(one.type) and not pa.types.is_string(theirs.field(one.name).type)
    ]
    kinds = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in texts)
    return f"read_csv({literal(file)}, types = {{{kinds}}})" if texts else literal(file)


def _ends(file: str, suffixes: tuple[str, ...]) -> bool:
    path = file.lower().partition("?")[0]
    for packed in PACKED:
        path = path.removesuffix(packed)
    return path.endswith(suffixes)
