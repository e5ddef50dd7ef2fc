"""Tables of DuckDB databases: rows found by their rowid, read as Arrow."""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, CorgiPileError, CorruptFile, ReadFailed
from corgipile.extras import extra
from corgipile.tables.databases import Database, chosen_table, quoted
from corgipile.tables.encoded import Units, unpack, write_plain
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.pieces import check_names, pick, read_pieces
from corgipile.tables.io.spill import Section, Spill, SpillWriter, spill_folder
from corgipile.tables.library import UnitTable
from corgipile.tables.table import IntArray, Table, even_cuts
from corgipile.tables.values import value_type

__all__ = ["SUFFIXES", "DuckDBTable", "is_database"]

SUFFIXES = (".duckdb", ".ddb")
MAGIC, MAGIC_AT = b"DUCK", 8
ROW = "corgipile_row"
GROUP = 122_880  # rows that the library keeps together
MEMORY, COLUMN = 6, 0.5  # MiB that the library may keep, and for each column, of which it keeps a block or two
TOGETHER = 12  # columns that are read at a time
TAKEN = 2 << 20  # bytes of a process for each of those MiB: what is decoded waits beside it
WORTH = 64 << 20  # bytes of a group that is read at once where rows are asked for as they lie
MOST = 1 << 14  # MiB that it may keep where rows are so long that it needs more
_unpacked: Common[Table] = Common(4, lambda _: 1)
ADVICE = "rows are found in groups of 122,880 and decoded; `corgipile convert` writes a file that is read in place"


