"""Tables of DuckDB databases: rows selected by rowid and read as Arrow."""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, CorgiPileError, CorruptFile, ReadFailed
from corgipile.extras import extra
from corgipile.tables.databases import Database, quoted, select_table
from corgipile.tables.encoded import Part, Units, unpack, write_plain
from corgipile.tables.format import Format
from corgipile.tables.io.common import Common
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.pieces import check_names, pick, read_pieces
from corgipile.tables.io.spill import Spill, SpillWriter, spill_folder
from corgipile.tables.library import UnitTable
from corgipile.tables.row_bytes import fixed_row_bytes
from corgipile.tables.table import IntArray, Table, even_cuts
from corgipile.tables.values import value_type

__all__ = ["FORMAT", "SUFFIXES", "DuckDBTable", "is_database"]

SUFFIXES = (".duckdb", ".ddb")
MAGIC, MAGIC_AT = b"DUCK", 8
ROW = "corgipile_row"
GROUP = 122_880  # rows of a row group of DuckDB
BASE_MIB, COLUMN_MIB = 6, 0.5  # memory limit of the library: a base, and more for each column
MAX_COLUMNS = 12  # columns read at a time
BYTES_PER_MIB = 2 << 20  # bytes of the process for each MiB of the limit, decoded rows included
MAX_GROUP_BYTES = 64 << 20  # bytes of a row group that is unpacked whole for sequential reads
MAX_MIB = 1 << 14  # memory limit of the library for very long rows
VECTOR, BLOCK = 2048, 1 << 18  # rows that the library decodes at once; bytes of a stored block
BATCH_BYTES = 8 << 20  # bytes of a decoded vector from which batches are limited by its longest text
MAX_RATIO, LONG_TEXTS = 32, 4  # plausible decoded bytes of a stored byte; texts of maximum length in a plausible vector
LENGTHS = """
    select column_name, row_group_id, sum(8 * count * (segment_type <> 'VALIDITY')::int +
        coalesce(stats['total_string_length']::hugeint, 0))::double,
        coalesce(max(stats['max_string_length']::bigint), 1), sum(1 + len(additional_block_ids))::bigint,
        bool_or(column_path like '%,%' and segment_type <> 'VALIDITY')
    from pragma_storage_info({}) group by all order by all
"""
_unpacked: Common[Table] = Common(4, lambda _: 1)
ADVICE = "rows are decoded in groups of 122,880; `corgipile convert` writes a file that is read in place"


