"""Tables of SQLite databases: rows found by their rowid."""

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
from corgipile.tables.databases import Database, chosen_table, quoted
from corgipile.tables.io.files import PathLike
from corgipile.tables.io.pieces import check_names, join
from corgipile.tables.library import LibraryTable
from corgipile.tables.table import IntArray

__all__ = ["MAGIC", "SUFFIXES", "SqliteTable"]

MAGIC, SUFFIXES = b"SQLite format 3\0", (".sqlite", ".sqlite3")
STEP = 64  # rows from one rowid that is kept to the next
RUN = 4096  # rows fetched at a time
SURVEY = 16, 256  # stretches, and rows of each, that types are told by
MIN_LIMIT, MAX_VALUE = 1 << 20, 1_000_000_000  # bytes of a value or a statement: at least, and SQLite's own limit
WAIT = 30.0  # seconds for a lock
MAX_ROWID = (1 << 63) - 1
AT_ONCE = 500  # rows asked for by one statement
ADVICE = "each value is a Python object on its way; `corgipile convert` writes a file that is read in place"


class SqliteTable(LibraryTable):
    """Reads a table of an SQLite database, which others may go on writing: what changes meanwhile is an error.

    A column declared INTEGER is int64, REAL float64, TEXT a string, BLOB bytes; of others, such as DATE or NUMERIC, or
    where nothing is declared, some of the values tell. A value of another type is an error that names its row.

    Args:
        path: The file.
        table: The table; not needed where there is only one.

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
        self.path, self._asked = self._database.path, table
        with self._answers():
            query = "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
            there = [name.decode() for (name,) in self._rows_of(query)]
            self.table_name = chosen_table(self.path, there, table)
            self._rowid = self._find_rowid()
            self._firsts, self._first, rows = self._find_rows()
            self._survey_rows = rows
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
        with self._answers():
            cursor, parts, done = self._execute(query, (first, last, stop - start, skip)), [], start
            while rows := cursor.fetchmany(RUN):
                parts.append(self._batch(rows, names, done))
                done += len(rows)
        if done != stop:
            raise CorruptFile(f"{self.path}: rows {start} to {stop} are asked for; there are {done - start}")
        return join(parts)

    def _some(self, rows: IntArray, names: list[str]) -> pa.RecordBatch:
        ids = self._ids(rows)
        parts = []
        with self._answers():
            for at in range(0, len(ids), AT_ONCE):
                some = ids[at : at + AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"{self._select(names)} where {self._rowid} in ({marks}) order by {self._rowid}"
                found = self._execute(query, some).fetchall()
                if len(found) != len(some):
                    raise CorruptFile(f"{self.path}: {len(some)} rows are asked for; there are {len(found)}")
                parts.append(self._batch(found, names, int(rows[at])))
        return join(parts)

    def _ids(self, rows: IntArray) -> list[int]:
        """Return the rowids of rows whose numbers ascend."""
        if self._firsts is None:
            return [self._first + row for row in rows.tolist()]
        found: list[int] = []
        groups = np.split(rows, np.flatnonzero(np.diff(rows // STEP)) + 1)
        query = f"select {self._rowid} from {quoted(self.table_name)} where {self._rowid} between ? and ? order by 1"  # noqa: S608
        with self._answers():
            for group in groups:
                start = int(group[0]) // STEP * STEP
                stop = min(start + STEP, self._survey_rows)
                ids = [one for (one,) in self._rows_of(query, (self._firsts[start // STEP], self._last(stop)))]
                if len(ids) != stop - start:
                    raise CorruptFile(f"{self.path}: rows {start} to {stop} are asked for; there are {len(ids)}")
                found += [ids[row] for row in (group % STEP).tolist()]
        return found

    def _seek(self, row: int) -> tuple[int, int]:
        """Return a rowid at or before a row, and how many rows lie between."""
        if self._firsts is None:
            return self._first + row, 0
        return self._firsts[row // STEP], row % STEP

    def _last(self, stop: int) -> int:
        """Return the largest rowid that a row before this one may have."""
        if self._firsts is None:
            return self._first + stop - 1
        after = -(-stop // STEP)
        return self._firsts[after] - 1 if after < len(self._firsts) else MAX_ROWID

    def _select(self, names: Sequence[str]) -> str:
        columns = ", ".join(map(quoted, names)) if names else "null"
        return f"select {columns} from {quoted(self.table_name)}"  # noqa: S608

    def _find_rowid(self) -> str:
        taken = {
            name.decode().lower() for (_, name, *_) in self._rows_of(f"pragma table_xinfo({quoted(self.table_name)})")
        }
        word = next((word for word in ("rowid", "oid", "_rowid_") if word not in taken), None)
        try:
            if word is not None:
                self._rows_of(f"select {word} from {quoted(self.table_name)} limit 1")  # noqa: S608
                return word
        except sqlite3.OperationalError as error:
            if "no such column" not in str(error):
                raise
        raise BadSchema(
            f"{self.path}: table {self.table_name!r} is one WITHOUT ROWID, by which rows are found; a copy of it, "
            "made by `create table ... as`, has one"
        )

    def _find_rows(self) -> tuple["array[int] | None", int, int]:
        """Return every 64th rowid, None where none is missing; the first; and how many there are."""
        table, rowid = quoted(self.table_name), self._rowid
        [(low, high, rows)] = self._rows_of(f"select min({rowid}), max({rowid}), count(*) from {table}")  # noqa: S608
        if not rows or high - low + 1 == rows:
            return None, low or 0, rows
        firsts, count = array("q"), 0
        cursor = self._execute(f"select {rowid} from {table} order by 1")  # noqa: S608
        while some := cursor.fetchmany(RUN):
            firsts.extend(one for (one,) in some[-count % STEP :: STEP])
            count += len(some)
        if count != rows:
            raise CorruptFile(f"{self.path}: table {self.table_name!r} has {rows} rows by an index, {count} by itself")
        return firsts, low, count

    def _find_schema(self) -> pa.Schema:
        fields = [
            (name.decode(), declared.decode().upper())
            for (_, name, declared, _, _, _, hidden) in self._rows_of(f"pragma table_xinfo({quoted(self.table_name)})")
            if hidden != 1
        ]
        seen = (
            self._surveyed([name for name, _ in fields]) if any(_declared(kind) is None for _, kind in fields) else {}
        )
        schema = pa.schema([(name, _declared(kind) or _told(name, seen[name], self.path)) for name, kind in fields])
        check_names(schema, self.path)
        return schema

    def _surveyed(self, names: list[str]) -> dict[str, set[type]]:
        """Return the types of some of the values."""
        stretches, length = SURVEY
        starts = sorted({int(at) for at in np.linspace(0, max(0, self._survey_rows - length), stretches)})
        seen: dict[str, set[type]] = {name: set() for name in names}
        for start in starts if self._survey_rows and names else []:
            first, skip = self._seek(start)
            query = f"{self._select(names)} where {self._rowid} >= ? order by {self._rowid} limit ? offset ?"
            for row in self._rows_of(query, (first, length, skip)):
                for name, value in zip(names, row, strict=True):
                    seen[name].add(type(value))
        return seen

    def _batch(self, rows: list[tuple[Any, ...]], names: list[str], first: int) -> pa.RecordBatch:
        columns = zip(*rows, strict=True) if names else ()
        fields = [self.schema.field(name) for name in names]
        arrays = [self._column(list(values), field, first) for values, field in zip(columns, fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, values: list[Any], field: pa.Field, first: int) -> pa.Array:
        """Return values as a column; none is turned into another type but whole numbers into floats."""
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
                f"{self.path}, table {self.table_name!r}, column {field.name!r}, about row {first + at}: {shown!r:.60} "
                f"is there, but the column is {field.type}"
            )
        if wanted is not _Text:
            return pa.array(values, field.type)
        column = pa.array(values, pa.binary()).view(pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise BadValue(
                f"{self.path}, table {self.table_name!r}: column {field.name!r} has text that is no UTF-8"
            ) from None
        return column

    def _rows_of(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._execute(query, values).fetchall()

    def _execute(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection().execute(query, values)

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's own connection, and none that was made before a fork; to the database as it was."""
        if getattr(self._local, "process", None) != os.getpid():
            before = getattr(self._local, "connection", None)
            self._local.kept = [*getattr(self._local, "kept", []), before]  # a fork must not close its parent's
            self._local.connection = _connected(self._database.path)
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
    def _answers(self) -> Iterator[None]:
        """Turn the errors of SQLite into ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ReadFailed(errno.EIO, f"{self.path}: {error}{_why(str(error))}") from None
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise CorruptFile(f"{self.path}: {error}") from None


class _Text(bytes):
    """Text as it is stored."""


KINDS = {int: pa.int64(), float: pa.float64(), _Text: pa.string(), bytes: pa.binary()}


def _connected(path: str) -> sqlite3.Connection:
    """Open a database to read; where neither it nor its folder can be written, as one that nobody changes."""
    if not Path(path).exists():
        raise MissingFile(f"no file at {path}")
    alone = not os.access(Path(path).parent, os.W_OK) and not Path(f"{path}-wal").exists()
    uri = f"file:{quote(path)}?mode=ro{'&immutable=1' if alone else ''}"
    connection = sqlite3.connect(uri, uri=True, timeout=WAIT, check_same_thread=False, isolation_level=None)
    connection.execute("pragma trusted_schema = off")  # functions with effects do not run in the schema
    stored = sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())
    # No stored value is longer than the file; a generated column could compute any number of bytes.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(MAX_VALUE, max(MIN_LIMIT, stored)))
    connection.text_factory = _Text
    return connection


def _why(error: str) -> str:
    if "locked" in error or "busy" in error:
        return f"; another program writes it, and did not stop for {WAIT:.0f} seconds"
    return "; a copy of the database, with its -wal file, can be opened elsewhere" if "unable to open" in error else ""


def _declared(word: str) -> pa.DataType | None:
    """Return the type that a declaration gives by SQLite's rules of affinity; None where values are to tell."""
    if "INT" in word:
        return pa.int64()
    if any(one in word for one in ("CHAR", "CLOB", "TEXT")):
        return pa.string()
    if any(one in word for one in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    return pa.binary() if "BLOB" in word else None


def _told(name: str, seen: set[type], path: str) -> pa.DataType:
    found = seen - {type(None)}
    if found == {int, float}:
        return pa.float64()
    if len(found) > 1:
        words = ", ".join(sorted(str(KINDS[one]) for one in found))
        raise BadSchema(f"{path}: column {name!r} holds {words}; values of one type are right")
    return KINDS[found.pop()] if found else pa.string()
