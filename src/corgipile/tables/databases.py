"""What tables of databases in a file share: which table is meant, and that the file is the one that was opened."""

import os
from collections.abc import Sequence
from pathlib import Path

from corgipile.errors import BadArgument, CorruptFile, MissingColumn, UnknownFormat
from corgipile.suggestions import did_you_mean, listed
from corgipile.tables.io.files import PathLike, digest, readable

__all__ = ["Database", "chosen_table", "quoted"]


class Database:
    """The files of a database: its own, and the log beside it that holds what was written last.

    They are looked at but not opened: whoever opens and closes a file of SQLite lets go of all locks of its process.

    Args:
        path: The file.
        log: What the name of the log ends in, such as ``"-wal"``.
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
        """Return sizes and times of change, those of a log that holds nothing left out."""
        with readable(self.path):
            found = [Path(self.path).stat()]
        if os.path.exists(self._log) and (log := Path(self._log).stat()).st_size:  # noqa: PTH110 - of a string
            found.append(log)
        return tuple((one.st_size, one.st_mtime_ns) for one in found)

    def check(self) -> None:
        """Raise CorruptFile if the database is not as it was."""
        if self.state() != self._state:
            raise CorruptFile(f"{self.path} has changed since it was opened; open it again")


def chosen_table(path: str, there: Sequence[str], table: str | None) -> str:
    """Return the table that is meant.

    Raises:
        BadArgument: There are several, and none was named.
        MissingColumn: There is none of that name.
        UnknownFormat: There are no tables.
    """
    if not there:
        raise UnknownFormat(f"{path} is a database without tables")
    if table is None and len(there) > 1:
        raise BadArgument(f"{path} has {len(there)} tables: {listed(there)}; table= names one")
    if table is not None and table not in there:
        raise MissingTable(f"{path} has no table {table!r}; it has {listed(there)}{did_you_mean(table, there)}")
    return there[0] if table is None else table


class MissingTable(BadArgument, MissingColumn):
    """A database has no table of this name."""


def quoted(name: str) -> str:
    """Write a name as SQL does.

    Example:
        >>> quoted('a"b')
        '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'
