"""Tables of SQLite databases: rows selected by rowid."""

import errno
import os
import sqlite3
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from corgipile.errors import BadSchema, BadValue, CorruptFile, MissingFile, ReadFailed
from corgipile.tables.databases import Database, quoted, select_table
from corgipile.tables.format import Format
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.pieces import check_names, join
from corgipile.tables.library import LibraryTable
from corgipile.tables.table import IntArray

__all__ = ["FORMAT", "MAGIC", "SUFFIXES", "SqliteTable"]

MAGIC, SUFFIXES = b"SQLite format 3\0", (".sqlite", ".sqlite3")
STEP = 64  # rows between stored rowids
RUN = 4096  # rows fetched at a time
SAMPLE = 16, 256  # runs, and rows of each, that determine undeclared types
MAX_VALUE = 16 << 20  # bytes of a value, or of a statement
WAIT = 30.0  # seconds for a lock
MAX_ROWID = (1 << 63) - 1
MAX_PARAMETERS = 500  # rowids of one statement
ADVICE = "each value passes through a Python object; `corgipile convert` writes a file that is read in place"


class SqliteTable(LibraryTable):
    """Reads a table of an SQLite database; reads raise an error if the database changes.

    A column declared INTEGER is int64, REAL float64, TEXT a string, BLOB bytes. Other declarations, such as DATE or
    NUMERIC, and missing ones get the type of sampled values. A value of another type raises an error with its row.

    Args:
        path: The file.
        table: The table; optional if the database has only one.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/a.db"
        >>> with sqlite3.connect(path) as database:
        ...     _ = database.execute("create table t (x real, label integer)")
        ...     _ = database.execute("insert into t values (0.5, 0), (1.5, 1)")
        >>> database.close()
        >>> SqliteTable(path).take([1]).to_pylist()
        [{'x': 1.5, 'label': 1}]
    """

    advice = ADVICE

    def __init__(self, path: PathLike, table: str | None = None) -> None:
        self._database, self._local = Database(path, "-wal"), threading.local()
        self.path, self._requested_table = self._database.path, table
        with self._converted_errors():
            query = "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
            tables = [name.decode() for (name,) in self._fetch(query)]
            self.table_name = select_table(self.path, tables, table)
            self._rowid = self._find_rowid()
            self._firsts, self._first, rows = self._find_rows()
            self._n_rows = rows
            schema = self._find_schema()
        super().__init__(self.path, f"{self._database.identity} {self.table_name!r}", schema, rows)

    def __reduce__(self) -> tuple[type["SqliteTable"], tuple[str, str]]:
        return SqliteTable, (self.path, self.table_name)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the database."""
        return self._database.nbytes

    def _read_run(self, start: int, stop: int, names: list[str]) -> pa.RecordBatch:
        (first, skip), last = self._seek(start), self._last(stop)
        query = f"{self._select(names)} where {self._rowid} between ? and ? order by {self._rowid} limit ? offset ?"
        with self._converted_errors():
            cursor, parts, done = self._execute(query, (first, last, stop - start, skip)), [], start
            while rows := cursor.fetchmany(RUN):
                parts.append(self._batch(rows, names, done))
                done += len(rows)
        if done != stop:
            raise CorruptFile(f"{self.path}: rows {start} to {stop} were requested, but {done - start} were read")
        return join(parts)

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        ids = self._ids(rows)
        parts = []
        with self._converted_errors():
            for at in range(0, len(ids), MAX_PARAMETERS):
                some = ids[at : at + MAX_PARAMETERS]
                marks = ",".join("?" * len(some))
                query = f"{self._select(names)} where {self._rowid} in ({marks}) order by {self._rowid}"
                values = self._execute(query, some).fetchall()
                if len(values) != len(some):
                    raise CorruptFile(f"{self.path}: {len(some)} rows were requested, but {len(values)} were read")
                parts.append(self._batch(values, names, int(rows[at])))
        return join(parts)

    def _ids(self, rows: IntArray) -> list[int]:
        """Return the rowids of rows whose numbers ascend."""
        if self._firsts is None:
            return [self._first + row for row in rows.tolist()]
        result: list[int] = []
        groups = np.split(rows, np.flatnonzero(np.diff(rows // STEP)) + 1)
        query = f"select {self._rowid} from {quoted(self.table_name)} where {self._rowid} between ? and ? order by 1"  # noqa: S608
        with self._converted_errors():
            for group in groups:
                start = int(group[0]) // STEP * STEP
                stop = min(start + STEP, self._n_rows)
                ids = [one for (one,) in self._fetch(query, (self._firsts[start // STEP], self._last(stop)))]
                if len(ids) != stop - start:
                    raise CorruptFile(f"{self.path}: rows {start} to {stop} were requested, but {len(ids)} were read")
                result += [ids[row] for row in (group % STEP).tolist()]
        return result

    def _seek(self, row: int) -> tuple[int, int]:
        """Return a rowid at or before a row, and the number of rows between them."""
        if self._firsts is None:
            return self._first + row, 0
        return self._firsts[row // STEP], row % STEP

    def _last(self, stop: int) -> int:
        """Return the largest rowid that the row before ``stop`` may have."""
        if self._firsts is None:
            return self._first + stop - 1
        after = -(-stop // STEP)
        return self._firsts[after] - 1 if after < len(self._firsts) else MAX_ROWID

    def _select(self, names: Sequence[str]) -> str:
        columns = ", ".join(map(quoted, names)) if names else "null"
        return f"select {columns} from {quoted(self.table_name)}"  # noqa: S608

    def _find_rowid(self) -> str:
        taken = {
            name.decode().lower() for (_, name, *_) in self._fetch(f"pragma table_xinfo({quoted(self.table_name)})")
        }
        word = next((word for word in ("rowid", "oid", "_rowid_") if word not in taken), None)
        try:
            if word is not None:
                self._fetch(f"select {word} from {quoted(self.table_name)} limit 1")  # noqa: S608
                return word
        except sqlite3.OperationalError as error:
            if "no such column" not in str(error):
                raise
        raise BadSchema(
            f"{self.path}: table {self.table_name!r} must have row ids, but is WITHOUT ROWID; copy it by "
            "`create table ... as`"
        )

    def _find_rows(self) -> tuple["array[int] | None", int, int]:
        """Return every 64th rowid (None if rowids have no gaps), the first rowid, and the number of rows."""
        table, rowid = quoted(self.table_name), self._rowid
        [(low, high, rows)] = self._fetch(f"select min({rowid}), max({rowid}), count(*) from {table}")  # noqa: S608
        if not rows or high - low + 1 == rows:
            return None, low or 0, rows
        firsts, count = array("q"), 0
        cursor = self._execute(f"select {rowid} from {table} order by 1")  # noqa: S608
        while some := cursor.fetchmany(RUN):
            firsts.extend(one for (one,) in some[-count % STEP :: STEP])
            count += len(some)
        if count != rows:
            raise CorruptFile(f"{self.path}: table {self.table_name!r} must have {rows} rows as its index, got {count}")
        return firsts, low, count

    def _find_schema(self) -> pa.Schema:
        fields = [
            (name.decode(), declared.decode().upper())
            for (_, name, declared, _, _, _, hidden) in self._fetch(f"pragma table_xinfo({quoted(self.table_name)})")
            if hidden != 1
        ]
        seen = self._sample([name for name, _ in fields]) if any(_declared(kind) is None for _, kind in fields) else {}
        schema = pa.schema([(name, _declared(kind) or _inferred(name, seen[name], self.path)) for name, kind in fields])
        check_names(schema, self.path)
        return schema

    def _sample(self, names: list[str]) -> dict[str, set[type]]:
        """Return the Python types of sampled values of each column."""
        stretches, length = SAMPLE
        starts = sorted({int(at) for at in np.linspace(0, max(0, self._n_rows - length), stretches)})
        seen: dict[str, set[type]] = {name: set() for name in names}
        for start in starts if self._n_rows and names else []:
            first, skip = self._seek(start)
            types = ", ".join(f"typeof({quoted(name)})" for name in names)  # long values are not read
            query = f"select {types} from {quoted(self.table_name)} where {self._rowid} >= ? order by {self._rowid}"  # noqa: S608
            for row in self._fetch(f"{query} limit ? offset ?", (first, length, skip)):
                for name, kind in zip(names, row, strict=True):
                    seen[name].add(STORED[kind])
        return seen

    def _batch(self, rows: list[tuple[Any, ...]], names: list[str], first: int) -> pa.RecordBatch:
        columns = zip(*rows, strict=True) if names else ()
        fields = [self.schema.field(name) for name in names]
        arrays = [self._column(list(values), field, first) for values, field in zip(columns, fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, values: list[Any], field: pa.Field, first: int) -> pa.Array:
        """Return values as a column; only integers convert, to floats."""
        wanted = next(kind for kind, column in KINDS.items() if column == field.type)
        whole = wanted is float
        for at, value in enumerate(values):
            if type(value) is wanted or value is None:
                continue
            if whole and type(value) is int and int(float(value)) == value:
                values[at] = float(value)
                continue
            shown = value.decode("utf-8", "replace") if type(value) is _Text else value
            raise BadValue(
                f"{self.path}, table {self.table_name!r}, column {field.name!r}, about row {first + at}: the value "
                f"must be {field.type}, got {shown!r:.60}"
            )
        if wanted is not _Text:
            return pa.array(values, field.type)
        column = pa.array(values, pa.binary()).view(pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise BadValue(
                f"{self.path}, table {self.table_name!r}: column {field.name!r} must hold UTF-8 text"
            ) from None
        return column

    def _fetch(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._execute(query, values).fetchall()

    def _execute(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection().execute(query, values)

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's connection, opened after any fork; raise CorruptFile if the database has changed."""
        if getattr(self._local, "process", None) != os.getpid():
            before = getattr(self._local, "connection", None)
            self._local.kept = [*getattr(self._local, "kept", []), before]  # a fork must not close its parent's
            self._local.connection = _connect(self._database.path)
            self._local.process = os.getpid()
            self._database.check()
            self._local.version = self._version()
        connection: sqlite3.Connection = self._local.connection
        if self._version() != self._local.version:
            raise CorruptFile(f"{self.path} has changed since it was opened; open it again")
        return connection

    def _version(self) -> int:
        return int(self._local.connection.execute("pragma data_version").fetchone()[0])

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert errors of SQLite to errors of this package."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ReadFailed(errno.EIO, f"{self.path}: {error}{_lock_hint(str(error))}") from None
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            if "too big" in str(error):
                limit = f"a value must have at most {MAX_VALUE} bytes, got a longer one; leave its column out"
                raise BadValue(f"{self.path}, table {self.table_name!r}: {limit}") from None
            raise CorruptFile(f"{self.path}: {error}") from None


