"""``corgipile sql``."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corgipile.cli.console import command as guarded
from corgipile.cli.console import fail, printable, terminal_width, told
from corgipile.cli.flags import Json, Quiet
from corgipile.cli.signals import outcome

if TYPE_CHECKING:
    from corgipile.sql.answers.answers import Answers
    from corgipile.sql.connection import Connection
    from corgipile.sql.runner import Runner

_SHOWN = 40  # rows of an answer


@guarded
def command(
    statement: Annotated[str | None, typer.Argument(help="SQL, also several statements; else -f, or stdin.")] = None,
    *,
    file: Annotated[list[str] | None, typer.Option("-f", "--file", help="File of SQL; - is stdin.")] = None,
    db: Annotated[str | None, typer.Option(help="File of DuckDB; in memory by default.")] = None,
    dsn: Annotated[str | None, typer.Option(help="PostgreSQL server: postgresql://user@host/database.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory for training, and for DuckDB: 64MB, 1G.")] = None,
    trust: Annotated[str | None, typer.Option(help="'paths': files may refer to others outside their folder.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of an answer that are shown; 0: all.", min=0)] = _SHOWN,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, all rows.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run SQL that trains and predicts, on files, DuckDB and PostgreSQL; a shell where there is none to run."""
    from corgipile.errors import BadArgument  # noqa: PLC0415

    if json and csv:
        raise BadArgument("--json and --csv are given; one of them is right")
    if statement is not None and file:
        raise BadArgument("a statement and --file are given; one of them is right")
    scripts = _scripts(statement, file)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of few characters shows the others so
    answers = _answers(rows, csv=csv, json=json, quiet=quiet)
    silent = quiet or json
    with _failing(answers, json=json), _opened(db, dsn, memory, trust) as connection:
        runner = _runner(connection, answers, memory, quiet=silent)
        if scripts is None:
            _shell(runner)
        for script in scripts or ():
            runner.run(script)
        answers.close()


def _opened(db: str | None, dsn: str | None, memory: str | None, trust: Any) -> "Connection":
    from corgipile.sql.runner import opened  # noqa: PLC0415

    return opened(db=db, dsn=dsn, memory=memory, trust=trust)


def _scripts(statement: str | None, files: list[str] | None) -> list[str] | None:
    """Return what is to be run, or None where somebody sits at a terminal to type it."""
    from corgipile.sql.runner import decoded, script_of  # noqa: PLC0415

    def read(name: str) -> str:
        return decoded(sys.stdin.buffer.read(), "stdin") if name == "-" else script_of(name)

    if statement is not None:
        return [decoded(os.fsencode(statement), "the statement")]  # in whatever the locale takes words for
    if files:
        return [read(name) for name in files]
    return None if sys.stdin.isatty() else [read("-")]


def _answers(rows: int, *, csv: bool, json: bool, quiet: bool) -> "Answers":
    from corgipile.sql.answers.data import CsvAnswers, JsonAnswers  # noqa: PLC0415
    from corgipile.sql.answers.text import TextAnswers  # noqa: PLC0415

    if csv:
        return CsvAnswers(sys.stdout.buffer)
    return JsonAnswers(sys.stdout) if json else TextAnswers(sys.stdout, terminal_width, rows=rows, quiet=quiet)


def _runner(connection: "Connection", answers: "Answers", memory: str | None, *, quiet: bool) -> "Runner":
    from corgipile.sql.progress import Shown  # noqa: PLC0415
    from corgipile.sql.runner import Runner  # noqa: PLC0415

    return Runner(connection, answers, _nothing if quiet else _note, lambda: Shown(quiet=quiet), memory)


def _nothing(_: str) -> None:
    pass


def _note(text: str) -> None:
    typer.echo(f"corgipile: {printable(text)}", err=True)


@contextmanager
def _failing(answers: "Answers", *, json: bool) -> Iterator[None]:
    """End with what there is to be said of an error, of a database too: never in a traceback."""
    try:
        yield
    except (BrokenPipeError, typer.Exit):
        raise
    except KeyboardInterrupt as stop:
        code, word = outcome(stop)
        raise typer.Exit(_failed(answers, "Interrupted", word, code, json=json)) from None
    except Exception as error:  # noqa: BLE001 - as above
        raise typer.Exit(_failed(answers, type(error).__name__, told(error), 2, json=json)) from None


def _failed(answers: "Answers", kind: str, message: str, code: int, *, json: bool) -> int:
    if answers.fail(kind, message, code):
        return code
    return fail(message, kind, json=True, code=code) if json else _shown(message, code)


def _shown(message: str, code: int = 2) -> int:
    """Tell an error on stderr, the place of which it shows in lines of its own, as wide as the terminal."""
    from corgipile.sql.answers.caret import around  # noqa: PLC0415

    first, *lines = message.splitlines() or [""]
    typer.echo(f"corgipile: {printable(first)}", err=True)
    for line in around(lines, terminal_width()):
        typer.echo(line, err=True)
    return code


def _shell(runner: "Runner") -> None:
    from corgipile.errors import MissingExtra  # noqa: PLC0415

    try:
        from corgipile.sql.shell.shell import Shell  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtra(f"the shell needs {error.name}: pip install 'corgipile[sql]'") from None

    Shell(runner, typer.echo, lambda error: _shown(told(error))).run()