def is_database(head: bytes) -> bool:
    """Say whether a file that begins so is a database of DuckDB."""
    return head[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC


class DuckDBTable(UnitTable):
    """Reads a table of a DuckDB database, in a state that must not change meanwhile.

    Args:
        path: The file.
        table: The table, with its schema if that is not ``main``; not needed where there is only one.
        spill: Folder for spill files, ``"off"`` for none: rows are then asked for where they lie, a call for a few.
    """

    advice = ADVICE

    def __init__(self, path: PathLike, table: str | None = None, spill: Spill = None) -> None:
        self._database, self._local, self._spill = Database(path, ".wal"), threading.local(), spill
        self._opening, self._room = threading.Lock(), MEMORY + COLUMN * TOGETHER
        self._opened: list[Any] = []
        self.path = self._database.path
        with self._answers():
            there = self._tables()
            self.table_name = chosen_table(self.path, list(there), table)
            self._source = f"db.{there[self.table_name]}"
            schema, self._stored = self._find_schema()
            self._firsts, self._ids, rows = self._find_rows()
        identity = f"{self._database.identity} {self.table_name!r}"
        counts = np.diff(even_cuts(rows, GROUP))
        super().__init__(self.path, identity, schema, counts, spill_folder(spill), f"{self.path} {identity}")

    def __reduce__(self) -> tuple[type["DuckDBTable"], tuple[str, str, Spill]]:
        return DuckDBTable, (self.path, self.table_name, self._spill)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the database."""
        return self._database.nbytes

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        before, self._local.read = getattr(self._local, "read", None), (stop, names)
        if before == (start, names) and self.spill is not None and self._group_bytes(names) <= WORTH:
            return read_pieces(self._starts, start, stop, lambda i, a, b: self._group(i, names).read(a, b, names))
        ends = self._places(np.array([start, stop - 1]))
        rest = f"from {self._source} t where t.rowid between {ends[0]} and {ends[1]}"
        return self._asked(rest, names, stop - start)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Say what groups of rows take; None without a spill file, as rows can be asked for alone."""
        found = None if self.spill is None else super().units(columns)
        return found and found._replace(library=int(TAKEN * (MEMORY + COLUMN * TOGETHER)))

    def cuts(self, rows: int) -> IntArray:
        """Cut at groups of rows; anywhere without a spill file."""
        return even_cuts(len(self), rows) if self.spill is None else super().cuts(rows)

    def _group_bytes(self, names: list[str]) -> float:
        return GROUP * sum(map(self._width, names))

    def _group(self, i: int, names: list[str]) -> Table:
        """Return a group of rows unpacked; the last ones stay so a while."""
        assert self.spill is not None  # noqa: S101 - asked before
        folder = self.spill
        return _unpacked.of(self, (i, *names), lambda: unpack(_Group(self, i), names, folder))

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        ids = self._places(rows)
        if ids[-1] - ids[0] == len(ids) - 1:
            return self._read_run(int(rows[0]), int(rows[-1]) + 1, names)
        rest = (
            f"from {self._source} t join wanted on t.rowid = wanted.{ROW} "
            f"where t.rowid between {ids[0]} and {ids[-1]} order by t.rowid"
        )
        return self._asked(rest, names, len(rows), pa.table({ROW: ids}))

    def _asked(self, rest: str, names: list[str], rows: int, wanted: pa.Table | None = None) -> pa.RecordBatch:
        """Read columns, a few at a time: the library takes memory for each."""
        arrays: list[pa.ChunkedArray] = []
        for some in self._together(names):
            while True:
                try:
                    arrays += self._plain(self._answer(f"select {self._columns(some)} {rest}", wanted), some)
                    break
                except _TooLittleMemory as error:
                    self._take_more(error)
        return self._whole(pa.table(arrays, names=[str(at) for at in range(len(arrays))]), rows, names)

    def _answer(self, query: str, wanted: pa.Table | None) -> pa.Table:
        with self._answers():
            connection = self._connection()
            if wanted is not None:
                connection.register("wanted", wanted)
            return pa.RecordBatchReader.from_stream(connection.sql(query)).read_all()

    def _plain(self, found: pa.Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return columns as the schema has them."""
        kinds = [self._stored.field(name).type for name in names]
        return [_plain(column, kind) for column, kind in zip(found.columns, kinds, strict=False)]

    def _together(self, columns: Sequence[str]) -> list[list[str]]:
        """Group the columns that are read at the same time."""
        names = list(dict.fromkeys(columns))
        return [names[at : at + TOGETHER] for at in range(0, max(1, len(names)), TOGETHER)]

    def _batches(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        return self.stream(names, rows, 0, len(self))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Write all rows, decoded little by little, as sections of a spill file; none of them are asked for again."""
        super().write_plain(columns, out)
        with suppress(_TooLittleMemory), self._answers():  # another thread reads
            self._instance().execute("set memory_limit = '1MiB'")
        self._instance().execute(self._limit())

    def write_rows(self, names: Sequence[str], out: SpillWriter, start: int, stop: int) -> None:
        """Write a run of rows as sections of a spill file."""
        for some in self._together(names):
            batches = self.stream(some, self._batch_rows(some), start, stop)
            write_plain(out, pick(self.schema, some), batches, stop - start)

    def stream(self, names: list[str], rows: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Read a run of rows, so many at a time, in little memory."""
        while start < stop:
            try:
                for batch in self._stream(names, rows, start, stop):
                    start += batch.num_rows
                    yield batch
            except _TooLittleMemory as error:
                self._take_more(error)
            else:
                return

    def _stream(self, names: list[str], rows: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        first, last = self._places(np.array([start, stop - 1]))
        query = f"select {self._columns(names)} from {self._source} t where t.rowid between {first} and {last}"  # noqa: S608 - quoted
        with self._answers():
            self._database.check()
            relation = self._instance().cursor().sql(query)  # a connection of its own: others end what it reads
            for batch in getattr(relation, "to_arrow_reader", relation.fetch_arrow_reader)(rows):
                found = pa.Table.from_batches([batch])
                columns = [pa.concat_arrays(column.chunks) for column in self._plain(found, names)]
                yield pa.RecordBatch.from_arrays(columns, schema=pick(self.schema, names))

    def _take_more(self, error: "_TooLittleMemory") -> None:
        """Let the library keep more, where a few of the rows are more than it may."""
        if self._room >= MOST:
            raise ReadFailed(errno.ENOMEM, f"{self.path}: {error}") from None
        self._room *= 2
        self._instance().execute(self._limit())

    def _limit(self) -> str:
        return f"set memory_limit = '{int(self._room)}MiB'"

    def _columns(self, names: Sequence[str]) -> str:
        return ", ".join(f"t.{quoted(name)}" for name in names) or "null"

    def _places(self, rows: IntArray) -> IntArray:
        """Return the rowids of rows."""
        run = np.searchsorted(self._firsts, rows, side="right") - 1
        return self._ids[run] + rows - self._firsts[run]

    def _tables(self) -> dict[str, str]:
        """Return the tables, and how SQL calls each."""
        query = "select schema_name, table_name from duckdb_tables() where database_name = 'db' order by all"
        rows = pa.RecordBatchReader.from_stream(self._connection().sql(query)).read_all().to_pylist()
        pairs = [(row["schema_name"], row["table_name"]) for row in rows]
        return {
            table if schema == "main" else f"{schema}.{table}": f"{quoted(schema)}.{quoted(table)}"
            for schema, table in pairs
        }

    def _find_schema(self) -> tuple[pa.Schema, pa.Schema]:
        """Return the columns, and as which types the library gives them."""
        stored = pa.RecordBatchReader.from_stream(self._connection().sql(f"from {self._source} limit 0")).schema
        stored = stored.remove_metadata()
        if "rowid" in map(str.lower, stored.names):
            raise BadSchema(
                f"{self.path}: table {self.table_name!r} has a column 'rowid', so that rows are not found by it; "
                "corgipile.open(connection.table(...)) reads it as a stream"
            )
        kinds = [_storage(kind) for kind in stored.types]
        schema = pa.schema(list(zip(stored.names, map(value_type, kinds), strict=True)))
        check_names(schema, self.path)
        return schema, stored

    def _find_rows(self) -> tuple[IntArray, IntArray, int]:
        """Return runs of rows whose rowids follow one another: the first row and rowid of each; and all rows."""
        found = self._connection().sql(f"select min(rowid), max(rowid), count(*) from {self._source}")  # noqa: S608 - quoted
        [(low, high, rows)] = found.fetchall()
        if not rows or high - low + 1 == rows:
            return np.zeros(1, np.int64), np.array([low or 0], np.int64), rows
        firsts, ids, done, last = [], [], 0, -2
        query = f"select rowid as r from {self._source} order by r"  # noqa: S608 - quoted
        for batch in pa.RecordBatchReader.from_stream(self._connection().sql(query)):
            some = np.asarray(batch.column(0))
            fresh = np.flatnonzero(np.diff(some, prepend=last) != 1)
            firsts.append(fresh + done)
            ids.append(some[fresh])
            done, last = done + len(some), int(some[-1]) if len(some) else last
        return np.concatenate(firsts), np.concatenate(ids), done

    def _connection(self) -> Any:
        """Return this thread's own connection, and none that was made before a fork; to the database as it was."""
        if getattr(self._local, "process", None) != os.getpid():
            self._local.kept = getattr(self._local, "connection", None)  # a fork must not close its parent's
            self._local.connection = self._instance().cursor()
            self._local.process = os.getpid()
        self._database.check()
        return self._local.connection

    def _instance(self) -> Any:
        """Return the library's own memory and threads, one for all threads of this process."""
        with self._opening:
            if self._opened[:1] != [os.getpid()]:
                self._opened = [os.getpid(), _connected(self.path), *self._opened]  # a fork keeps its parent's, too
                self._opened[1].execute(self._limit())
            return self._opened[1]

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Turn the errors of DuckDB into ours."""
        duckdb = _library()
        try:
            yield
        except CorgiPileError:
            raise
        except OSError as error:
            raise ReadFailed(error.errno or errno.EIO, f"cannot read {self.path}: {error.strerror or error}") from None
        except (duckdb.Error, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            if "Out of Memory" in reason:
                raise _TooLittleMemory(reason) from None
            if "already attached" in reason:
                way = "corgipile.open(connection.table('name')) reads it where it is open already"
            elif "set lock" in reason:
                way = "another process writes it: it can be read when that has closed it"
            else:
                raise CorruptFile(f"{self.path}: {reason}") from None
            raise ReadFailed(errno.EBUSY, f"{self.path} is in use ({reason}); {way}") from None


class _Group:
    """Some of the rows, which the library keeps together."""

    def __init__(self, table: DuckDBTable, i: int) -> None:
        self._table, self._rows = table, (i * GROUP, min(len(table), (i + 1) * GROUP))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        self._table.write_rows(columns, out, *self._rows)

    def open_plain(self, columns: Sequence[str], sections: Iterator[Section]) -> Table:
        return self._table.open_plain(columns, sections)


class _TooLittleMemory(CorruptFile):
    """More is needed for some rows than what the library was told that it may keep."""


def _library() -> Any:
    return extra("duckdb", "reading DuckDB", "duckdb")


def _connected(path: str) -> Any:
    """Attach a database to one in memory, with few threads and little memory of its own."""
    alone = {f"{word}_known_extensions": False for word in ("autoinstall", "autoload")}
    connection = _library().connect(":memory:", config={"threads": 1, "python_enable_replacements": False, **alone})
    connection.execute("set preserve_insertion_order = true")
    connection.execute(f"attach '{path.replace(chr(39), chr(39) * 2)}' as db (read_only, type duckdb)")
    connection.execute("set enable_external_access = false")  # so that nothing in the database reads other files
    return connection


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return values without dictionaries, views and types of others."""
    chunks = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks]
    wanted = value_type(_storage(kind))
    made = [chunk if chunk.type == wanted else _cast(chunk, wanted) for chunk in chunks]
    return pa.chunked_array(made, wanted)


def _cast(chunk: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        return chunk.dictionary_decode().cast(wanted)
    return chunk.cast(wanted)
