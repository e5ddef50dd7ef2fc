"""Shared output of subcommands: one-line errors, tables and JSON."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import typer

from corgipile.cli.signals import outcome
from corgipile.errors import CorgiPileError

Command = TypeVar("Command", bound=Callable[..., None])

_MAX_MESSAGE = 2000  # characters
_DEFAULT_WIDTH = 80  # columns without a terminal


def command(function: Command) -> Command:
    """Report a subcommand's errors in one line on stderr, or as JSON, with an exit code; never as a traceback."""

    @functools.wraps(function)
    def guarded(*values: Any, **named: Any) -> None:
        json = bool(named.get("json"))
        try:
            with _show_warnings():
                function(*values, **named)
        except BrokenPipeError:
            # The reader of our output has closed it.
            discard_output()
            raise typer.Exit(0) from None
        except KeyboardInterrupt as stop:
            code, word = outcome(stop)
            raise typer.Exit(fail(word, "Interrupted", json=json, code=code)) from None
        except (CorgiPileError, OSError, MemoryError) as error:
            raise typer.Exit(fail(error_message(error), type(error).__name__, json=json, code=2)) from None

    return guarded  # type: ignore[return-value]


@contextlib.contextmanager
def _show_warnings() -> Iterator[None]:
    """Show each warning in one line, like errors, without its source location."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: typer.echo(f"corgipile: {printable(str(message))}", err=True)
        yield


def fail(message: str, kind: str, *, json: bool, code: int) -> int:
    """Report an error in one line or one JSON document; return the exit code."""
    message = printable(message)
    if json:
        try:
            show_json({"error": {"type": kind, "message": message, "code": code}})
        except OSError:  # stdout may be the cause of the error
            discard_output()
        else:
            return code
    typer.echo(f"corgipile: {message}", err=True)
    return code


def error_message(error: BaseException) -> str:
    """Return the message of an error."""
    if isinstance(error, MemoryError) and not str(error):
        return "out of memory; try a smaller --memory"
    if isinstance(error, OSError) and not isinstance(error, CorgiPileError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else f"cannot write the output: {error.strerror}"
    return str(error)


def printable(text: str) -> str:
    r"""Convert text to one printable line: control characters and invalid bytes are escaped.

    Example:
        >>> printable("two\nlines\tand \x1b[31m \udcff")
        'two lines and \\x1b[31m \\udcff'
    """
    line = " ".join(text.split())
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]} ..."


def discard_output() -> None:
    """Redirect stdout to nowhere, so that flushing it at exit cannot fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[str] = (), end: int | None = None
) -> None:
    """Print a table: the first column aligns left, others right; names with spaces take two lines.

    Columns of ``spare`` are omitted, in this order, if the terminal, or ``end``, is too narrow.
    """
    wide = end or terminal_width()
    columns = [[*_two_lines(name), *(row[at] for row in rows)] for at, name in enumerate(head)]
    for name in spare:
        if _width_of(columns) > wide:
            columns = [column for column in columns if column[:2] != _two_lines(name)]
    if title:
        typer.echo("\n".join(textwrap.wrap(title, wide)))
    widths = [max(map(len, column)) for column in columns]
    for at, cells in enumerate(zip(*columns, strict=True)):
        line = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        text = "  ".join(line).rstrip()
        if text or at > 1:
            typer.echo(text)
        if at == 1:
            typer.echo("  ".join("-" * width for width in widths))


def table_width(head: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the terminal width that `show_table` needs.

    Example:
        >>> table_width(["x", "mean loss"], [["1", "0.5"]])
        7
    """
    return _width_of([[*_two_lines(name), *(row[at] for row in rows)] for at, name in enumerate(head)])


def _two_lines(name: str) -> list[str]:
    first, _, second = name.rpartition(" ")
    return [first, second]


def _width_of(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)


def terminal_width() -> int:
    """Return the width of the terminal or the variable COLUMNS; 80 without a terminal."""
    return max(40, shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns)


def show_facts(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values."""
    wide = terminal_width()
    typer.echo(printable(title))
    names = [textwrap.shorten(printable(name), wide // 2, placeholder="...") for name, _ in rows]
    left = max(map(len, names), default=0)
    for name, (_, value) in zip(names, rows, strict=True):
        lines = textwrap.wrap(printable(value), max(16, wide - left - 4)) or [""]
        typer.echo(f"  {name:<{left}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            typer.echo(f"  {'':<{left}}  {line}")


def note(text: str, *, indent: str = "") -> None:
    """Print a sentence, wrapped to the terminal."""
    typer.echo(textwrap.fill(printable(text), terminal_width(), subsequent_indent=indent))


def show_json(document: Any) -> None:
    """Print one JSON document; NaN and infinity are null."""
    typer.echo(json.dumps(_jsonable(document), indent=2))


def _jsonable(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): _jsonable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
