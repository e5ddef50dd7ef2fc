"""What all subcommands share: errors in one line, progress bars, tables and JSON."""

import dataclasses
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import typer

from corgipile.errors import CorgiPileError

Command = TypeVar("Command", bound=Callable[..., None])

_EVERY = 5.0  # seconds between log lines
_WIDE = 120


def command(function: Command) -> Command:
    """Let a subcommand end in one line on stderr and exit code 2 or, interrupted, 130; never in a traceback."""

    @functools.wraps(function)
    def guarded(*values: Any, **named: Any) -> None:
        try:
            function(*values, **named)
        except BrokenPipeError:
            # Whoever read our output has seen enough; Python must not complain when it flushes the rest.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (CorgiPileError, OSError) as error:
            typer.echo(f"corgipile: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("corgipile: interrupted", err=True)
            raise typer.Exit(130) from None

    return guarded  # type: ignore[return-value]


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

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rate]} {task.fields[note]}"),
        TimeRemainingColumn(),
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
        self._bar(self._done, self._total, self._note)

    def say(self, note: str) -> None:
        """Show this from now on."""
        self._note = note


class _Log:
    """Writes a line now and then, and one at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._start = self._last = time.perf_counter()
        self._note = ""

    def __call__(self, done: int, total: int | None, note: str = "") -> None:
        now = time.perf_counter()
        if now - self._last < _EVERY and done != total and note == self._note:
            return
        self._last, self._note = now, note
        share = f" of {total:,}" if total else ""
        rate = rows_per_second(done, now - self._start)
        typer.echo(f"{self._title}: {done:,}{share} rows, {rate}{', ' * bool(note)}{note}", err=True)


def rows_per_second(rows: float, seconds: float) -> str:
    """Write a rate as people read it.

    Example:
        >>> rows_per_second(3_000_000, 2), rows_per_second(1500, 1)
        ('1.5 M rows/s', '1.5 k rows/s')
    """
    rate = rows / max(seconds, 1e-9)
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit} rows/s"
    return f"{rate:.3g} rows/s"


def show_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout: the first column to the left, numbers to the right."""
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left")
    for at, name in enumerate(head):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    _print(table, rows)


def show_facts(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and what they stand for on stdout."""
    from rich.table import Table  # noqa: PLC0415

    _print(Table(title=title, title_justify="left", show_header=False), rows)


def _print(table: Any, rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415

    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)


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