def is_database(head: bytes) -> bool:
    """Return whether a file with these first bytes is a DuckDB database."""
    return head[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC


class DuckDBTable(UnitTable):
    """Reads a table of a DuckDB database, which must not change while it is open.

    Args:
        path: The file.
        table: The table, with its schema if that is not ``main``; optional if the database has only one.
        spill: Folder for spill files, ``"off"`` for none: few rows are then fetched by each query.
    """

    advice = ADVICE

    def __init__(self, path: PathLike, table: str | None = None, spill: Spill = None) -> None:
        self._database, self._local, self._spill = Database(path, ".wal"), threading.local(), spill
        self._instance_lock, self._limit_mib = threading.Lock(), BASE_MIB + COLUMN_MIB * MAX_COLUMNS
        self._instances: list[Any] = []
        self.path = self._database.path
        with self._converted_errors():
            tables = self._tables()
            self.table_name = select_table(self.path, list(tables), table)
            self._source = f"db.{tables[self.table_name]}"
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
        if before == (start, names) and self.spill is not None and self._group_bytes(names) <= MAX_GROUP_BYTES:
            return read_pieces(self._starts, start, stop, lambda i, a, b: self._group(i, names).read(a, b, names))
        ends = self._rowids(np.array([start, stop - 1]))
        rest = f"from {self._source} t where t.rowid between {ends[0]} and {ends[1]}"
        return self._query_columns(rest, names, stop - start)

    def units(self, columns: Sequence[str]) -> Units | None:
        """Return the row groups as units; None without spill files, as rows can then be fetched alone."""
        found = None if self.spill is None else super().units(columns)
        known = (self._lengths[name] for name in columns if name in self._lengths)
        vectors = (lengths.vector + 2 * lengths.longest for lengths in known)
        return found and found._replace(
            library=int(BYTES_PER_MIB * (BASE_MIB + COLUMN_MIB * MAX_COLUMNS)), dictionary=max(vectors, default=0)
        )

    @cached_property
    def _lengths(self) -> dict[str, "_Lengths"]:
        """Return the lengths of columns; none if widths are fixed, or the library is older than 2.0."""
        found: dict[str, _Lengths] = {}
        if not all(fixed_row_bytes(pa.schema([field])) for field in self.schema):
            with suppress(CorruptFile), self._converted_errors():
                groups = self._connection().sql(LENGTHS.format(_literal(self._source))).fetchall()
                for name, group, *sizes, nested in groups:
                    rows = min(GROUP, len(self) - GROUP * group)
                    found[name] = found.get(name, _Lengths()).add_group(rows, *sizes, nested=nested)
        return found

    def _estimate_width(self, name: str) -> float:
        known = self._lengths.get(name)
        return super()._estimate_width(name) if known is None else known.total / max(1, len(self))

    def _batch_rows(self, names: list[str]) -> int:
        rows = super()._batch_rows(names)
        for known in (self._lengths[name] for name in names if name in self._lengths):
            if known.vector > BATCH_BYTES:
                rows = min(rows, max(1, BATCH_BYTES // known.longest))
        return rows

    def cuts(self, rows: int) -> IntArray:
        """Cut at row groups; without spill files, every ``rows`` rows."""
        return even_cuts(len(self), rows) if self.spill is None else super().cuts(rows)

    def _group_bytes(self, names: list[str]) -> float:
        return GROUP * sum(map(self._width, names))

    def _group(self, i: int, names: list[str]) -> Table:
        """Return an unpacked row group; recent ones are cached."""
        assert self.spill is not None  # noqa: S101 - checked by the caller
        folder, rows = self.spill, (i * GROUP, min(len(self), (i + 1) * GROUP))
        part = Part(lambda columns, out: self.write_rows(columns, out, *rows), self.open_plain)
        return _unpacked.of(self, (i, *names), lambda: unpack(part, names, folder))

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        ids = self._rowids(rows)
        if ids[-1] - ids[0] == len(ids) - 1:
            return self._read_run(int(rows[0]), int(rows[-1]) + 1, names)
        rest = (
            f"from {self._source} t join wanted on t.rowid = wanted.{ROW} "
            f"where t.rowid between {ids[0]} and {ids[-1]} order by t.rowid"
        )
        return self._query_columns(rest, names, len(rows), pa.table({ROW: ids}))

    def _query_columns(self, rest: str, names: list[str], rows: int, wanted: pa.Table | None = None) -> pa.RecordBatch:
        """Read a few columns at a time, since the library takes memory for each."""
        arrays: list[pa.ChunkedArray] = []
        for some in self._together(names):
            while True:
                try:
                    arrays += self._plain(self._query(f"select {self._columns(some)} {rest}", wanted), some)
                    break
                except _MemoryLimitExceeded as error:
                    self._raise_limit(error)
        return self._whole(pa.table(arrays, names=[str(at) for at in range(len(arrays))]), rows, names)

    def _query(self, query: str, wanted: pa.Table | None) -> pa.Table:
        with self._converted_errors():
            connection = self._connection()
            if wanted is not None:
                connection.register("wanted", wanted)
            return pa.RecordBatchReader.from_stream(connection.sql(query)).read_all()

    def _plain(self, found: pa.Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return columns with the types of the schema."""
        kinds = [self._stored.field(name).type for name in names]
        return [_plain(column, kind) for column, kind in zip(found.columns, kinds, strict=False)]

    def _together(self, columns: Sequence[str]) -> list[list[str]]:
        """Group the columns that are read together."""
        names = list(dict.fromkeys(columns))
        return [names[at : at + MAX_COLUMNS] for at in range(0, max(1, len(names)), MAX_COLUMNS)]

    def _batches(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        return self.stream(names, rows, 0, len(self))

    def write_plain(self, columns: Sequence[str], out: SpillWriter) -> None:
        """Decode all rows in small batches into sections of a spill file, then shrink the library's cache."""
        super().write_plain(columns, out)
        with suppress(_MemoryLimitExceeded), self._converted_errors():  # another thread reads
            self._instance().execute("set memory_limit = '1MiB'")
        self._instance().execute(self._limit_statement())

    def write_rows(self, names: Sequence[str], out: SpillWriter, start: int, stop: int) -> None:
        """Write a run of rows as sections of a spill file."""
        for some in self._together(names):
            batches = self.stream(some, self._batch_rows(some), start, stop)
            write_plain(out, pick(self.schema, some), batches, stop - start)

    def stream(self, names: list[str], rows: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield a run of rows in batches of ``rows`` rows, in little memory."""
        while start < stop:
            try:
                for batch in self._stream(names, rows, start, stop):
                    start += batch.num_rows
                    yield batch
            except _MemoryLimitExceeded as error:
                self._raise_limit(error)
            else:
                return

    def _stream(self, names: list[str], rows: int, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        first, last = self._rowids(np.array([start, stop - 1]))
        query = f"select {self._columns(names)} from {self._source} t where t.rowid between {first} and {last}"  # noqa: S608 - quoted
        with self._converted_errors():
            self._database.check()
            relation = self._instance().cursor().sql(query)  # a separate connection: another query would end this one
            for batch in getattr(relation, "to_arrow_reader", relation.fetch_arrow_reader)(rows):
                table = pa.Table.from_batches([batch])
                columns = [pa.concat_arrays(column.chunks) for column in self._plain(table, names)]
                yield pa.RecordBatch.from_arrays(columns, schema=pick(self.schema, names))

    def _raise_limit(self, error: "_MemoryLimitExceeded") -> None:
        """Double the memory limit of the library, since a few rows exceed it."""
        if self._limit_mib >= MAX_MIB:
            raise ReadFailed(errno.ENOMEM, f"{self.path}: {error}") from None
        self._limit_mib *= 2
        self._instance().execute(self._limit_statement())

    def _limit_statement(self) -> str:
        return f"set memory_limit = '{int(self._limit_mib)}MiB'"

    def _columns(self, names: Sequence[str]) -> str:
        return ", ".join(f"t.{quoted(name)}" for name in names) or "null"

    def _rowids(self, rows: IntArray) -> IntArray:
        """Return the rowids of rows."""
        run = np.searchsorted(self._firsts, rows, side="right") - 1
        return self._ids[run] + rows - self._firsts[run]

    def _tables(self) -> dict[str, str]:
        """Return the tables and the quoted SQL name of each."""
        query = "select schema_name, table_name from duckdb_tables() where database_name = 'db' order by all"
        rows = pa.RecordBatchReader.from_stream(self._connection().sql(query)).read_all().to_pylist()
        pairs = [(row["schema_name"], row["table_name"]) for row in rows]
        return {
            table if schema == "main" else f"{schema}.{table}": f"{quoted(schema)}.{quoted(table)}"
            for schema, table in pairs
        }

    def _find_schema(self) -> tuple[pa.Schema, pa.Schema]:
        """Return the schema, and the schema as the library returns it."""
        stored = pa.RecordBatchReader.from_stream(self._connection().sql(f"from {self._source} limit 0")).schema
        stored = stored.remove_metadata()
        if "rowid" in map(str.lower, stored.names):
            raise BadSchema(
                f"{self.path}: table {self.table_name!r} must not have a column 'rowid', which hides the row ids; "
                "read it as a stream by corgipile.open(connection.table(...))"
            )
        kinds = [_storage(kind) for kind in stored.types]
        schema = pa.schema(list(zip(stored.names, map(value_type, kinds), strict=True)))
        check_names(schema, self.path)
        return schema, stored

    def _find_rows(self) -> tuple[IntArray, IntArray, int]:
        """Return the first row and first rowid of each run of consecutive rowids, and the number of rows."""
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
        """Return this thread's connection, opened after any fork; raise CorruptFile if the database has changed."""
        if getattr(self._local, "process", None) != os.getpid():
            self._local.kept = getattr(self._local, "connection", None)  # a fork must not close its parent's
            self._local.connection = self._instance().cursor()
            self._local.process = os.getpid()
        self._database.check()
        return self._local.connection

    def _instance(self) -> Any:
        """Return the database instance that all threads of this process share."""
        with self._instance_lock:
            if self._instances[:1] != [os.getpid()]:
                # A forked process must not close its parent's instance.
                self._instances = [os.getpid(), _connect(self.path), *self._instances]
                self._instances[1].execute(self._limit_statement())
            return self._instances[1]

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert errors of DuckDB to errors of this package."""
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
                raise _MemoryLimitExceeded(reason) from None
            if "already attached" in reason:
                way = "read it through the open connection: corgipile.open(connection.table('name'))"
            elif "set lock" in reason:
                way = "another process writes it; wait until that has closed it"
            else:
                raise CorruptFile(f"{self.path}: {reason}") from None
            raise ReadFailed(errno.EBUSY, f"{self.path} is in use ({reason}); {way}") from None


class _MemoryLimitExceeded(CorruptFile):
    """The memory limit of the library is too small for some rows."""


class _Lengths(NamedTuple):
    """Decoded bytes of a column, from statistics of its segments.

    Attributes:
        total: Bytes of all rows.
        longest: Bytes of the longest text; of all rows if they are nested and few.
        vector: Bytes of the rows that the library decodes at once: at most, or likely for plausible text.
    """

    total: float = 0
    longest: int = 1
    vector: int = 0

    def add_group(self, rows: int, total: float, longest: int, blocks: int, *, nested: bool) -> "_Lengths":
        """Return the lengths with a row group added that is stored in ``blocks`` blocks."""
        likely = total * min(1, VECTOR / max(1, rows)) + LONG_TEXTS * longest
        most = total if rows <= VECTOR or not nested else likely
        if not nested:
            most = min(most, VECTOR * longest)
        elif rows <= VECTOR:
            longest = int(total)
        vector = most if total > MAX_RATIO * BLOCK * blocks else min(likely, most)
        return _Lengths(self.total + total, max(self.longest, longest), max(self.vector, int(vector)))


def _library() -> Any:
    return extra("duckdb", "reading DuckDB", "duckdb")


def _connect(path: str) -> Any:
    """Attach a database to an in-memory instance with one thread and little memory."""
    offline = {f"{word}_known_extensions": False for word in ("autoinstall", "autoload")}
    connection = _library().connect(":memory:", config={"threads": 1, "python_enable_replacements": False, **offline})
    connection.execute("set preserve_insertion_order = true")
    connection.execute(f"attach {_literal(path)} as db (read_only, type duckdb)")
    connection.execute("set enable_external_access = false")  # the database must not read other files
    return connection


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return values without dictionaries, views and extension types."""
    chunks = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks]
    wanted = value_type(_storage(kind))
    made = [chunk if chunk.type == wanted else _cast(chunk, wanted) for chunk in chunks]
    return pa.chunked_array(made, wanted)


def _cast(chunk: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        return chunk.dictionary_decode().cast(wanted)
    return chunk.cast(wanted)


FORMAT = Format(b"", SUFFIXES, DuckDBTable, frozenset({"spill", "table"}), knows=is_database, local=True)