class _Text(bytes):
    """Stored text, not yet decoded."""


STORED = {b"null": type(None), b"integer": int, b"real": float, b"text": _Text, b"blob": bytes}
KINDS = {int: pa.int64(), float: pa.float64(), _Text: pa.string(), bytes: pa.binary()}


def _connect(path: str) -> sqlite3.Connection:
    """Open a database read-only; as immutable if its folder is not writable and it has no log."""
    if not Path(path).exists():
        raise MissingFile(f"no file at {path}")
    immutable = not os.access(Path(path).parent, os.W_OK) and not Path(f"{path}-wal").exists()
    uri = f"file:{quote(path)}?mode=ro{'&immutable=1' if immutable else ''}"
    connection = sqlite3.connect(uri, uri=True, timeout=WAIT, check_same_thread=False, isolation_level=None)
    connection.execute("pragma trusted_schema = off")  # the schema must not run functions with side effects
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)  # also of what a generated column computes
    connection.text_factory = _Text
    return connection


def _lock_hint(error: str) -> str:
    if "locked" in error or "busy" in error:
        return f"; another program held its lock for {WAIT:.0f} seconds"
    return "; copy the database, with its -wal file, to another folder" if "unable to open" in error else ""


def _declared(word: str) -> pa.DataType | None:
    """Return the type of a declaration by SQLite's affinity rules, None if values determine it."""
    if "INT" in word:
        return pa.int64()
    if any(one in word for one in ("CHAR", "CLOB", "TEXT")):
        return pa.string()
    if any(one in word for one in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    return pa.binary() if "BLOB" in word else None


def _inferred(name: str, seen: set[type], path: str) -> pa.DataType:
    kinds = seen - {type(None)}
    if kinds == {int, float}:
        return pa.float64()
    if len(kinds) > 1:
        words = ", ".join(sorted(str(KINDS[one]) for one in kinds))
        raise BadSchema(f"{path}: column {name!r} must hold values of one type, got {words}")
    return KINDS[kinds.pop()] if kinds else pa.string()


FORMAT = Format(MAGIC, SUFFIXES, SqliteTable, frozenset({"table"}), local=True)
