"""Selection of a table in a database file, and checks that the file has not changed."""

import os
from collections.abc import Sequence
from pathlib import Path

from corgipile.errors import BadArgument, CorruptFile, MissingColumn, UnknownFormat
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.io.files import PathLike, digest, readable

__all__ = ["Database", "quoted", "select_table"]


class Database:
    """The files of a database: the main file, and the log of its latest writes.

    They are never opened, since closing an SQLite file releases all locks of the process.

    Args:
        path: The file.
        log: The suffix of the log, such as ``"-wal"``.
    """

    def __init__(self, path: PathLike, log: str) -> None:
        self.path = str(Path(path).expanduser().absolute())
        self._log = self.path + log
        self._state = self.state()
        self.identity = digest(Path(self.path).resolve().name, repr(self._state))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the files."""
        return sum(size for size, _ in self._state)

    def state(self) -> tuple[tuple[int, int], ...]:
        """Return sizes and modification times, without those of an empty log."""
        with readable(self.path):
            stats = [Path(self.path).stat()]
        if os.path.exists(self._log) and (log := Path(self._log).stat()).st_size:  # noqa: PTH110 - faster than Path
            stats.append(log)
        return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)

    def check(self) -> None:
        """Raise CorruptFile if the database has changed since it was opened."""
        if self.state() != self._state:
            raise CorruptFile(f"{self.path} has changed since it was opened; open it again")


def select_table(path: str, tables: Sequence[str], table: str | None) -> str:
    """Return the name of the selected table.

    Raises:
        BadArgument: The database has several tables, and none was named.
        MissingColumn: The named table does not exist.
        UnknownFormat: The database has no tables.
    """
    if not tables:
        raise UnknownFormat(f"{path} is a database without tables")
    if table is None and len(tables) > 1:
        raise BadArgument(f"{path} has {len(tables)} tables: {listed(tables)}; select one by table=")
    if table is not None and table not in tables:
        raise MissingTable(f"{path} has no table {table!r}; it has {listed(tables)}{did_you_mean(table, tables)}")
    return tables[0] if table is None else table


class MissingTable(BadArgument, MissingColumn):
    """A database has no table of this name."""


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier.

    Example:
        >>> quoted('a"b')
        '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'
