"""``%corgipile`` and ``%%corgipile`` in notebooks."""

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
from corgipile.sql.progress import Shown
from corgipile.sql.runner import Runner, opened
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
    """Runs SQL of a cell or a line; a connection stays until another is asked for."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._names: dict[str, Any] = shell.user_ns
        self._connection: Connection | None = None
        self._db: str | None = None  # the path of its file
        self._memory: str | None = None

    @line_cell_magic
    def corgipile(self, line: str, cell: str = "") -> Frame | None:
        """Run SQL; the last answer is that of the cell, or is given a name.

        %%corgipile [--db FILE | --dsn URL] [--memory SIZE] [NAME <<]
        SELECT … TRAIN BY …

        Places such as :rate are given the values of the notebook's variables; data frames are tables by their names.
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
            parse_bytes(memory, "memory")  # before a connection is closed for another
        if self._connection is not None and options.keys() <= {"memory"}:
            self._memory = memory or self._memory
            return self._connection
        db = None if "dsn" in options or "db" not in options else str(Path(options["db"]).resolve())
        if self._connection is not None and db is not None and db == self._db:
            self._connection.close()  # first: a file is open with one set of settings at a time
            self._connection = None
        connection = opened(**options)
        if self._connection is not None:
            self._connection.close()
        self._connection, self._db, self._memory = connection, db, memory
        return connection

    def _answers(self, connection: "Connection", sql: str) -> list[Frame | None]:
        answers = FrameAnswers()
        runner = Runner(connection, answers, _note, lambda: Shown(quiet=False), self._memory)
        lend = getattr(connection.engine, "lend", None)  # DuckDB reads what Python holds
        if lend is not None:
            for name in self._frames(sql, connection):
                lend(name, self._names[name])
        runner.run(sql, _Variables(self._names))
        return answers.frames

    def _frames(self, sql: str, connection: "Connection") -> set[str]:
        """Return the names behind FROM and JOIN that are no tables but variables that hold rows."""
        follows = {after.text for before, after in pairwise(tokenize(sql)) if before.says("FROM", "JOIN")}
        frames = {name for name in follows if hasattr(self._names.get(name), "__arrow_c_stream__")}
        return frames - set(connection.tables()) if frames else frames


class _Variables(Mapping[str, Any]):
    """The variables of a notebook as values of a statement."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return self._names[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if not name.startswith("_"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _parsed(line: str) -> tuple[dict[str, str], str | None, str]:
    """Return options, the name for the answer, and the SQL of a line."""
    options = {}
    while found := _OPTION.match(line):
        if found[1] not in _KNOWN:
            raise UsageError(f"there is no option --{found[1]}; {_USAGE} is right")
        options[found[1]] = found[2].strip("\"'")
        line = line[found.end() :]
    found = _TARGET.match(line)
    return options, found[1] if found else None, line[found.end() :] if found else line


def _note(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - where notebooks show it
