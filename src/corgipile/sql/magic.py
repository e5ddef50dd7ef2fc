"""The notebook magics ``%corgipile`` and ``%%corgipile``."""

import re
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from corgipile.errors import CorgiPileError
from corgipile.sizes import parse_bytes
from corgipile.sql.answers.frame import Frame, FrameAnswers
from corgipile.sql.progress import TrainingBar
from corgipile.sql.runner import Runner, open_connection
from corgipile.sql.tokens import tokenize

if TYPE_CHECKING:
    from corgipile.sql.connection import Connection

__all__ = ["CorgiPileMagics"]

_OPTION = re.compile(r"\s*--(\w+)(?:=|\s+)(\"[^\"]*\"|'[^']*'|\S+)")
_TARGET = re.compile(r"\s*([^\W\d]\w*)\s*<<")
_KNOWN = ("db", "dsn", "memory")
_USAGE = "%%corgipile [--db FILE | --dsn URL] [--memory SIZE] [NAME <<] SQL"


@magics_class
class CorgiPileMagics(Magics):
    """Runs the SQL of a cell or line; the connection stays open until another is requested."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._names: dict[str, Any] = shell.user_ns
        self._connection: Connection | None = None
        self._db: str | None = None  # the path of its file
        self._memory: str | None = None

    @line_cell_magic
    def corgipile(self, line: str, cell: str = "") -> Frame | None:
        """Run SQL; the last result is the cell's value, or is assigned to NAME.

        %%corgipile [--db FILE | --dsn URL] [--memory SIZE] [NAME <<]
        SELECT … TRAIN BY …

        Parameters such as :rate take the values of the notebook's variables; data frames are tables by their names.
        """
        options, target, sql = _parsed(line)
        try:
            frames = self._answers(self._connected(options), f"{sql}\n{cell}")
        except (CorgiPileError, OSError) as error:
            raise UsageError(str(error)) from None
        *others, last = frames or [None]
        for frame in others:
            if frame is not None:
                display(frame)  # type: ignore[no-untyped-call]
        if target is None:
            return last
        self._names[target] = last
        return None

    def _connected(self, options: dict[str, str]) -> "Connection":
        memory = options.get("memory")
        if memory is not None:
            parse_bytes(memory, "memory")  # checked before a connection is closed
        if self._connection is not None and options.keys() <= {"memory"}:
            self._memory = memory or self._memory
            return self._connection
        db = None if "dsn" in options or "db" not in options else str(Path(options["db"]).resolve())
        if self._connection is not None and db is not None and db == self._db:
            self._connection.close()  # first, since an open file cannot take other settings
            self._connection = None
        connection = open_connection(**options)
        if self._connection is not None:
            self._connection.close()
        self._connection, self._db, self._memory = connection, db, memory
        return connection

    def _answers(self, connection: "Connection", sql: str) -> list[Frame | None]:
        answers = FrameAnswers()
        runner = Runner(connection, answers, _note, lambda: TrainingBar(quiet=False), self._memory)
        lend = getattr(connection.engine, "lend", None)  # DuckDB reads Python's tables
        if lend is not None:
            for name in self._frames(sql, connection):
                lend(name, self._names[name])
        runner.run(sql, _Variables(self._names))
        return answers.frames

    def _frames(self, sql: str, connection: "Connection") -> set[str]:
        """Return the names after FROM and JOIN that are variables with rows, not tables."""
        follows = {after.text for before, after in pairwise(tokenize(sql)) if before.matches("FROM", "JOIN")}
        frames = {name for name in follows if hasattr(self._names.get(name), "__arrow_c_stream__")}
        return frames - set(connection.tables()) if frames else frames


class _Variables(Mapping[str, Any]):
    """The notebook's variables as parameter values."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return self._names[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if not name.startswith("_"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _parsed(line: str) -> tuple[dict[str, str], str | None, str]:
    """Return the options, the name for the result and the SQL of a line."""
    options = {}
    while match := _OPTION.match(line):
        if match[1] not in _KNOWN:
            raise UsageError(f"there is no option --{match[1]}; usage: {_USAGE}")
        options[match[1]] = match[2].strip("\"'")
        line = line[match.end() :]
    match = _TARGET.match(line)
    return options, match[1] if match else None, line[match.end() :] if match else line


def _note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - notebooks show stderr
