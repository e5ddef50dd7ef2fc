"""Progress display: a bar on a terminal, lines in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Bar", "Watch", "progress", "rate", "rows_per_second"]

_EVERY = 5.0  # seconds between log lines


class Bar(Protocol):
    """Shows the progress of work."""

    def __call__(self, done: int, total: int | None, note: str = "") -> None:
        """Show the rows done, the total if known, and a note."""


@contextmanager
def progress(title: str, *, quiet: bool = False) -> Iterator[Bar]:
    """Show a progress bar with rows/s on a terminal, log lines elsewhere, nothing if quiet; all on stderr."""
    if quiet:
        yield lambda done, total, note="": None  # noqa: ARG005 - has the signature of a bar
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
    """Counts rows for a bar and shows a note with them."""

    def __init__(self, bar: Bar, total: int) -> None:
        self._bar, self._total, self._done, self._note = bar, total, 0, ""

    def rows(self, count: int) -> None:
        """Add rows done."""
        self._done += count
        known = self._done <= self._total  # a reservoir visits some rows twice
        self._bar(self._done, self._total if known else None, self._note)

    def note(self, note: str) -> None:
        """Show this note from now on."""
        self._note = note


class _Log:
    """Writes a line every few seconds, and a last one."""

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
        print(f"{self._title}: {done:,}{share} rows, {rate}{', ' * bool(note)}{note}", file=sys.stderr, flush=True)  # noqa: T201


def rows_per_second(rows: float, seconds: float) -> str:
    """Format a rate with its unit.

    Example:
        >>> rows_per_second(3_000_000, 2), rows_per_second(1500, 1)
        ('1.5 M rows/s', '1.5 k rows/s')
    """
    return f"{rate(rows, seconds)} rows/s"


def rate(rows: float, seconds: float) -> str:
    """Format a rate without its unit."""
    value = rows / max(seconds, 1e-9)
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g}"
