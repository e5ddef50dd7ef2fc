"""What all subcommands share: errors in one line, progress bars, tables and JSON."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import typer

from corgipile.cli.signals import outcome
from corgipile.errors import CorgiPileError

Command = TypeVar("Command", bound=Callable[..., None])

_EVERY = 5.0  # seconds between log lines
_LONGEST = 2000  # characters of a message
_WIDE = 80  # columns where there is no terminal


def command(function: Command) -> Command:
    """Let a subcommand end in one line on stderr, or with --json a document, and an exit code; never in a traceback."""

    @functools.wraps(function)
    def guarded(*values: Any, **named: Any) -> None:
        json = bool(named.get("json"))
        try:
            function(*values, **named)
        except BrokenPipeError:
            # Whoever read our output has seen enough.
            discard_output()
            raise typer.Exit(0) from None
        except KeyboardInterrupt as stop:
            code, word = outcome(stop)
            raise typer.Exit(fail(word, "Interrupted", json=json, code=code)) from None
        except (CorgiPileError, OSError, MemoryError) as error:
            raise typer.Exit(fail(told(error), type(error).__name__, json=json, code=2)) from None

    return guarded  # type: ignore[return-value]


def fail(message: str, kind: str, *, json: bool, code: int) -> int:
    """Tell an error, in one line or one JSON document; return the exit code."""
    message = printable(message)
    if json:
        try:
            show_json({"error": {"type": kind, "message": message, "code": code}})
        except OSError:  # of which the error may be
            discard_output()
        else:
            return code
    typer.echo(f"corgipile: {message}", err=True)
    return code


def told(error: BaseException) -> str:
    """Return what there is to be said of an error."""
    if isinstance(error, MemoryError) and not str(error):
        return "out of memory; a smaller --memory may do"
    if isinstance(error, OSError) and not isinstance(error, CorgiPileError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else f"cannot write the output: {error.strerror}"
    return str(error)


def printable(text: str) -> str:
    r"""Put text into one line that any terminal shows: no control characters, no bytes that are no text.

    Example:
        >>> printable("two\nlines\tand \x1b[31m \udcff")
        'two lines and \\x1b[31m \\udcff'
    """
    line = " ".join(text.split())
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."


def discard_output() -> None:
    """Let nothing more be written to stdout, nor Python complain of it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Bar(Protocol):
    """Shows how far work has come."""

    def __call__(self, done: int, total: int | None, note: str = "") -> None:
        """Tell rows done, rows in all if known, and a word beside them."""


@contextmanager
def progress(title: str, *, quiet: bool = False) -> Iterator[Bar]:
    """Show a progress bar with rows/s on a terminal, log lines elsewhere, nothing if quiet; all on stderr."""
    if quiet:
        yield lambda done, total, note="": None  # noqa: ARG005 - the shape of a bar
    elif sys.stderr.isatty():
        with _terminal_bar(title) as bar:
            yield bar
    else:
        yield _Log(title)


@contextmanager
def _terminal_bar(title: str) -> Iterator[Bar]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(table_column=Column(max_width=40, min_width=4)),
        TextColumn("{task.fields[rate]} {task.fields[note]}"),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=8)),
    )
    start = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None, rate="", note="")

        def show(done: int, total: int | None, note: str = "") -> None:
            rate = rows_per_second(done, time.perf_counter() - start)
            bars.update(task, completed=done, total=total, rate=rate, note=note)

        yield show


class Watch:
    """Counts rows for a bar, beside the last news."""

    def __init__(self, bar: Bar, total: int) -> None:
        self._bar, self._total, self._done, self._note = bar, total, 0, ""

    def rows(self, count: int) -> None:
        """Take note of rows done."""
        self._done += count
        known = self._done <= self._total  # a reservoir visits some rows twice
        self._bar(self._done, self._total if known else None, self._note)

    def say(self, note: str) -> None:
        """Show this from now on."""
        self._note = note


class _Log:
    """Writes a line now and then, and one at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._start = self._last = time.perf_counter()

    def __call__(self, done: int, total: int | None, note: str = "") -> None:
        now = time.perf_counter()
        if now - self._last < _EVERY and done != total:
            return
        self._last = now
        share = f" of {total:,}" if total else ""
        rate = rows_per_second(done, now - self._start)
        typer.echo(f"{self._title}: {done:,}{share} rows, {rate}{', ' * bool(note)}{note}", err=True)


def rows_per_second(rows: float, seconds: float) -> str:
    """Write a rate as people read it.

    Example:
        >>> rows_per_second(3_000_000, 2), rows_per_second(1500, 1)
        ('1.5 M rows/s', '1.5 k rows/s')
    """
    return f"{rate(rows, seconds)} rows/s"


def rate(rows: float, seconds: float) -> str:
    """Write a rate without its unit."""
    found = rows / max(seconds, 1e-9)
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if found >= scale:
            return f"{found / scale:.3g} {unit}"
    return f"{found:.3g}"


def show_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, spare: Sequence[str] = (), end: int | None = None
) -> None:
    """Print a table on stdout: the first column to the left, numbers to the right, names in two lines if need be.

    Args:
        title: A line before it, or nothing.
        head: Names of the columns.
        rows: The cells.
        spare: Columns that are left out, in this order, where the terminal is too narrow.
        end: Columns of the terminal; found out by default.
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


def _two_lines(name: str) -> list[str]:
    first, _, second = name.rpartition(" ")
    return [first, second]


def _width_of(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)


def terminal_width() -> int:
    """Return the columns of the terminal, or of what COLUMNS says; 80 where there is none."""
    return max(40, shutil.get_terminal_size((_WIDE, 24)).columns)


def show_facts(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and what they stand for on stdout."""
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
    """Print a sentence on stdout, in as many lines as it needs."""
    typer.echo(textwrap.fill(printable(text), terminal_width(), subsequent_indent=indent))


def show_json(document: Any) -> None:
    """Print one JSON document on stdout; NaN and infinity are null."""
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
