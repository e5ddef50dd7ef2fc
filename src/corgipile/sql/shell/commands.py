"""Backslash commands of the shell."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

import pyarrow as pa

from corgipile.errors import BadArgument, WouldOverwrite
from corgipile.outputs import writing
from corgipile.sql.answers.answers import Answers
from corgipile.sql.answers.data import CsvAnswers, JsonAnswers
from corgipile.sql.answers.text import TextAnswers
from corgipile.sql.engines.engine import Result
from corgipile.sql.runner import Runner, read_script
from corgipile.sql.shell.words import Known, table_name
from corgipile.sql.statements import Fragment, Query, ShowModels
from corgipile.suggestions import did_you_mean

__all__ = ["Commands"]


class _Shell(Protocol):
    runner: Runner
    known: Known
    timing: bool
    done: bool

    def say(self, text: str) -> None: ...


class Command(NamedTuple):
    """A shell command: its syntax, a description, and the function that runs it with its argument."""

    usage: str
    about: str
    run: Callable[[str], None]


class Commands:
    """The shell's commands by name."""

    def __init__(self, shell: _Shell) -> None:
        self._shell, self._screen = shell, shell.runner.answers
        self._file: TextIO | None = None
        self.table = {
            "\\d": Command("\\d [TABLE]", "list tables, or the columns of a table or 'file'", self._describe),
            "\\models": Command("\\models", "list stored models", self._models),
            "\\timing": Command("\\timing", "switch the time of each statement on or off", self._timing),
            "\\o": Command(
                "\\o [FILE]", "write results to a new file (.csv, .json, else tables), or here again", self._output
            ),
            "\\i": Command("\\i FILE", "run the statements of a file", self._include),
            "\\?": Command("\\?", "show this list", self._help),
            "\\q": Command("\\q", "leave (or Ctrl-D)", self._quit),
        }

    def run(self, line: str) -> None:
        """Run a command; raise BadArgument if it is unknown."""
        name, _, argument = line.strip().rstrip(";").partition(" ")
        if name not in self.table:
            raise BadArgument(f"there is no command {name}{did_you_mean(name, self.table)}; \\? lists them")
        self.table[name].run(argument.strip())

    def close(self) -> None:
        """Close the output file, if any."""
        if self._file is not None:
            with writing(self._file.name), self._file:
                self._shell.runner.answers.close()
            self._file, self._shell.runner.answers = None, self._screen

    def _describe(self, name: str) -> None:
        tables = self._shell.known.tables
        if not name:
            rows = {"table": list(tables), "columns": [", ".join(columns) for columns in tables.values()]}
            self._show(pa.table(rows, pa.schema([("table", pa.string()), ("columns", pa.string())])))
            return
        if name in tables:
            name = table_name(name)
        engine = self._shell.runner.connection.engine
        none = Query(sql=Fragment((f"SELECT * FROM {name} LIMIT 0",)))  # noqa: S608 - the user's own SQL
        self._shell.runner.answer(lambda: _columns(engine.query(none, ())))

    def _models(self, _: str) -> None:
        engine = self._shell.runner.connection.engine
        self._shell.runner.answer(lambda: engine.show(ShowModels()))

    def _timing(self, _: str) -> None:
        self._shell.timing = not self._shell.timing
        self._shell.say(f"timing is {'on' if self._shell.timing else 'off'}")

    def _output(self, name: str) -> None:
        if not name:
            self.close()
            return
        goal = Path(name).expanduser()
        if goal.exists():
            raise WouldOverwrite(f"{name} already exists; give \\o the name of a new file")
        with writing(goal):
            file = goal.open("x", encoding="utf-8", newline="\n")
        self.close()
        self._file, self._shell.runner.answers = file, _writer(file, goal.suffix)

    def _include(self, name: str) -> None:
        if not name:
            raise BadArgument("\\i needs the name of a script file")
        self._shell.runner.run(read_script(name))

    def _help(self, _: str) -> None:
        left = max(len(command.usage) for command in self.table.values())
        for command in self.table.values():
            self._shell.say(f"{command.usage:<{left}}  {command.about}")
        self._shell.say("End a statement with a semicolon. Ctrl-C stops it or clears the input; Tab completes.")

    def _quit(self, _: str) -> None:
        self._shell.done = True

    def _show(self, table: pa.Table) -> None:
        self._shell.runner.answer(lambda: Result(table.schema, iter(table.to_batches())))


def _writer(file: TextIO, suffix: str) -> Answers:
    if suffix == ".csv":
        return CsvAnswers(file.buffer)
    return JsonAnswers(file) if suffix == ".json" else TextAnswers(file, lambda: 0)


def _columns(result: Result) -> Result:
    schema = result.schema or pa.schema([])
    table = pa.table({"column": schema.names, "type": [str(kind) for kind in schema.types]})
    return Result(table.schema, iter(table.to_batches()))
