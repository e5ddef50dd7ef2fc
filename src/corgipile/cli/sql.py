"""``corgipile sql``."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import error_message, fail, printable, terminal_width
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.signals import outcome
from corgipile.errors import BadArgument, MissingExtra
from corgipile.lazy import lazy
from corgipile.sql.answers.caret import around
from corgipile.sql.answers.data import CsvAnswers, JsonAnswers
from corgipile.sql.answers.text import TextAnswers
from corgipile.sql.progress import TrainingBar
from corgipile.sql.runner import Runner, decode_script, open_connection, read_script

if TYPE_CHECKING:
    from corgipile.sql.answers.answers import Answers

shell = lazy("corgipile.sql.shell.shell")  # needs prompt_toolkit
_MAX_ROWS = 40  # shown of a result


@guarded
def command(
    statement: Annotated[str | None, typer.Argument(help="SQL statements; default: -f or stdin.")] = None,
    *,
    file: Annotated[list[str] | None, typer.Option("-f", "--file", help="SQL file; - is stdin.")] = None,
    db: Annotated[str | None, typer.Option(help="DuckDB file; default: in memory.")] = None,
    dsn: Annotated[str | None, typer.Option(help="PostgreSQL server: postgresql://user@host/database.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory for training and for DuckDB: 64MB, 1G.")] = None,
    trust: Annotated[str | None, typer.Option(help="'paths': files may refer to files outside their folder.")] = None,
    rows: Annotated[int, typer.Option(help="Rows shown of a result; 0: all.", min=0)] = _MAX_ROWS,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, all rows.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run SQL that trains and predicts on files, DuckDB and PostgreSQL; without SQL, open a shell."""
    if json and csv:
        raise BadArgument("--json and --csv exclude each other; give one of them")
    if statement is not None and file:
        raise BadArgument("a statement and --file exclude each other; give one of them")
    scripts = _scripts(statement, file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals with few characters
    answers = _answers(rows, csv=csv, json=json, quiet=quiet)
    silent = quiet or json
    tell: Callable[[str], None] = (lambda _: None) if silent else _note
    with _report_errors(answers, json=json), open_connection(db=db, dsn=dsn, memory=memory, trust=trust) as connection:
        runner = Runner(connection, answers, tell, lambda: TrainingBar(quiet=silent), memory)
        if scripts is None:
            _shell(runner)
        for script in scripts or ():
            runner.run(script)
        answers.close()


def _scripts(statement: str | None, files: list[str] | None) -> list[str] | None:
    """Return the scripts to run, or None for an interactive shell."""

    def read(name: str) -> str:
        return decode_script(sys.stdin.buffer.read(), "stdin") if name == "-" else read_script(name)

    if statement is not None:
        return [decode_script(os.fsencode(statement), "the statement")]  # undo the locale's decoding
    if files:
        return [read(name) for name in files]
    return None if sys.stdin.isatty() else [read("-")]


def _answers(rows: int, *, csv: bool, json: bool, quiet: bool) -> "Answers":
    if csv:
        return CsvAnswers(sys.stdout.buffer)
    return JsonAnswers(sys.stdout) if json else TextAnswers(sys.stdout, terminal_width, rows=rows, quiet=quiet)


def _note(text: str) -> None:
    typer.echo(f"corgipile: {printable(text)}", err=True)


@contextmanager
def _report_errors(answers: "Answers", *, json: bool) -> Iterator[None]:
    """Report any error, also of a database, and exit without a traceback."""
    try:
        yield
    except (BrokenPipeError, typer.Exit):
        raise
    except KeyboardInterrupt as stop:
        code, word = outcome(stop)
        raise typer.Exit(_report(answers, "Interrupted", word, code, json=json)) from None
    except Exception as error:  # noqa: BLE001 - databases raise any exception
        raise typer.Exit(_report(answers, type(error).__name__, error_message(error), 2, json=json)) from None


def _report(answers: "Answers", kind: str, message: str, code: int, *, json: bool) -> int:
    if answers.fail(kind, message, code):
        return code
    return fail(message, kind, json=True, code=code) if json else _show_error(message, code)


def _show_error(message: str, code: int = 2) -> int:
    """Show an error on stderr, with source lines cut to the terminal."""
    first, *lines = message.splitlines() or [""]
    typer.echo(f"corgipile: {printable(first)}", err=True)
    for line in around(lines, terminal_width()):
        typer.echo(line, err=True)
    return code


def _shell(runner: Runner) -> None:
    try:
        kind = shell.Shell
    except ImportError as error:
        raise MissingExtra(f"the shell needs {error.name}: pip install 'corgipile[sql]'") from None

    kind(runner, typer.echo, lambda error: _show_error(error_message(error))).run()
